"""Triton kernels from a GPU's tile level: `--ir triton`.

program.py   the file: imports, helpers, kernels, run()
plan.py      what becomes of each loop of a block: a dimension of tensors, a loop, a tl.dot
slabs.py     what becomes of each buffer of a block: a tensor, or memory of the launch
nests.py     a kernel: its loops; updates.py its folds, memory.py loads and stores, values.py terms
uses.py      what a nest uses where
folds.py terms.py helpers.py     Triton's words for monoids and scalar functions
text.py      names, long lines, facts about tensors
"""
