"""How each backend runs the layers of `weft bench cpu --quantized`: all configurations are data.

calls = BUILD["openvino"]("int8", PHASES["decode"], 9)      # of 9 layers, whose weights are theirs
calls[0]()                                                  # what layer 0 gives
"""

from __future__ import annotations

import gc
import importlib.util
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor

import weft
from weft.cli.llama import Llama, Sizes, write_gguf
from weft.cli.lowbit_layer import (
    GROUP,
    HEADS,
    HIDDEN,
    INNER,
    KEY_HEADS,
    ROWS,
    Phase,
    dense_layer,
    given,
)
from weft.cli.peers import onnx_model, onnxruntime_peer, openvino_peer
from weft.core.errors import WeftError

Calls = list[Callable[[], Any]]
LLAMA_FOLDER = "WEFT_BENCH_LLAMA"  # tells a worker where the libraries of llama.cpp are


@dataclass(frozen=True)
class Inductor:
    """A configuration of torchao by name and arguments, and the dtype of activations."""

    path: str | None
    dtype: torch.dtype
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class OpenVINO:
    """Bits of weights, and how many elements of an activation it may round together; 0: none."""

    bits: int
    rounds: int = 0
    precision: str = "f32"


@dataclass(frozen=True)
class Onnx:
    """MatMulNBits of `bits` at an accuracy level, 4 rounds activations; `dynamic` is by rows."""

    bits: int = 0
    block: int = GROUP
    accuracy: int = 0
    dynamic: bool = False


BF16, F32 = torch.bfloat16, torch.float32
QUANTIZATION = "torchao.quantization"
INT4 = "torchao.prototype.quantization.int4:PrototypeInt4WeightOnlyConfig"
INDUCTOR = {
    "bf16": Inductor(None, BF16),
    "int8": Inductor(f"{QUANTIZATION}:Int8WeightOnlyConfig", BF16),
    "int4 g32": Inductor(INT4, BF16, {"group_size": GROUP}),
    "int8, int8 activations": Inductor(
        f"{QUANTIZATION}:Int8DynamicActivationInt8WeightConfig", F32
    ),
}
OPENVINO = {
    "bf16": OpenVINO(0, precision="bf16"),
    "int8": OpenVINO(8),
    "int4 g32": OpenVINO(4),
    "int4 g32, int8 activations": OpenVINO(4, rounds=GROUP),
    "int8, int8 activations": OpenVINO(8, rounds=GROUP),
}
LLAMA = {
    "bf16": "F16",
    "int4 g32, int8 activations": "Q4_0",
    "int8, int8 activations": "Q8_0",
}
ONNX = {
    "int8": Onnx(bits=8, block=128),
    "int4 g32": Onnx(bits=4),
    "int4 g32, int8 activations": Onnx(bits=4, accuracy=4),
    "int8, int8 activations": Onnx(dynamic=True),
}
NEEDS = {
    "inductor": ("torchao",),
    "openvino": ("openvino",),
    "onnxruntime": ("onnxruntime", "onnx", "onnxscript"),
    "llama.cpp": ("gguf",),
}


KNOWN: dict[str, Mapping[str, Any]] = {
    "inductor": INDUCTOR, "openvino": OPENVINO, "onnxruntime": ONNX, "llama.cpp": LLAMA,
}  # fmt: skip


def absent(backend: str, llama: str | None) -> str | None:
    """Why a backend is left out; None where it is not."""
    missing = [name for name in NEEDS.get(backend, ()) if importlib.util.find_spec(name) is None]
    if missing:
        return f"{missing[0]} is not installed"
    folder = backend == "llama.cpp" and llama is None
    return "--llama FOLDER says where its libraries are" if folder else None


def has(backend: str, row: str) -> bool:
    """Whether a backend computes a row's semantics on CPUs."""
    return row in KNOWN.get(backend, ROWS)


def bound(f: Callable[..., Any], arguments: tuple[Tensor, ...]) -> Callable[[], Any]:
    return lambda: f(*arguments)


def eager_calls(row: str, phase: Phase, count: int) -> Calls:
    arguments = given(phase, ROWS[row].dtype)
    return [bound(ROWS[row].layer(seed), arguments) for seed in range(count)]


def weft_calls(row: str, phase: Phase, count: int) -> Calls:
    arguments = given(phase, ROWS[row].dtype)
    return [
        bound(weft.compile(ROWS[row].layer(seed), freeze=True), arguments) for seed in range(count)
    ]


