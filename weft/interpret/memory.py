"""Memory of the reference interpreter: a flat array per buffer, and library calls on them.

memory = allocate(program, inputs, widen=False)      # by buffer name; poison until written
logical(memory["x"], x.type)                         # the buffer's elements in its shape, a view
run_call(call, memory)                               # the ATen op itself, through torch
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from weft.core.errors import VerifyError
from weft.core.types import FLOATS, DType, TensorType
from weft.library.calls import TORCH_DTYPES, operator, torch_object
from weft.scalar.nest import Buffer, Call, Program

BY_BITS = {d.numpy: TORCH_DTYPES[d.name] for d in FLOATS if d.numpy.isbuiltin != 1}


@dataclass(frozen=True)
class Memory:
    """Flat storage; `base` is the offset of each iteration's copy of a local buffer."""

    data: Any
    base: Any = 0


def element(dtype: DType, widen: bool) -> Any:
    """The NumPy dtype that holds a dtype; with `widen`, floats are f64 and pairs complex128."""
    wide = {"float": np.float64, "pair": np.complex128}
    return np.dtype(wide.get(dtype.kind, dtype.numpy)) if widen else dtype.numpy


def poison(size: int, dtype: Any) -> Any:
    """Unwritten memory: NaN, an integer too large for any index, or True."""
    if dtype.kind in "iu":
        return np.full(size, np.iinfo(dtype).max // 3, dtype)
    return np.full(size, True if dtype.kind == "b" else np.nan, dtype)


def logical(memory: Memory, type_: TensorType) -> Any:
    """A writable view of flat memory in a tensor's shape and strides."""
    strides = tuple(s * memory.data.itemsize for s in type_.layout)
    return np.lib.stride_tricks.as_strided(memory.data, type_.shape, strides)


def allocate(program: Program, inputs: Sequence[Any], widen: bool) -> dict[str, Memory]:
    """Allocate every buffer that a program names and fill the inputs.

    VerifyError for another number of inputs, or an input of another shape or dtype.
    """
    if len(inputs) != len(program.inputs):
        raise VerifyError(f"{program.name} takes {len(program.inputs)} inputs, got {len(inputs)}")
    memory: dict[str, Memory] = {}
    for b in program.buffers():
        span = max(1, b.type.span)
        if b.name not in memory or memory[b.name].data.size < span:
            memory[b.name] = Memory(poison(span, element(b.type.dtype, widen)))
    for b, given in zip(program.inputs, inputs, strict=True):
        value = np.asarray(given)
        fits = value.dtype == b.type.dtype.numpy or (widen and b.type.dtype.is_float)
        if value.shape != b.type.shape or not fits:
            found = f"{value.dtype}{list(value.shape)}"
            raise VerifyError(f"input {b.name} of {program.name} is {b.type}, got {found}")
        logical(memory[b.name], b.type)[...] = value
    return memory


def as_tensor(array: np.ndarray) -> torch.Tensor:
    """A torch tensor over the same memory; what is NumPy's by ml_dtypes passes as its bits."""
    dtype = BY_BITS.get(array.dtype)
    if dtype is not None:
        return torch.from_numpy(array.view(f"i{dtype.itemsize}")).view(dtype)
    return torch.from_numpy(array)


def as_array(tensor: torch.Tensor) -> np.ndarray:
    """A NumPy array over the memory of a torch tensor."""
    bits = {1: torch.int8, 2: torch.int16}.get(tensor.itemsize)
    known = next((d for d, dtype in BY_BITS.items() if dtype == tensor.dtype), None)
    if bits is None or known is None:
        return tensor.numpy()
    return tensor.view(bits).numpy().view(known)


def _tensor(memory: Memory, buffer: Buffer) -> torch.Tensor:
    return as_tensor(memory.data).as_strided(buffer.type.shape, buffer.type.layout)


def run_call(call: Call, memory: dict[str, Memory]) -> None:
    """Run a library call through torch: it reads and writes the memory of its buffers."""
    tensors = [_tensor(memory[b.name], b) for b in call.inputs]
    args, keywords = call.arguments.bind(tensors, torch_object)
    result = operator(call.target)(*args, **keywords)
    results = list(result) if isinstance(result, list | tuple) else [result]
    if len(results) < len(call.outputs):
        raise VerifyError(f"call of {call.target} gives {len(results)} results")
    for buffer, value in zip(call.outputs, results, strict=False):
        if tuple(value.shape) != buffer.type.shape:
            found = list(value.shape)
            raise VerifyError(f"call of {call.target} gives {buffer.name} the shape {found}")
        _tensor(memory[buffer.name], buffer).copy_(value)


def both(a: Any, b: Any) -> Any:
    """The conjunction of two masks; None holds everywhere."""
    return b if a is None else a if b is None else np.logical_and(a, b)


def repeats(address: Any) -> bool:
    """Whether a value occurs twice."""
    flat = address.ravel()
    return not (flat[1:] > flat[:-1]).all() and np.unique(flat).size < flat.size
