"""The reference interpreters: each level's programs run by themselves, with no compiler.

calls.py runs the torch level, by torch itself; on NumPy, tensors.py runs graphs of the tensor
level, nests.py the loop and tile levels, kernels.py the kernel level. (sim/ runs CUDA text.)
"""