def inductor_calls(row: str, phase: Phase, count: int) -> Calls:
    """Each layer is a graph of its own: its weights are constants of it (freezing)."""
    chosen = INDUCTOR[row]
    arguments, calls = given(phase, chosen.dtype), Calls()
    for seed in range(count):
        layer = dense_layer(seed).to(chosen.dtype)
        if chosen.path is not None:
            module, _, name = chosen.path.partition(":")
            config = getattr(importlib.import_module(module), name)(**chosen.arguments)
            importlib.import_module(QUANTIZATION).quantize_(layer, config)
        calls.append(bound(torch.compile(layer, options={"freezing": True}), arguments))
        calls[-1]()
    return calls


def openvino_calls(row: str, phase: Phase, count: int) -> Calls:
    """Each layer's weights are constants of few bits, decompressed as OpenVINO's own tools do."""
    import openvino as ov

    chosen, arguments, calls = OPENVINO[row], given(phase, F32), Calls()
    hints = {
        "INFERENCE_PRECISION_HINT": chosen.precision,
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": str(chosen.rounds),
    }
    for seed in range(count):
        model = ov.convert_model(dense_layer(seed), example_input=arguments)
        model.reshape({i: list(t.shape) for i, t in enumerate(arguments)})
        nodes = model.get_ordered_ops() if chosen.bits else ()
        held = [compress(n, chosen.bits) for n in nodes if n.get_type_name() == "MatMul"]
        calls.append(openvino_peer(model, hints).bind(*arguments))
        del model, nodes, held
        gc.collect()
    return calls


def compress(product: Any, bits: int) -> tuple[Any, ...]:
    """Puts a constant side of a product as codes: Convert, Subtract where unsigned, Multiply.

    Returns the memory that the model then borrows.
    """
    from openvino import Shape, Tensor, Type, opset13

    constant = product.input_value(1).get_node()
    while constant.get_type_name() == "Convert":
        constant = constant.input_value(0).get_node()
    if constant.get_type_name() != "Constant" or len(constant.shape) != 2:
        return ()
    if not product.get_attributes()["transpose_b"]:
        raise WeftError("OpenVINO's converter stores weights by columns")
    w: Any = torch.from_numpy(np.array(constant.data, np.float32))
    n, k = w.shape
    w = w.unflatten(-1, (-1, GROUP)) if bits == 4 else w
    top = 127 if bits == 8 else 7
    scale = w.abs().amax(-1, keepdim=True) / top
    codes, lent = (w / scale).round(), ()
    if bits == 8:
        x = opset13.convert(opset13.constant(codes.to(torch.int8).numpy()), "f16")
    else:
        bytes_ = (codes + 8).to(torch.uint8).reshape(-1, 2)
        lent = (bytes_[:, 0] | bytes_[:, 1] << 4).numpy(), np.array([8], np.uint8)
        held = opset13.constant(Tensor(lent[0], Shape(list(codes.shape)), Type.u4))
        zero = opset13.constant(Tensor(lent[1], Shape([]), Type.u4))
        x = opset13.subtract(opset13.convert(held, "f16"), opset13.convert(zero, "f16"))
    x = opset13.multiply(x, opset13.constant(scale.half().numpy()))
    x = opset13.reshape(x, np.array([n, k]), False) if bits == 4 else x
    product.input(1).replace_source_output(opset13.convert(x, "f32").output(0))
    return lent


def onnxruntime_calls(row: str, phase: Phase, count: int) -> Calls:
    """One exported layer, loaded as often: each session has packed weights of its own."""
    arguments = given(phase, F32)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "layer.onnx"
        path.write_bytes(onnx_model(dense_layer(0), arguments))
        text = quantised(path, ONNX[row])
    gc.collect()
    return [onnxruntime_peer(text, arguments).bind(*arguments) for _ in range(count)]


def quantised(path: Path, chosen: Onnx) -> bytes:
    from onnxruntime import quantization
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    if chosen.dynamic:
        out = path.with_name("out.onnx")
        quantization.quantize_dynamic(path, out, per_channel=True)
        return out.read_bytes()
    made: Any = MatMulNBitsQuantizer(
        str(path), chosen.bits, chosen.block, True, chosen.accuracy or None
    )
    made.process()
    return made.model.model.SerializeToString()


def llama_calls(row: str, phase: Phase, count: int) -> Calls:
    """A call computes all layers: one model of them, with a small vocabulary."""
    sizes = Sizes(HIDDEN, INNER, HEADS, KEY_HEADS, count, words=32)
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


BUILD: dict[str, Callable[[str, Phase, int], Calls]] = {
    "eager": eager_calls,
    "weft": weft_calls,
    "inductor": inductor_calls,
    "onnxruntime": onnxruntime_calls,
    "openvino": openvino_calls,
    "llama.cpp": llama_calls,
}


def first_output(call: Callable[[], Any]) -> Tensor | None:
    """What a layer gives, in f32: peers give lists. None where a call computes other layers."""
    out = call()
    if out is None:
        return None
    return (out if isinstance(out, Tensor) else out[0]).detach().to(torch.float32).clone()
