"""Weights of few bits: rounding a module's own, training for it, and files of others.

weft.quantize(model, "int4")            # its Linears become layers over int4 codes and scales
weft.load_gguf("model.gguf")            # a llama whose Linears hold the file's blocks
"""

from weft.lowbit.checkpoints import load_packed
from weft.lowbit.integers import export_weights
from weft.lowbit.llama import load_gguf
from weft.lowbit.quantize import Report, quantize
from weft.lowbit.storage import LowBitError
from weft.lowbit.training import convert, prepare

__all__ = [
    "LowBitError",
    "Report",
    "convert",
    "export_weights",
    "load_gguf",
    "load_packed",
    "prepare",
    "quantize",
]
