"""weft: PyTorch programs to fused kernels through six levels of IR.

f = weft.compile(module)            # or @weft.compile, or torch.compile(module, backend="weft")
y = f(x)                            # results, strides and aliasing as in eager
print(f.ir("loop"), f.report)       # or weft.ir(f, "loop"), weft.report(f)
"""

from weft.core.errors import (
    CacheError,
    CaptureError,
    CompilerError,
    DivisionByZero,
    IndexOutOfRange,
    ParseError,
    SourceError,
    UnsupportedOpError,
    VerifyError,
    WeftError,
)
from weft.driver import compile, ir, report
from weft.jax.convert import from_jax
from weft.lowbit import export_weights, load_gguf, quantize
from weft.onnx import from_onnx
from weft.runtime.blocks import empty_cache
from weft.runtime.report import Report
from weft.targets.cpu import CPU as Target
from weft.transforms import custom_gradient, grad, value_and_grad

__all__ = [
    "CacheError",
    "CaptureError",
    "CompilerError",
    "DivisionByZero",
    "IndexOutOfRange",
    "ParseError",
    "Report",
    "SourceError",
    "Target",
    "UnsupportedOpError",
    "VerifyError",
    "WeftError",
    "compile",
    "custom_gradient",
    "empty_cache",
    "export_weights",
    "from_jax",
    "from_onnx",
    "grad",
    "ir",
    "load_gguf",
    "quantize",
    "report",
    "value_and_grad",
]
