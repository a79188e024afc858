"""Shapes and layout: what makes, reads and changes the shape of a tensor, or cuts and joins.

Shape(x)                           # (2, 3), Python numbers, also symbolic ones
Reshape(x, (0, -1))
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from onnx import TensorProto
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import has_static_value
from torch.nn import functional as F

from weft.onnx.rows.pointwise import is_text
from weft.onnx.table import op
from weft.onnx.types import NUMBERS, number, refuse, stored


@op("Shape", sizes=True)
def shape(x: Any, *, start: int = 0, end: int | None = None) -> tuple[int, ...]:
    return tuple(x.shape[start:end])


@op("Size", sizes=True)
def size(x: Any) -> int:
    return math.prod(x.shape)


def number_reshape(x: Any, wanted: Any, *, allowzero: int = 0) -> Any:
    flat = x if isinstance(x, tuple) else (x,)
    if wanted in ((-1,), (len(flat),), (0,) if isinstance(x, tuple) else None):
        return flat
    return flat[0] if wanted == () and len(flat) == 1 else NotImplemented


@op("Reshape", wants=(1,), numbers=number_reshape)
def reshape(x: Any, shape: tuple[int, ...], *, allowzero: int = 0) -> Any:
    kept = shape if allowzero else [x.shape[i] if n == 0 else n for i, n in enumerate(shape)]
    return x.reshape(tuple(kept))


@op("Flatten")
def flatten(x: Tensor, *, axis: int = 1) -> Tensor:
    axis = axis + x.dim() if axis < 0 else axis
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


def number_squeeze(x: Any, axes: Any = None) -> Any:
    return x[0] if isinstance(x, tuple) and len(x) == 1 else NotImplemented


@op("Squeeze", wants=(1,), numbers=number_squeeze)
def squeeze(x: Any, axes: tuple[int, ...] | None = None) -> Any:
    rank = len(x.shape)
    chosen = {a % rank for a in axes} if axes is not None else None
    kept = [n for i, n in enumerate(x.shape) if (n != 1 if chosen is None else i not in chosen)]
    if chosen is not None and any(x.shape[a] != 1 for a in chosen):
        refuse(f"sizes other than 1 cannot be squeezed: axes {axes} of {list(x.shape)}")
    return x.reshape(kept)


def number_unsqueeze(x: Any, axes: Any) -> Any:
    return (x,) if not isinstance(x, tuple) and axes in ((0,), (-1,), 0) else NotImplemented


@op("Unsqueeze", wants=(1,), numbers=number_unsqueeze)
def unsqueeze(x: Any, axes: tuple[int, ...] | int) -> Any:
    axes = axes if isinstance(axes, tuple) else (axes,)
    rank = len(x.shape) + len(axes)
    if len({a % rank for a in axes}) != len(axes):
        refuse(f"axes {axes} are not of {len(axes)} different places")
    for axis in sorted([a % rank for a in axes]):
        x = x[(slice(None),) * axis + (None,)]
    return x


@op("Transpose")
def transpose(x: Any, *, perm: tuple[int, ...] | None = None) -> Any:
    perm = perm if perm is not None else tuple(reversed(range(len(x.shape))))
    return x.transpose(perm) if is_text(x) else x.permute(perm)


def number_concat(*inputs: Any, axis: int = 0) -> Any:
    if not all(isinstance(x, tuple) for x in inputs):
        return NotImplemented
    return tuple([n for x in inputs for n in x])


@op("Concat", numbers=number_concat)
def concat(*inputs: Any, axis: int = 1) -> Any:
    if is_text(inputs[0]):
        return np.concatenate(inputs, axis)
    return torch.cat(inputs, axis)


def number_slice(x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    if not isinstance(x, tuple) or len(starts) != 1:
        return NotImplemented
    return x[starts[0] : ends[0] : steps[0] if steps else 1]


def backwards(start: int, end: int, size: Any) -> tuple[int, int]:
    """First position and the one behind the last, within the axis, as for a range that falls."""
    start, end = (v + size if v < 0 else v for v in (start, end))
    start = min(max(start, -1), size - 1)
    return start, min(max(end, -1), start)


@op("Slice", wants=(1, 2, 3, 4), numbers=number_slice)
def slice_(x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    axes = axes if axes is not None else tuple(range(len(starts)))
    for i, axis in enumerate(axes):
        step = steps[i] if steps is not None else 1
        axis = axis % len(x.shape)
        before = (slice(None),) * axis
        if step > 0:  # as in Python, but for symbolic ends
            end = ends[i] if not isinstance(ends[i], int) or ends[i] < 2**62 else None
            x = x[(*before, slice(starts[i], end, step))]
            continue
        start, end = backwards(starts[i], ends[i], x.shape[axis])
        x = (
            x.index_select(axis, torch.arange(start, end, step, device=x.device))
            if not is_text(x)
            else x[(*before, list(range(start, end, step)))]
        )
    return x


def number_split(
    x: Any,
    split: Any = None,
    *,
    axis: int = 0,
    num_outputs: int | None = None,
    outputs: int = 1,
) -> Any:
    if not isinstance(x, tuple):
        return NotImplemented
    part = -(-len(x) // (num_outputs or outputs))
    sizes = split or [part] * (num_outputs or outputs)
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return [x[end - size : end] for end, size in zip(ends, sizes, strict=True)]


@op("Split", wants=(1,), numbers=number_split)
def split(
    x: Any,
    split: Any = None,
    *,
    axis: int = 0,
    num_outputs: int | None = None,
    outputs: int = 1,
) -> Any:
    if split is None:
        count = num_outputs or outputs
        part = -(-x.shape[axis] // count)
        full = [part] * (count - 1)
        split = (*full, x.shape[axis] - part * (count - 1))
    return torch.split(x, list(split), axis)


def number_expand(x: Any, wanted: Any) -> Any:
    one = x[0] if isinstance(x, tuple) and len(x) == 1 else x
    return NotImplemented if isinstance(one, tuple) else repeated(one, wanted)


def repeated(value: Any, shape: Any) -> Any:
    """A list of few elements as numbers: what is longer decides no shape."""
    few = len(shape) == 1 and has_static_value(shape[0]) and shape[0] <= NUMBERS
    return (value,) * shape[0] if few else NotImplemented


@op("Expand", wants=(1,), numbers=number_expand)
def expand(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    return x.expand(torch.broadcast_shapes(tuple(x.shape), tuple(shape)))


@op("Tile", wants=(1, 2))
def tile(x: Tensor, repeats: Any, axis: int | None = None) -> Tensor:
    if axis is not None:  # opset 1: `repeats` copies along one axis
        repeats = [repeats if i == axis % x.dim() else 1 for i in range(x.dim())]
    return x.repeat(tuple(repeats))


ZERO = TensorProto.FLOAT, (0.0,)


def fill_of(value: Any) -> Any:
    return value[1][0] if isinstance(value[1], tuple) else value[1]


def number_fill(shape: Any, *, value: Any = ZERO) -> Any:
    if value[0] != TensorProto.INT64 or not isinstance(shape, tuple):
        return NotImplemented
    return repeated(fill_of(value), shape)


@op("ConstantOfShape", wants=(0,), literals=("value",), numbers=number_fill)
def constant_of_shape(shape: tuple[int, ...], *, value: Any = ZERO) -> Tensor:
    """`value` is an element type and the one element."""
    return torch.full(tuple(shape), fill_of(value), dtype=stored(value[0]))


def number_range(start: Any, limit: Any, delta: Any, *, types: Any, stash_type: int = 1) -> Any:
    whole = all(isinstance(v, int) and has_static_value(v) for v in (start, limit, delta))
    whole = whole and types[1][0] == TensorProto.INT64
    found = range(start, limit, delta) if whole else range(NUMBERS + 1)
    return tuple(found) if len(found) <= NUMBERS else NotImplemented


@op("Range", wants=(0, 1, 2), numbers=number_range)
def range_(start: Any, limit: Any, delta: Any, *, types: Any, stash_type: int = 1) -> Tensor:
    """`start`, and so on by `delta`, before `limit`; narrow floats are counted in a wider type."""
    first, last, step = map(number, (start, limit, delta))
    if types[1][0] is None and any(isinstance(v, float) for v in (first, last, step)):
        refuse("the type of the range cannot be inferred")
    dtype = stored(types[1][0] or TensorProto.INT64)
    if not dtype.is_floating_point:
        if isinstance(last, int) and (last - first) * step < 0:
            last = first
        return torch.arange(first, last, step, dtype=dtype)
    count = max(math.ceil((last - first) / step), 0)
    wide = dtype if dtype is torch.float64 else stored(stash_type)
    return (torch.arange(count, dtype=wide) * step + first).to(dtype)


@op("EyeLike")
def eye_like(x: Tensor, *, dtype: int | None = None, k: int = 0) -> Tensor:
    kind = stored(dtype) if dtype else x.dtype
    rows, columns = (torch.arange(n, device=x.device) for n in x.shape)
    return (columns[None, :] - rows[:, None] == k).to(kind)


@op("Trilu", wants=(1,))
def trilu(x: Tensor, k: Any = 0, *, upper: int = 1) -> Tensor:
    k = number(k)
    return torch.triu(x, k) if upper else torch.tril(x, k)


@op("Pad", since=1)
def pad_1(
    x: Tensor, *, paddings: Any = None, pads: Any = None, mode: str = "constant", value: float = 0.0
) -> Tensor:
    return pad(x, pads if pads is not None else paddings, value, mode=mode)


@op("Pad", since=11, wants=(1, 3), literals=(2,), either=(2,))
def pad(x: Any, pads: Any, value: Any = None, axes: Any = None, *, mode: str = "constant") -> Any:
    """By pads (all at the start, then all at the end), of all axes or of `axes`."""
    rank, value = x.dim(), number(value)
    if isinstance(value, int) and abs(value) > 2**53:  # which torch would round to a float
        value = torch.tensor(value, dtype=x.dtype, device=x.device)
    axes = tuple(range(rank)) if axes is None else tuple(a % rank for a in axes)
    for axis, before, after in zip(axes, pads, pads[len(axes) :], strict=False):
        if (before, after) == (0, 0):
            continue
        x = pad_axis(x, axis, before, after, mode, value)
    return x


def pad_axis(x: Tensor, axis: int, before: int, after: int, mode: str, value: Any) -> Tensor:
    size = x.shape[axis]
    if mode == "constant":
        return constant_pad(x, axis, before, after, value)
    at = torch.arange(-before, size + after, device=x.device)
    if mode == "edge":
        at = at.clamp(0, size - 1)
    elif mode == "wrap":
        at = torch.remainder(at, size)
    else:  # reflect: there and back, as often as it takes
        period = max(2 * (size - 1), 1)
        at = torch.remainder(at, period)
        at = torch.where(at < size, at, period - at)
    return x.index_select(axis, at)


def constant_pad(x: Tensor, axis: int, before: int, after: int, value: Any) -> Tensor:
    pads = [0, 0] * (x.dim() - 1 - axis) + [before, after]
    if x.dtype is torch.bool:
        return constant_pad(x.to(torch.uint8), axis, before, after, value).to(torch.bool)
    if not isinstance(value, Tensor):
        return F.pad(x, pads, value=0 if value is None else value)
    inside = F.pad(torch.zeros_like(x, dtype=torch.bool), pads, value=True)
    return torch.where(inside, value.reshape(()), F.pad(x, pads))


@op("DepthToSpace")
def depth_to_space(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    n, c, h, w = x.shape
    deep = c // blocksize**2
    if mode == "DCR":
        parts = x.reshape(n, blocksize, blocksize, deep, h, w).permute(0, 3, 4, 1, 5, 2)
    else:
        parts = x.reshape(n, deep, blocksize, blocksize, h, w).permute(0, 1, 4, 2, 5, 3)
    return parts.reshape(n, deep, h * blocksize, w * blocksize)


@op("SpaceToDepth")
def space_to_depth(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    n, c, h, w = x.shape
    parts = x.reshape(n, c, h // blocksize, blocksize, w // blocksize, blocksize)
    parts = parts.permute(*((0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)))
    return parts.reshape(n, c * blocksize**2, h // blocksize, w // blocksize)


@op("CenterCropPad", wants=(1,))
def center_crop_pad(x: Tensor, shape: tuple[int, ...], *, axes: Any = None) -> Tensor:
    """Cuts or pads each axis to a size, half of it (rounded down) at its start."""
    axes = tuple(range(x.dim())) if axes is None else tuple(a % x.dim() for a in axes)
    for axis, wanted in zip(axes, shape, strict=True):
        size = x.shape[axis]
        if wanted < size:
            x = x.narrow(axis, (size - wanted) // 2, wanted)
        elif wanted > size:
            before = (wanted - size) // 2
            x = constant_pad(x, axis, before, wanted - size - before, None)
    return x
