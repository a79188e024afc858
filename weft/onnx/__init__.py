"""ONNX in: a model becomes a torch module whose parameters are its initialisers (docs/ONNX.md).

module = weft.from_onnx("model.onnx")  # needs the extra weft[onnx]
y = weft.compile(module)(x)            # compiled, trained and exported as any other module
"""

import os
from importlib import import_module

from torch import nn

from weft.core.errors import WeftError


def from_onnx(path: str | os.PathLike[str]) -> nn.Module:
    """The module of an ONNX file, in which each node is torch calls.

    It takes the graph's inputs in order and returns its output, or a tuple of several. Floating
    point initialisers are parameters, others are buffers. No file is unpickled. `OnnxError` names
    the node if the file is damaged, or asks for what there is no row for.
    """
    try:
        import_module("onnx")
    except ImportError:
        raise WeftError("an ONNX file needs onnx: pip install weft[onnx]") from None
    return import_module("weft.onnx.load").load(path)
