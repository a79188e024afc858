"""Small ONNX models from the text form of ONNX.

model("g (float[N] x) => (float[N] y) { y = Relu(x) }")
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, numpy_helper, parser

from weft.onnx.load import module_of


def model(graph: str, opset: int = 21, **initialisers: Any) -> ModelProto:
    """A model whose initialisers are arrays."""
    head = f'<ir_version: 10, opset_import: ["" : {opset}, "ai.onnx.ml" : 3, "my" : 1]>'
    made = parser.parse_model(f"{head}\n{graph}")
    for name, value in initialisers.items():  # the text has no names with dots
        for node in made.graph.node:
            node.input[:] = [name if n == name.replace(".", "_") else n for n in node.input]
        made.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    return made


def module(graph: str, opset: int = 21, **initialisers: Any) -> Any:
    return module_of(model(graph, opset, **initialisers), Path("."), "test")


def external(name: str, shape: list[int], **entries: Any) -> TensorProto:
    """A tensor whose data are elsewhere."""
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor
