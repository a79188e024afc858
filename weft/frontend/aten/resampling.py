"""Rows of interpolation, and their gradients: an axis at a time, a weighted sum over a few taps.

out[o] = sum over k of weight(o, k) * x[place(o, k)], one axis of n places becoming one of m
back[i] = sum over j of g[first(i) + j] * weight(of that, i): of the few that read it, no scatter

Places are scaled in floats as ATen does it (UpSample.h); where sizes are numbers, `map-floats`
finds quotients of integers for them. Keys' cubic convolution has a = -0.75, -0.5 with antialiasing.
"""

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import numpy as np

from weft.core.node import Node, bottom_up, make
from weft.core.types import DType, Symbolic, f32, i64
from weft.frontend.aten.table import Row, require, rows
from weft.scalar.ops import absolute, apply, constant, eq, fma, maximum, minimum, sin, where
from weft.tensor.build import (
    Extents,
    Tensor,
    affine,
    broadcast_in,
    cast,
    full,
    index_of,
    iota,
    literal,
    total,
    view,
    within,
)
from weft.tensor.ops import Gather, position, positions

Reads = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # of outputs, taps: places, weights
Filter = Callable[[Tensor], Tensor]  # of distances
Kind = Callable[..., "Taps"]  # of whether corners are aligned, n, m, a scale or None, a dtype
UNROLLED = 4  # so many taps are terms of a sum, more are a loop


@dataclass(frozen=True)
class Taps:
    """An axis of n places as m sums over `count` taps.

    reads(o, k) has the place that tap k of output o reads, and its weight: maps of o and k, i64 of
    one shape. With `start`, tap k reads start(o) + k, up to `end`, and any k may be asked for.
    `weighted`: not all weights are 1. `corners`: first and last places are those of the outputs.
    """

    n: int
    m: int
    count: int
    reads: Reads
    start: Callable[[Tensor], Tensor] | None = None
    end: Callable[[Tensor], Tensor] | None = None
    weighted: bool = True
    corners: bool = False


# --- taps of each kind of interpolation -----------------------------------------------------------


def scaled(n: int, m: int, align: bool, scale: float | None, dtype: DType) -> Tensor:
    """Places of the input per place of the output."""
    if align:
        if not isinstance(m, Symbolic) and m == 1:
            return literal(0.0, dtype)
        return literal(n - 1, dtype) / literal(m - 1, dtype)
    if scale is not None and scale > 0:
        return literal(1.0 / scale, dtype)
    return literal(n, dtype) / literal(m, dtype)


