"""The reference interpreters: each level's programs run by themselves, on NumPy, with no compiler.

tensors.py runs graphs of the tensor level, nests.py the loop and tile levels, kernels.py the kernel
level. (Torch itself runs the torch level: frontend/torch_level.py; sim/ runs CUDA text.)
"""
