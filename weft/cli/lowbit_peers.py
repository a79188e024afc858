"""How each backend runs the layers of `weft bench cpu --quantized`: all configurations are data.

build = BUILD["openvino"]("int8")
calls = build(PHASES["decode"], 9)          # of 9 layers, each with weights of its own in memory
calls[0]()                                  # what a layer gives; a backend may join all in one call
"""

from __future__ import annotations

import copy
import importlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

import weft
from weft.cli import lowbit_layer, peers
from weft.cli.llama import Llama, Sizes, write_gguf
from weft.cli.lowbit_layer import BF16, F32, GROUP, ROWS, Phase, arguments, dense_layer

Calls = list[Callable[[], Any]]
Build = Callable[[Phase, int], Calls]
LLAMA_FOLDER = "WEFT_BENCH_LLAMA"  # tells a worker where the libraries of llama.cpp are


@dataclass(frozen=True)
class Torchao:
    """A configuration by module, name and arguments, and the dtype of activations."""

    name: str
    dtype: torch.dtype
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    module: str = "torchao.quantization"


@dataclass(frozen=True)
class OpenVINO:
    """What NNCF compresses weights to, the precision of the rest, and how many elements of an
    activation are rounded to int8 together; 0: none are."""

    mode: str | None
    precision: str
    rounds: int = 0


@dataclass(frozen=True)
class Onnx:
    """MatMulNBits of `bits` at an accuracy level (4 rounds activations), or `quantize_dynamic`."""

    bits: int = 0
    block: int = GROUP
    accuracy: int = 0
    dynamic: bool = False


INT8, INT4 = "int8, int8 activations", "int4, int8 activations"
INT4_MODULE = "torchao.prototype.quantization.int4"
TORCHAO = {
    "fp8": Torchao("Float8WeightOnlyConfig", BF16),
    "int8": Torchao("Int8WeightOnlyConfig", BF16),
    "int4": Torchao("PrototypeInt4WeightOnlyConfig", BF16, {"group_size": GROUP}, INT4_MODULE),
    INT8: Torchao("Int8DynamicActivationInt8WeightConfig", F32),
}
OPENVINO = {
    "fp32": OpenVINO(None, "f32"),
    "bf16": OpenVINO(None, "bf16"),
    "int8": OpenVINO("INT8_SYM", "bf16"),
    "int4": OpenVINO("INT4_SYM", "bf16"),
    INT8: OpenVINO("INT8_SYM", "f32", rounds=GROUP),
    INT4: OpenVINO("INT4_SYM", "f32", rounds=GROUP),
}
ONNX = {
    "fp32": Onnx(),
    "int8": Onnx(bits=8, block=128),
    "int4": Onnx(bits=4),
    INT8: Onnx(dynamic=True),
    INT4: Onnx(bits=4, accuracy=4),
}
LLAMA = {"bf16": "F16", "int8": "Q8_0", INT8: "Q8_0", INT4: "Q4_0"}
NEEDS = {
    **peers.NEEDS,
    "openvino": ("openvino", "nncf"),
    "torchao": ("torchao",),
    "llama.cpp": ("gguf",),
}
KNOWN: dict[str, Mapping[str, Any]] = {
    "torchao": TORCHAO, "openvino": OPENVINO, "onnxruntime": ONNX, "llama.cpp": LLAMA,
}  # fmt: skip


def absent(backend: str, llama: str | None) -> str | None:
    """Why a backend is left out; None where it is not."""
    names = peers.missing(backend, NEEDS)
    if names:
        return f"{' and '.join(names)} not installed (pip install 'weft[bench]')"
    if backend == "llama.cpp" and llama is None:
        return "--llama FOLDER says where its libraries are"
    return None


def has(backend: str, row: str) -> bool:
    """Whether a backend computes a row on CPUs."""
    return row in KNOWN.get(backend, ROWS)


def each(layer: nn.Module, dtype: torch.dtype, compiled: Callable[[nn.Module], Any]) -> Build:
    """Copies of a layer, each compiled by itself."""
    made: list[Any] = []

    def build(phase: Phase, count: int) -> Calls:
        while len(made) < count:
            made.append(compiled(copy.deepcopy(layer)))
        given = arguments(phase, dtype)
        return [partial(f, *given) for f in made[:count]]

    return build


def frozen(layer: nn.Module) -> Any:
    return torch.compile(layer, dynamic=False, options={"freezing": True})


def eager(row: str) -> Build:
    return each(ROWS[row].layer(), ROWS[row].dtype, lambda layer: layer)


def inductor(row: str) -> Build:
    """Inductor on the modules that weft has, which are plain torch."""
    return each(ROWS[row].layer(), ROWS[row].dtype, frozen)


def weft_itself(row: str) -> Build:
    return each(ROWS[row].layer(), ROWS[row].dtype, partial(weft.compile, freeze=True))


