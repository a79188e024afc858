"""Rows that resize the last axes, one axis at a time, by exact rational positions.

nearest: out[i] = x[i * n // m]            n is the length read, m the length made
linear:  out[i] = x[at] * (1 - share) + x[at + 1] * share
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.core.node import Node
from weft.frontend.aten.pooling import pooled
from weft.frontend.aten.table import Row, require, rows
from weft.frontend.aten.windows import Extents, Window
from weft.scalar.ops import add, apply, constant, floordiv, floormod, maximum, minimum
from weft.tensor.build import Tensor, affine, along, cast, index_of, total

Scale = float | None


def resized(x: Tensor, size: Extents, scales: tuple[Scale, ...]) -> list[tuple[int, int, int]]:
    """(axis, length read, length made) of each axis; positions must follow from the lengths."""
    axes = list(zip(range(2, x.rank), x.shape[2:], size, strict=True))
    for (_, n, m), scale in zip(axes, scales or (None,) * len(axes), strict=True):
        require(scale is None or scale * n == m, "a scale that gives a part of an element")
    return axes


def nearest(x: Tensor, size: Extents, *scales: Scale) -> Tensor:
    for axis, n, m in resized(x, size, scales):
        require(m % n == 0 or rounds_down(n, m), "rounding picks another neighbour")
        x = along(x, axis, m, apply(floordiv, affine({axis: n}), constant(m)))
    return x


def rounds_down(n: int, m: int) -> bool:
    """Whether torch's f32 arithmetic picks i * n // m everywhere."""
    i = np.arange(m)
    picked = np.minimum((i * np.float32(n / m)).astype(np.float32).astype(np.int64), n - 1)
    return bool((picked == i * n // m).all())


def nearest_backward(g: Tensor, size: Extents, made_from: Extents, *scales: Scale) -> Tensor:
    """Each element sums the gradients of its copies."""
    pairs = list(zip(g.shape[2:], made_from[2:], strict=True))
    require(all(n and m % n == 0 for m, n in pairs), "a scale that is not a whole number")
    times = [m // n for m, n in pairs]
    windows, taps = pooled(g, Window.of(times, times, 0, 1), False, 0)
    return total(windows, taps)


def linear(x: Tensor, size: Extents, align_corners: bool, *scales: Scale) -> Tensor:
    require(x.dtype.is_float, "interpolation of integers")
    for axis, n, m in resized(x, size, scales):
        x = linear_along(x, axis, n, m, align_corners)
    return x


def linear_along(x: Tensor, axis: int, n: int, m: int, align_corners: bool) -> Tensor:
    """Output i is at (i + 1/2) n/m - 1/2 in x, or at i (n-1)/(m-1) with aligned corners."""
    if n == m:
        return x
    numerator, denominator = affine({axis: 2 * n}, n - m), 2 * m
    if align_corners:
        numerator, denominator = affine({axis: n - 1 if m > 1 else 0}), max(m - 1, 1)
    numerator = apply(maximum, numerator, constant(0))
    at: Node = apply(floordiv, numerator, constant(denominator))
    after = apply(minimum, apply(add, at, constant(1)), constant(n - 1))
    shape = [m if a == axis else 1 for a in range(x.rank)]
    rest = index_of(shape, apply(floormod, numerator, constant(denominator)))
    share = cast(rest, x.dtype) * (1 / denominator)
    return along(x, axis, m, at) * (1 - share) + along(x, axis, m, after) * share


RESIZING: dict[str, Callable[..., Any]] = {
    "upsample_nearest1d upsample_nearest2d upsample_nearest3d": nearest,
    "upsample_nearest1d_backward upsample_nearest2d_backward": nearest_backward,
    "upsample_nearest3d_backward": nearest_backward,
    "upsample_linear1d upsample_bilinear2d upsample_trilinear3d": linear,
}

ROWS: dict[str, Row] = rows("widened", RESIZING)
