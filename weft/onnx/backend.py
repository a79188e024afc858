"""weft as a backend of ONNX: the interface of onnx.backend.base.Backend, of arrays in and out.

outputs = Backend.run_model(model, [array])
prepared = Backend.prepare(model); outputs = prepared.run([array])
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from onnx import ModelProto, NodeProto, helper

import weft
from weft.onnx.load import module_of
from weft.onnx.types import OnnxError, from_numpy, to_numpy


class Prepared:
    """A model that can be run again and again; `module` is what torch sees of it."""

    def __init__(self, module: Any, call: Any, device: torch.device) -> None:
        self.module, self.call, self.device = module, call, device

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        """The outputs for inputs in the graph's order, or by name, as NumPy arrays."""
        ports = self.module.inputs
        given = [inputs[port.name] for port in ports] if isinstance(inputs, dict) else list(inputs)
        if len(given) != len(ports):
            raise OnnxError(f"{self.module.title} takes {len(ports)} inputs, not {len(given)}")
        values = [self.value(v, port) for v, port in zip(given, ports, strict=True)]
        with torch.no_grad():
            found = self.call(*values)
        several = found if isinstance(found, tuple) else (found,)
        return tuple(
            to_numpy(v, p.element) for v, p in zip(several, self.module.outputs, strict=True)
        )

    def value(self, given: Any, port: Any) -> Any:
        """A tensor of an array; Python numbers where the model reads a shape of them."""
        if isinstance(given, list):
            return [self.value(item, port) for item in given]
        if given is None or isinstance(given, str):
            return given
        if port.name in self.module.number_inputs and given.ndim <= 1:
            values = given.tolist()
            return tuple(values) if isinstance(values, list) else values
        found = from_numpy(given, port.element or helper.np_dtype_to_tensor_dtype(given.dtype))
        return found.to(self.device) if isinstance(found, torch.Tensor) else found


class Backend:
    """Compiles by weft.compile; with `compile=False` the module stays in eager torch."""

    @classmethod
    def is_compatible(cls, model: ModelProto, device: str = "CPU", **_: Any) -> bool:
        return True

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """CPU, and CUDA or CUDA:1 where torch finds it."""
        kind = device.split(":")[0]
        return kind == "CPU" or (kind == "CUDA" and torch.cuda.is_available())

    @classmethod
    def prepare(
        cls,
        model: ModelProto,
        device: str = "CPU",
        compile: bool = True,
        folder: str = ".",
        **options: Any,
    ) -> Prepared:
        """A model for repeated runs; `options` are those of weft.compile."""
        if not cls.supports_device(device):
            raise OnnxError(f"torch finds no device {device}")
        place = torch.device(device.lower())
        module = module_of(model, Path(folder), model.graph.name or "graph").to(place)
        call = weft.compile(module, **options) if compile else module
        return Prepared(module, call, place)

    @classmethod
    def run_model(
        cls, model: ModelProto, inputs: Any, device: str = "CPU", **options: Any
    ) -> tuple[Any, ...]:
        return cls.prepare(model, device, **options).run(inputs)

    @classmethod
    def run_node(
        cls, node: NodeProto, inputs: Sequence[Any], device: str = "CPU", **options: Any
    ) -> tuple[Any, ...]:
        """Runs one node on arrays, at the opset `opset_version` or the newest."""
        version = options.pop("opset_version", None)
        opsets = [helper.make_opsetid(node.domain, version)] if version else None
        options.pop("outputs_info", None)
        names = [name for name in node.input if name]
        ports = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for name, x in zip(names, inputs, strict=True)
        ]
        outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
        graph = helper.make_graph([node], node.op_type, ports, outputs)
        return cls.run_model(
            helper.make_model(graph, opset_imports=opsets), inputs, device, **options
        )


prepare, run_model, run_node = Backend.prepare, Backend.run_model, Backend.run_node
supports_device = Backend.supports_device
