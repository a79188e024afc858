"""OpenVINO and ONNX Runtime as backends: float32, as many threads as torch, tensors not copied.

peer = openvino(Source(nn.ReLU(), (x,), {}, "relu"))
run = peer.bind(x)          # binds inputs and outputs once, outside of what is timed
run()[0]                    # the same memory at every call
"""

import importlib.util
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from weft.cli.program import Source, tensors
from weft.core.errors import WeftError
from weft.library.calls import TORCH_DTYPES

# Modules that a backend needs besides torch; without them the bench leaves it out.
NEEDS = {"openvino": ("openvino",), "onnxruntime": ("onnxruntime", "onnx", "onnxscript")}
ONNX_TYPES = {
    torch.float32: 1, torch.uint8: 2, torch.int8: 3, torch.int32: 6, torch.int64: 7,
    torch.bool: 9, torch.float16: 10, torch.float64: 11, torch.bfloat16: 16,
}  # fmt: skip
Run = Callable[[], Sequence[torch.Tensor]]


def missing(backend: str, needs: Mapping[str, Sequence[str]] = NEEDS) -> list[str]:
    """The modules that a backend needs and that are not installed."""
    return [name for name in needs.get(backend, ()) if importlib.util.find_spec(name) is None]


@dataclass(frozen=True)
class Peer:
    """A compiled program: a call takes its arguments and returns its tensors as a flat list.

    `take(i, tensor)` binds memory to input i, `give(i, tensor)` to output i; `infer` runs.
    """

    outputs: Sequence[tuple[str, Sequence[Any], torch.dtype]]  # name, shape and type
    take: Callable[[int, torch.Tensor], None]
    give: Callable[[int, torch.Tensor], None]
    infer: Callable[[], Any]

    def bind(self, *args: Any, **kwargs: Any) -> Run:
        inputs = [t.detach().contiguous() for t in tensors((args, kwargs))]
        results = [static(*output) for output in self.outputs]
        for place, held in ((self.take, inputs), (self.give, results)):
            for i, tensor in enumerate(held):
                place(i, tensor)

        def run(held: Sequence[torch.Tensor] = inputs) -> Sequence[torch.Tensor]:
            self.infer()
            return results

        return run

    def __call__(self, *args: Any, **kwargs: Any) -> Sequence[torch.Tensor]:
        return self.bind(*args, **kwargs)()


class Flat(nn.Module):
    """A program as a module from tensors to a tuple of tensors; other arguments are constants."""

    def __init__(self, source: Source) -> None:
        super().__init__()
        self.program = source.callable
        self.arguments = (source.args, source.kwargs)
        self.eval()

    def forward(self, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        left = iter(given)
        args, kwargs = pytree.tree_map_only(torch.Tensor, lambda _: next(left), self.arguments)
        return tuple(tensors(self.program(*args, **kwargs)))


def static(name: str, shape: Sequence[Any], dtype: torch.dtype) -> torch.Tensor:
    """Memory for an output of a static shape; WeftError if the shape depends on values."""
    if not all(isinstance(extent, int) for extent in shape):
        raise WeftError(f"the shape of output {name} is not static: {list(shape)}")
    return torch.empty([int(extent) for extent in shape], dtype=dtype)


def openvino(source: Source) -> Peer:
    """Converts by tracing, as OpenVINO's guide does, or else by torch.export; shapes are static."""
    import openvino as ov

    given = tensors((source.args, source.kwargs))
    with torch.no_grad():
        try:
            model = ov.convert_model(Flat(source), example_input=tuple(given))
        except Exception:
            model = ov.convert_model(torch.export.export(Flat(source), tuple(given)))
    model.reshape({i: list(t.shape) for i, t in enumerate(given)})
    return openvino_peer(model, {"INFERENCE_PRECISION_HINT": "f32"})


def openvino_peer(model: Any, hints: Mapping[str, str]) -> Peer:
    """OpenVINO's model of static shapes, compiled with these hints and torch's threads."""
    import openvino as ov

    whole = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        **hints,
    }
    compiled = ov.compile_model(model, "CPU", whole)
    request = compiled.create_infer_request()

    def shared(tensor: torch.Tensor) -> Any:
        if tensor.dtype == torch.bfloat16:  # numpy has no such type
            bits = tensor.view(torch.int16).numpy()
            return ov.Tensor(bits, ov.Shape(list(tensor.shape)), ov.Type.bf16)
        return ov.Tensor(tensor.numpy(), shared_memory=True)

    def dtype(port: Any) -> torch.dtype:
        return TORCH_DTYPES[port.element_type.get_type_name().replace("boolean", "bool")]

    return Peer(
        [(str(i), list(port.shape), dtype(port)) for i, port in enumerate(compiled.outputs)],
        lambda i, tensor: request.set_input_tensor(i, shared(tensor)),
        lambda i, tensor: request.set_output_tensor(i, shared(tensor)),
        request.infer,
    )


def onnx_model(module: nn.Module, given: tuple[torch.Tensor, ...]) -> bytes:
    """A model file by torch's newer exporter, else by its older one (dynamo=False)."""
    with torch.no_grad():
        try:
            exported = torch.onnx.export(module, given, dynamo=True, verbose=False)
            assert exported is not None
            return exported.model_proto.SerializeToString()
        except Exception as error:
            written: Any = io.BytesIO()
            try:
                torch.onnx.export(module, given, written, dynamo=False)
            except Exception:
                raise error from None
            return written.getvalue()


def onnxruntime(source: Source) -> Peer:
    """Converts by torch's exporters. Inputs and outputs are bound by address."""
    given = tensors((source.args, source.kwargs))
    return onnxruntime_peer(onnx_model(Flat(source), tuple(given)), given)


def onnxruntime_peer(text: bytes, given: Sequence[torch.Tensor]) -> Peer:
    """A session of a model file, for inputs like these, with torch's threads."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = ort.InferenceSession(text, options, providers=["CPUExecutionProvider"])
    inputs, outputs, binding = session.get_inputs(), session.get_outputs(), session.io_binding()
    if len(inputs) != len(given):
        raise WeftError(f"the exported model has {len(inputs)} inputs, the program {len(given)}")

    def dtype(port: Any) -> torch.dtype:
        return getattr(torch, port.type.removeprefix("tensor(").removesuffix(")"))

    def place(port: Any, t: torch.Tensor) -> tuple[Any, ...]:
        return port.name, "cpu", 0, ONNX_TYPES[t.dtype], list(t.shape), t.data_ptr()

    return Peer(
        [(port.name, port.shape, dtype(port)) for port in outputs],
        lambda i, tensor: binding.bind_input(*place(inputs[i], tensor)),
        lambda i, tensor: binding.bind_output(*place(outputs[i], tensor)),
        lambda: session.run_with_iobinding(binding),
    )


PEERS = {"openvino": openvino, "onnxruntime": onnxruntime}


def restored(out: Any, eager: Any) -> Any:
    """A peer's tensors in the structure and strides of eager's, which a peer need not keep."""
    leaves, structure = pytree.tree_flatten(eager)
    expected = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if len(expected) != len(leaves) or [t.shape for t in out] != [t.shape for t in expected]:
        return out
    placed = [
        torch.empty_strided(e.shape, e.stride(), dtype=t.dtype).copy_(t)
        for t, e in zip(out, expected, strict=True)
    ]
    return pytree.tree_unflatten(placed, structure)
