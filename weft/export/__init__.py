"""Texts for others: MLIR (mlir*.py), Triton (triton/), C without torch or Python (`weft export`).

traced.py    one call of a program: its graph, what comes from the caller, what its results are
targets.py   instruction sets and GPUs by name, and the code for each of
code.py      the graph for an instruction set: a launch spec without library calls, and C texts
cuda.py      the graph for a GPU: the same, and cubins
tables.py    what is public, and code for CPUs, as C tables, which weft_model.c runs
cuda_tables.py  code for GPUs as C tables, which weft_cuda.c runs
folder.py    all files of an exported model, in one step
weft_*.h/c   the part that all models share; names get the model's own in place of `weft`
"""