class OfRows(nn.Module):
    """A Linear of x [1, rows, K] that sees [rows, K]: what Inductor makes of torchao 0.18's dynamic
    int8 is garbage for x [1, 1, K]."""

    def __init__(self, linear: nn.Module) -> None:
        super().__init__()
        self.linear = linear

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x[0])[None]


def torchao(row: str) -> Build:
    """Inductor on torchao's modules."""
    chosen = TORCHAO[row]
    layer = dense_layer().to(chosen.dtype)
    for name, child in [*layer.named_children()]:
        if isinstance(child, nn.Linear):
            setattr(layer, name, OfRows(child))
    config = getattr(importlib.import_module(chosen.module), chosen.name)(**chosen.arguments)
    importlib.import_module("torchao.quantization").quantize_(layer, config)
    return each(layer, chosen.dtype, frozen)


def openvino(row: str) -> Build:
    """A file of the layer, read as often: each model has memory of its own."""
    import openvino as ov

    chosen = OPENVINO[row]
    hints = {
        "INFERENCE_PRECISION_HINT": chosen.precision,
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": str(chosen.rounds),
    }
    core = ov.Core()
    core.set_property({"ENABLE_MMAP": False})

    def build(phase: Phase, count: int) -> Calls:
        given = arguments(phase, F32)
        model = ov.convert_model(dense_layer(), example_input=given)
        model.reshape({i: list(t.shape) for i, t in enumerate(given)})
        if chosen.mode is not None:
            model = compressed(model, chosen.mode)
        with TemporaryDirectory() as folder:
            path = Path(folder) / "layer.xml"
            ov.save_model(model, path, compress_to_fp16=False)
            read = [core.read_model(path) for _ in range(count)]
        return [peers.openvino_peer(m, hints).bind(*given) for m in read]

    return build


def compressed(model: Any, mode: str) -> Any:
    """By NNCF, all products."""
    nncf: Any = importlib.import_module("nncf")
    only_int4 = {"group_size": GROUP, "ratio": 1.0, "all_layers": True}
    chosen = nncf.CompressWeightsMode[mode]
    return nncf.compress_weights(model, mode=chosen, **(only_int4 if "INT4" in mode else {}))


def onnxruntime(row: str) -> Build:
    """One exported layer, loaded as often: each session has packed weights of its own."""

    def build(phase: Phase, count: int) -> Calls:
        given = arguments(phase, F32)
        with TemporaryDirectory() as folder:
            path = Path(folder) / "layer.onnx"
            path.write_bytes(peers.onnx_model(dense_layer(), given))
            text = rounded_model(path, ONNX[row])
        return [peers.onnxruntime_peer(text, given).bind(*given) for _ in range(count)]

    return build


def rounded_model(path: Path, chosen: Onnx) -> bytes:
    """A model file with weights of few bits, by ONNX Runtime's own tools."""
    if chosen.dynamic:
        out = path.with_name("out.onnx")
        tool = importlib.import_module("onnxruntime.quantization")
        tool.quantize_dynamic(path, out, per_channel=True)
        return out.read_bytes()
    if not chosen.bits:
        return path.read_bytes()
    tool = importlib.import_module("onnxruntime.quantization.matmul_nbits_quantizer")
    level = chosen.accuracy or None
    made = tool.MatMulNBitsQuantizer(str(path), chosen.bits, chosen.block, True, level)
    made.process()
    return made.model.model.SerializeToString()


def llama(row: str) -> Build:
    """One model of random blocks and a small vocabulary, so that a call computes all layers."""

    def build(phase: Phase, count: int) -> Calls:
        of = lowbit_layer
        sizes = Sizes(of.HIDDEN, of.INNER, of.HEADS, of.KEY_HEADS, count, words=32)
        with TemporaryDirectory() as folder:
            path = Path(folder) / "layers.gguf"
            write_gguf(path, sizes, LLAMA[row])
            model = Llama(os.environ[LLAMA_FOLDER], path, torch.get_num_threads())
        if phase.cached:
            model.decode([1] * phase.cached)

        def call() -> None:
            model.cut(phase.cached)
            model.decode([1] * phase.rows)

        return [call]

    return build


BUILD: dict[str, Callable[[str], Build]] = {
    "eager": eager,
    "inductor": inductor,
    "torchao": torchao,
    "onnxruntime": onnxruntime,
    "openvino": openvino,
    "llama.cpp": llama,
    "weft": weft_itself,
}


def first_output(call: Callable[[], Any]) -> Tensor | None:
    """What a layer gives, in f32: peers give lists. None where a call computes other layers."""
    out = call()
    if out is None:
        return None
    return (out if isinstance(out, Tensor) else out[0]).detach().to(torch.float32).clone()