def nearest(half: float, back: bool, n: int, m: int, scale: float | None, dtype: DType) -> Taps:
    """The place below; `half` of a place to the right if exact. All floats are f32 here.

    ATen's gradient, and its kernels for channels_last, have shortcuts whatever the scale is.
    """
    by = scaled(n, m, False, scale, f32)

    def place(o: Tensor, short: bool) -> Tensor:
        found = minimum(cast((cast(o, f32) + half) * by, i64), literal(n - 1, i64))
        return chosen(m, n * 2, o // 2, chosen(m, n, o, found)) if short and not half else found

    def reads(o: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return place(o, back), full(o.shape, 1, dtype)

    if not back and not isinstance(n * m, Symbolic):
        plain, short = (values(place(iota((m,), 0), s)) for s in (False, True))
        require((plain == short).all(), "its places depend on the layout")
    return Taps(n, m, 1, reads, weighted=False)


def chosen(x: int, y: int, same: Tensor, other: Tensor) -> Tensor:
    """`same` where two sizes are equal, else `other`."""
    if isinstance(x, Symbolic) or isinstance(y, Symbolic):
        return where(index_of(same.shape, apply(eq, constant(x), constant(y))), same, other)
    return same if x == y else other


def source(o: Tensor, by: Tensor, align: bool) -> Tensor:
    """Where an output is among the places of the input."""
    at = cast(o, by.dtype)
    return at * by if align else fma(by, at + 0.5, -0.5)


def below(at: Tensor, n: int, least: int = 0) -> tuple[Tensor, Tensor]:
    """The place below, from `least` on, and how far beyond it: from 0 to 1."""
    place = cast(at - float(least), i64) + least if least else cast(at, i64)
    place = minimum(place, literal(n - 1, i64))
    return place, minimum(maximum(at - cast(place, at.dtype), 0.0), 1.0)


def linear(align: bool, n: int, m: int, scale: float | None, dtype: DType) -> Taps:
    by = scaled(n, m, align, scale, dtype)

    def reads(o: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        place, beyond = below(maximum(source(o, by, align), 0.0), n)
        zero = full(o.shape, 0, dtype)
        place, beyond = chosen(m, n, o, place), chosen(m, n, zero, beyond)
        weight = where(eq(k, 0), 1.0 - beyond, beyond)
        return minimum(place + k, literal(n - 1, i64)), weight

    return Taps(n, m, 2, reads, corners=align)


def near(x: Tensor, a: float) -> Tensor:
    """Keys' cubic from 0 to 1."""
    return fma(fma(x, a + 2, -(a + 3)) * x, x, 1.0)


def far(x: Tensor, a: float) -> Tensor:
    """Keys' cubic from 1 to 2."""
    return fma(fma(fma(x, a, -5 * a), x, 8 * a), x, -4 * a)


def cubic(align: bool, n: int, m: int, scale: float | None, dtype: DType) -> Taps:
    by = scaled(n, m, align, scale, dtype)

    def reads(o: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        place, beyond = below(source(o, by, align), n, -1)
        place = minimum(maximum(place + k - 1, 0), literal(n - 1, i64))
        rest = 1.0 - beyond
        right = where(eq(k, 2), near(rest, -0.75), far(rest + 1.0, -0.75))
        left = where(eq(k, 0), far(beyond + 1.0, -0.75), near(beyond, -0.75))
        return place, where(k < 2, left, right)

    return Taps(n, m, 4, reads, corners=align)


def triangle(x: Tensor) -> Tensor:
    return maximum(1.0 - x, 0.0)


def keys(x: Tensor) -> Tensor:
    return where(x < 1.0, near(x, -0.5), where(x < 2.0, far(x, -0.5), 0.0))


def lanczos(x: Tensor) -> Tensor:
    angle = x * math.pi
    whole = 3.0 * sin(angle) * sin(angle / 3.0) / where(eq(x, 0.0), 1.0, angle * angle)
    return where(eq(x, 0.0), 1.0, where(x < 3.0, whole, 0.0))


def smoothed(
    shape: Filter, reach: int, align: bool, n: int, m: int, scale: float | None, dtype: DType
) -> Taps:
    """A filter that reaches so far, as wide as an output is where that is wider than a place."""
    require(not isinstance(n * m, Symbolic), "how many taps it has depends on a size")
    by = scaled(n, m, align, scale, dtype)
    wide = max(float(values(by)), 1.0)
    support = reach * wide

    def start(o: Tensor) -> Tensor:
        return maximum(cast((cast(o, dtype) + 0.5) * by - support + 0.5, i64), 0)

    def end(o: Tensor) -> Tensor:
        return minimum(cast((cast(o, dtype) + 0.5) * by + support + 0.5, i64), n)

    def weight(o: Tensor, k: Tensor) -> Tensor:
        place = start(o) + k
        beyond = cast(place, dtype) - (cast(o, dtype) + 0.5) * by + 0.5
        inside = (k >= 0) & (place < end(o))
        return where(inside, shape(absolute(beyond * (1 / wide))), 0.0)

    count = math.ceil(support) * 2 + 1
    sums = total(weight(iota((m, count), 0), iota((m, count), 1)), (1,))

    def reads(o: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        inside = minimum(maximum(o, 0), m - 1)
        whole = Tensor(make(Gather((0,)), sums.node, inside.node))
        return minimum(start(o) + k, n - 1), weight(o, k) / where(eq(whole, 0.0), 1.0, whole)

    return Taps(n, m, count, reads, start, end)


# --- one axis -------------------------------------------------------------------------------------


def read(x: Tensor, axis: int, place: Tensor) -> Tensor:
    """x at places [m] or [m, taps] of an axis: taps are a last axis of the result."""
    m, *taps = place.shape
    shape = [*(m if a == axis else n for a, n in enumerate(x.shape)), *taps]
    whole = broadcast_in(place, shape, (axis, x.rank)[: place.rank])
    rest = tuple(a for a in range(x.rank) if a != axis)
    return Tensor(make(Gather((axis,), rest), x.node, whole.node))


def resampled(x: Tensor, axis: int, taps: Taps) -> Tensor:
    m, count = taps.m, taps.count
    if isinstance(count, Symbolic) or count > UNROLLED:
        o, k = (iota((m, count), a) for a in range(2))
        return total(weighted(x, axis, taps, o, k), (x.rank,))
    o = iota((m,), 0)
    parts = [weighted(x, axis, taps, o, full((m,), k, i64)) for k in range(count)]
    return reduce(operator.add, parts)


def weighted(x: Tensor, axis: int, taps: Taps, o: Tensor, k: Tensor) -> Tensor:
    """What taps [m] or [m, count] read of x, by their weights."""
    place, weight = taps.reads(o, k)
    out = read(x, axis, place)
    axes = (axis, x.rank)[: o.rank]
    if taps.weighted:
        out = out * broadcast_in(weight, out.shape, axes)
    if taps.start is not None and taps.end is not None:  # beyond it nothing is read, be it infinite
        inside = broadcast_in(taps.start(o) + k < taps.end(o), out.shape, axes)
        out = where(inside, out, 0.0)
    return out


def returned(g: Tensor, axis: int, taps: Taps) -> Tensor:
    """The gradient of what was resampled, of that of the result."""
    first, count = readers(taps)
    n, rank = taps.n, g.rank
    shape = [*(n if a == axis else size for a, size in enumerate(g.shape)), count]
    index = list(positions(rank))
    index[axis] = apply("add", first(position(axis)), position(rank))
    windows = view(g, shape, index, within(index[axis], taps.m))
    o = apply("add", first(position(0)), position(1))
    weights = weighing(taps, index_of((n, count), o))
    known = not isinstance(n * taps.m, Symbolic)
    inside = values(index_of((n, count), within(o, taps.m))) if known else None
    told = values(weights)[inside] if known else np.zeros(1)
    if known and count == 1 and not taps.weighted:
        at = np.flatnonzero(inside & (values(weights) != 0))
        if len(at) == taps.m and len({*np.diff(at)}) == 1:
            return spaced(g, axis, n, int(at[0]), int(at[1] - at[0]))
    if not taps.weighted and (told == 1).all():
        return total(windows, (rank,))
    spread = broadcast_in(weights, shape, (axis, rank))
    products = windows * spread
    if not told.all():  # what weighs nothing passes nothing, not NaN of infinity
        products = where(eq(spread, 0.0), 0.0, products)
    return total(products, (rank,))


def spaced(g: Tensor, axis: int, n: int, first: int, step: int) -> Tensor:
    """g along an axis at every `step`-th of n places, from the first on, and zeros elsewhere."""
    index, shape = list(positions(g.rank)), [*g.shape]
    shape[axis], turn = n, apply("add", index[axis], constant(-first))
    index[axis] = apply("floordiv", turn, constant(step))
    on = apply(eq, apply("floormod", turn, constant(step)), constant(0))
    return view(g, shape, index, apply("and", within(index[axis], g.shape[axis]), on))


def weighing(taps: Taps, o: Tensor) -> Tensor:
    """How much outputs [n, count] read of each of n places."""
    i = iota(o.shape, 0)
    if taps.start is not None:
        return taps.reads(o, i - taps.start(o))[1]
    found: Tensor | None = None
    for k in range(taps.count):
        place, weight = taps.reads(o, full(o.shape, k, i64))
        part = where(eq(place, i), weight, 0.0)
        found = part if found is None else found + part
    assert found is not None
    return found


def readers(taps: Taps) -> tuple[Callable[[Node], Node], int]:
    """first(i): so many outputs from there on have all that read place i."""
    n, m, wide = taps.n, taps.m, taps.count
    ends = taps.corners and not (n == 1 or m == 1)
    p, q = (m - 1, n - 1) if ends else (m, n)
    if isinstance(n * m, Symbolic):
        back = affine({}, 1 - wide - ends)

        def about(i: Node) -> Node:
            turn = apply("multiply", apply("add", apply("add", i, i), back), constant(p))
            return apply("add", apply("floordiv", turn, constant(2 * q)), constant(-2))

        return about, wide * p // q + 5
    low, high = np.full(n, m), np.full(n, -1)
    places, weights = map(values, taps.reads(iota((m, wide), 0), iota((m, wide), 1)))
    o, k = np.nonzero(weights)
    np.minimum.at(low, places[o, k], o)
    np.maximum.at(high, places[o, k], o)
    read, i = high >= 0, np.arange(n)
    by = math.gcd(p, q)
    p, q = p // by, q // by
    start = int((low * q - i * p)[read].min())
    count = int((high - (i * p + start) // q)[read].max()) + 1

    def exactly(i: Node) -> Node:
        turn = apply("add", apply("multiply", i, constant(p)), constant(start))
        return apply("floordiv", turn, constant(q))

    return exactly, count


def values(x: Tensor) -> Any:
    """The numbers of a tensor that is made of coordinates."""
    known = dict[Node, Any]()
    found = bottom_up(x.node, known, lambda n: n.op.evaluate(*(known[a] for a in n.args)))
    return np.broadcast_to(found, x.shape)


# --- rows -----------------------------------------------------------------------------------------


def interpolation(kind: Kind, aligns: bool, x: Tensor, size: Extents, *how: Any) -> Tensor:
    """`how`: whether corners are aligned, if that is asked, then a scale or None for each axis."""
    for axis, taps in reversed(each_axis(kind, aligns, False, x.dtype, x.shape, size, how)):
        x = resampled(x, axis, taps)
    return x


def interpolation_backward(
    kind: Kind, aligns: bool, g: Tensor, size: Extents, shape: Extents, *how: Any
) -> Tensor:
    if kind is cubic:  # ATen copies, whatever the scales are, but not in the forward pass
        pairs = [*zip(shape[-len(size) :], size, strict=True)]
        if all(n == m for n, m in pairs):
            return g
        told = not any(isinstance(n, Symbolic) for pair in pairs for n in pair)
        require(told or not any(how[1:]), "sizes that a scale may leave as they are are free")
    for axis, taps in each_axis(kind, aligns, True, g.dtype, shape, size, how):
        g = returned(g, axis, taps)
    return g


def each_axis(
    kind: Kind,
    aligns: bool,
    back: bool,
    dtype: DType,
    shape: Extents,
    size: Extents,
    how: Sequence[Any],
) -> list[tuple[int, Taps]]:
    """The axes that change; those that stay as long may be copies."""
    require(dtype.is_float or not (aligns or back), "integers are rounded as ATen does it")
    of = partial(kind, how[0] if aligns else back)
    lead, scales = len(shape) - len(size), how[1:] if aligns else how
    found: list[tuple[int, Taps]] = []
    for i, (n, m, scale) in enumerate(zip(shape[lead:], size, scales, strict=True)):
        taps = of(n, m, scale, dtype)
        if n != m or kind in (linear, cubic) or ((back or not aligns) and scale is not None):
            found.append((lead + i, taps))
    return found


below_it, exact = (partial(nearest, half) for half in (0.0, 0.5))
NAMES = {
    "upsample_nearest1d upsample_nearest2d upsample_nearest3d": (below_it, False),
    "_upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d": (exact, False),
    "upsample_linear1d upsample_bilinear2d upsample_trilinear3d": (linear, True),
    "upsample_bicubic2d": (cubic, True),
    "_upsample_bilinear2d_aa": (partial(smoothed, triangle, 1), True),
    "_upsample_bicubic2d_aa": (partial(smoothed, keys, 2), True),
    "_upsample_lanczos2d_aa": (partial(smoothed, lanczos, 3), True),
}
RESAMPLING = {
    **{names: partial(interpolation, *how) for names, how in NAMES.items()},
    **{
        " ".join(f"{name}_backward" for name in names.split()): partial(
            interpolation_backward, *how
        )
        for names, how in NAMES.items()
    },
}

ROWS: dict[str, Row] = rows("widened", RESAMPLING)
