"""Rows of convolution and pooling: a view of windows, multiplied or folded.

convolution: out[n, o, y, x] = sum over c, v, u of x[n, c, y*s + v*d - p, ...] * w[o, c, v, u]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.core.node import Node
from weft.core.types import DType
from weft.frontend.aten.table import Row, per_axis, require, rows
from weft.scalar.monoid import MAX, MONOIDS
from weft.scalar.ops import (
    add,
    apply,
    constant,
    eq,
    floordiv,
    floormod,
    lt,
    maximum,
    minimum,
    multiply,
    subtract,
)
from weft.tensor.build import (
    Number,
    Tensor,
    affine,
    all_of,
    cast,
    index_of,
    reduce,
    reshape,
    total,
    unsqueeze,
    view,
    within,
)
from weft.tensor.build import (
    floordiv as divide_down,
)
from weft.tensor.build import (
    floormod as remainder,
)
from weft.tensor.ops import position

Extents = Sequence[int]


# --- convolution --------------------------------------------------------------------------------


def channel(out_channel: int, inner: int, group_out: int, group_in: int) -> Node:
    """(o // group_out) * group_in + c: the input channel of output axis o's group."""
    group = apply(floordiv, position(out_channel), constant(group_out))
    return apply(add, apply(multiply, group, constant(group_in)), position(inner))


def patches(
    x: Tensor,
    shape: Extents,
    source: Node,
    taps: Extents,
    stride: Extents,
    pad: Extents,
    dilation: Extents,
) -> Tensor:
    """x[n, source, y*stride + tap*dilation - pad, ...]; zero outside. `taps` are the tap axes."""
    index = [position(0), source]
    for j, tap in enumerate(taps):
        index.append(affine({2 + j: stride[j], tap: dilation[j]}, -pad[j]))
    valid = all_of([within(i, n) for i, n in zip(index[2:], x.shape[2:], strict=True)])
    return view(x, shape, index, valid)


def spread_patches(
    x: Tensor,
    shape: Extents,
    source: Node,
    taps: Extents,
    stride: Extents,
    pad: Extents,
    dilation: Extents,
) -> Tensor:
    """The transpose of `patches`: x[n, source, (y + pad - tap*dilation) / stride] where that is whole."""
    index, conditions = [position(0), source], []
    for j, tap in enumerate(taps):
        back = affine({2 + j: 1, tap: -dilation[j]}, pad[j])
        at = apply(floordiv, back, constant(stride[j]))
        whole = apply(eq, apply(floormod, back, constant(stride[j])), constant(0))
        index.append(at)
        conditions += [within(at, x.shape[2 + j]), whole]
    return view(x, shape, index, all_of(conditions))


def convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Extents,
    padding: Extents,
    dilation: Extents,
    transposed: bool,
    output_padding: Extents,
    groups: int,
) -> Tensor:
    if x.rank == weight.rank - 1:  # no batch
        one = unsqueeze(x, 0)
        rest = (stride, padding, dilation, transposed, output_padding, groups)
        return reshape(one_ := convolution(one, weight, bias, *rest), one_.shape[1:])
    n = x.rank - 2
    stride, padding, dilation, extra = (
        per_axis(p, n) for p in (stride, padding, dilation, output_padding)
    )
    size, kernel = x.shape[2:], weight.shape[2:]
    if transposed:
        out_channels, group_in = weight.shape[1] * groups, weight.shape[0] // groups
        out = [
            (size[i] - 1) * stride[i]
            - 2 * padding[i]
            + dilation[i] * (kernel[i] - 1)
            + extra[i]
            + 1
            for i in range(n)
        ]
    else:
        out_channels, group_in = weight.shape[0], weight.shape[1]
        out = [
            (size[i] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1
            for i in range(n)
        ]
    shape = (x.shape[0], out_channels, *out, group_in, *kernel)
    group_out = out_channels // groups
    taps = range(3 + n, 3 + 2 * n)
    source = channel(1, 2 + n, group_out, group_in)
    read = spread_patches if transposed else patches
    windows = read(x, shape, source, taps, stride, padding, dilation)
    tap_index = [position(t) for t in taps]
    local = apply(floormod, position(1), constant(max(group_out, 1)))
    chosen = (
        [source, local, *tap_index] if transposed else [position(1), position(2 + n), *tap_index]
    )
    sums = total(windows * view(weight, shape, chosen), range(2 + n, 3 + 2 * n))
    return sums if bias is None else sums + reshape(bias, (-1, *(1,) * n))


# --- pooling ------------------------------------------------------------------------------------


def pooled_size(n: int, kernel: int, stride: int, pad: int, dilation: int, ceil_mode: bool) -> int:
    """torch's output length: a window that starts past the padded end is dropped."""
    span = n + 2 * pad - dilation * (kernel - 1) - 1
    out = -(-span // stride) + 1 if ceil_mode else span // stride + 1
    return out - 1 if ceil_mode and (out - 1) * stride >= n + pad else out


def pooling_windows(
    x: Tensor,
    kernel: Extents,
    stride: Extents,
    pad: Extents,
    dilation: Extents,
    ceil_mode: bool,
    fill: Number,
) -> Tensor:
    """[..., out, kernel]: the last axes of x as windows."""
    n, lead = len(kernel), x.rank - len(kernel)
    out = [
        pooled_size(x.shape[lead + i], kernel[i], stride[i], pad[i], dilation[i], ceil_mode)
        for i in range(n)
    ]
    index = [position(a) for a in range(lead)]
    index += [affine({lead + i: stride[i], x.rank + i: dilation[i]}, -pad[i]) for i in range(n)]
    valid = all_of([within(i, m) for i, m in zip(index[lead:], x.shape[lead:], strict=True)])
    return view(x, (*x.shape[:lead], *out, *kernel), index, valid, fill)


def least(dtype: DType) -> Number:
    return -math.inf if dtype.is_float else int(np.iinfo(dtype.numpy).min)


def max_pool(n: int) -> Callable[..., tuple[Tensor, Tensor]]:
    def row(
        x: Tensor,
        kernel: Extents,
        stride: Extents = (),
        padding: Extents = 0,  # type: ignore[assignment]
        dilation: Extents = 1,  # type: ignore[assignment]
        ceil_mode: bool = False,
    ) -> tuple[Tensor, Tensor]:
        kernel, pad, step = per_axis(kernel, n), per_axis(padding, n), per_axis(dilation, n)
        stride = per_axis(stride or kernel, n)
        windows = pooling_windows(x, kernel, stride, pad, step, ceil_mode, least(x.dtype))
        taps = range(x.rank, x.rank + n)
        tap = reduce(MONOIDS["argmax"], windows, taps)  # row-major position in the window
        lead, flat = x.rank - n, None
        for i in reversed(range(n)):
            start = index_of(tap.shape, affine({lead + i: stride[i]}, -pad[i]))
            at = start + remainder(tap, kernel[i]) * step[i]
            tap = divide_down(tap, kernel[i])
            size = math.prod(x.shape[lead + i + 1 :])
            flat = at if flat is None else flat + at * size
        assert flat is not None
        return reduce(MAX, windows, taps), flat

    return row


def avg_pool(n: int) -> Callable[..., Tensor]:
    def row(
        x: Tensor,
        kernel: Extents,
        stride: Extents = (),
        padding: Extents = 0,  # type: ignore[assignment]
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Tensor:
        kernel, pad = per_axis(kernel, n), per_axis(padding, n)
        stride = per_axis(stride or kernel, n)
        windows = pooling_windows(x, kernel, stride, pad, (1,) * n, ceil_mode, 0)
        sums = total(windows, range(x.rank, x.rank + n))
        if divisor_override is not None:
            return sums * (1 / divisor_override)
        count: Tensor | Number = 1
        for i, m in enumerate(x.shape[x.rank - n :]):
            axis = x.rank - n + i
            margin = pad[i] if count_include_pad else 0
            start = affine({axis: stride[i]}, -pad[i])
            end = apply(
                minimum, affine({axis: stride[i]}, kernel[i] - pad[i]), constant(m + margin)
            )
            first = apply(maximum, start, constant(-margin))
            count = index_of(sums.shape, apply(subtract, end, first)) * count
        assert isinstance(count, Tensor)
        return sums / cast(count, sums.dtype)

    return row


def adaptive_windows(x: Tensor, out: Extents, fill: Number) -> tuple[Tensor, list[Node]]:
    """Windows from floor(i*n/out) to ceil((i+1)*n/out), and their lengths."""
    n, lead = len(out), x.rank - len(out)
    index, lengths, conditions = [position(a) for a in range(lead)], [], []
    longest: list[int] = []
    for i, (m, k) in enumerate(zip(x.shape[lead:], out, strict=True)):
        start = apply(floordiv, affine({lead + i: m}), constant(k))
        end = apply(floordiv, affine({lead + i: m}, m + k - 1), constant(k))
        at = apply(add, start, position(x.rank + i))
        index.append(at)
        lengths.append(apply(subtract, end, start))
        conditions.append(apply(lt, at, end))
        longest.append(max((-(-(j + 1) * m // k) - j * m // k for j in range(k)), default=1))
    shape = (*x.shape[:lead], *out, *longest)
    valid = all_of(conditions)
    if all(m % k == 0 for m, k in zip(x.shape[lead:], out, strict=True)):
        valid = None
        lengths = [constant(m // k) for m, k in zip(x.shape[lead:], out, strict=True)]
    return view(x, shape, index, valid, fill), lengths


def adaptive_avg_pool(x: Tensor, size: Extents) -> Tensor:
    require(0 not in size and 0 not in x.shape, "adaptive pooling of or to nothing")
    out = [x.shape[x.rank - len(size) + i] if s == -1 else s for i, s in enumerate(size)]
    windows, lengths = adaptive_windows(x, out, 0)
    sums = total(windows, range(x.rank, x.rank + len(out)))
    count = lengths[0]
    for more in lengths[1:]:
        count = apply(multiply, count, more)
    return sums / cast(index_of(sums.shape, count), sums.dtype)


WINDOWS: dict[str, Callable[..., Any]] = {
    "convolution": convolution,
    "max_pool2d_with_indices": max_pool(2),
    "max_pool3d_with_indices": max_pool(3),
    "max_pool2d": lambda *args: max_pool(2)(*args)[0],
    "avg_pool1d": avg_pool(1),
    "avg_pool2d": avg_pool(2),
    "avg_pool3d": avg_pool(3),
    "_adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d": (
        adaptive_avg_pool
    ),
}

ROWS: dict[str, Row] = rows("widened", WINDOWS)
