"""Weights of few bits: rounding a module's own, training for it, and files of others.

weft.quantize(model, "int4")            # its Linears become layers over int4 codes and scales
"""

from weft.lowbit.quantize import Report, quantize
from weft.lowbit.storage import LowBitError

__all__ = ["LowBitError", "Report", "quantize"]
