"""Rows of adaptive and fractional pooling, and their gradients: bins of a length, in whole numbers.

bin o of m over n places is floor(o*n/m) .. ceil((o+1)*n/m); a place i is in the bins
floor(i*m/n) .. ceil((i+1)*m/n), so that a gradient pools over bins too, with n and m swapped
"""

import math
from functools import partial
from typing import Any

from weft.core.node import Node
from weft.core.types import Symbolic, at_least, i64, row_major
from weft.frontend.aten.indexing import read
from weft.frontend.aten.table import Row, require, rows
from weft.scalar.monoid import MAX, MONOIDS, SUM, lowest
from weft.scalar.ops import apply, constant, eq, ne, where
from weft.scalar.ops import maximum as largest
from weft.scalar.ops import minimum as least
from weft.tensor import build
from weft.tensor.build import Extents, Number, Tensor, all_of, index_of, total
from weft.tensor.ops import position, positions


def ends(o: Node, n: int, m: int) -> tuple[Node, Node]:
    """Where bin o begins and ends."""
    start = apply("multiply", o, constant(n))
    end = apply("add", start, constant(n + m - 1))
    return apply("floordiv", start, constant(m)), apply("floordiv", end, constant(m))


def longest(n: int, m: int) -> int:
    """The length of the longest of m bins."""
    if isinstance(n * m, Symbolic):
        return n // m + 2
    return max((-(-(o + 1) * n // m) - o * n // m for o in range(m)), default=0)


def bins(x: Tensor, size: Extents, fill: Number = 0) -> tuple[Tensor, range]:
    """[lead, size, taps]: the last axes of x by bins, `fill` beyond a bin; the axes of taps."""
    rank, lead = len(size), x.rank - len(size)
    index, valid, taps = list(positions(x.rank)), list[Node](), list[int]()
    for i, (n, m) in enumerate(zip(x.shape[lead:], size, strict=True)):
        start, end = ends(position(lead + i), n, m)
        index[lead + i] = apply("add", start, position(x.rank + i))
        valid.append(apply("lt", index[lead + i], end))
        taps.append(longest(n, m))
    shape = (*x.shape[:lead], *size, *taps)
    return build.view(x, shape, index, all_of(valid), fill), range(x.rank, x.rank + rank)


def counts(shape: Extents, size: Extents) -> Node:
    """How many places are in a bin, of positions [lead, size]."""
    lead, count = len(shape) - len(size), constant(1)
    for i, (n, m) in enumerate(zip(shape[lead:], size, strict=True)):
        start, end = ends(position(lead + i), n, m)
        count = apply("multiply", count, apply("subtract", end, start))
    return count


def divided(x: Tensor, shape: Extents, size: Extents) -> Tensor:
    return x / build.cast(index_of(x.shape, counts(shape, size)), x.dtype)


def average(x: Tensor, size: Extents) -> Tensor:
    require(x.dtype.is_float, "an average of integers")
    return divided(total(*bins(x, size)), x.shape, size)


def average_backward(rank: int, g: Tensor, x: Tensor) -> Tensor:
    lead = x.rank - rank
    return total(*bins(divided(g, x.shape, g.shape[lead:]), x.shape[lead:]))


def best(windows: Tensor, taps: range) -> tuple[Tensor, Tensor]:
    """The largest of each window, and its row-major position: of several NaN the last one."""
    values, tap = (build.reduce(m, windows, taps) for m in (MAX, MONOIDS["argmax"]))
    if windows.dtype.is_float:
        turn = build.affine(dict(zip(taps, row_major(windows.shape[taps.start :]), strict=True)))
        odd = where(ne(windows, windows), index_of(windows.shape, turn), -1)
        last = build.reduce(MAX, odd, taps)
        tap = where(last < 0, tap, last)
    return values, tap


def maximum(x: Tensor, size: Extents) -> tuple[Tensor, Tensor]:
    """Values and their row-major positions in the last axes of x."""
    lead = x.rank - len(size)
    windows, taps = bins(x, size, lowest(x.dtype.numpy))
    values, tap = best(windows, taps)
    flat = build.literal(0, i64)
    for i in reversed(range(len(size))):
        n, own = x.shape[lead + i], windows.shape[x.rank + i]
        start = index_of(tap.shape, ends(position(lead + i), n, size[i])[0])
        flat = flat + (start + tap % own) * math.prod(x.shape[lead + i + 1 :])
        tap = tap // own
    return values, flat


def maximum_backward(rank: int, g: Tensor, x: Tensor, winners: Tensor) -> Tensor:
    lead = x.rank - rank
    size = x.shape[lead:]
    held, taps = bins(g, size)
    at, _ = bins(winners, size, -1)
    place = constant(0)
    for i, n in enumerate(size):
        place = apply("add", apply("multiply", place, constant(n)), position(lead + i))
    return total(where(eq(at, index_of(held.shape, place)), held, 0), taps)


# --- windows that begin at random ----------------------------------------------------------------


def fractional(x: Tensor, kernel: Extents, size: Extents, samples: Tensor) -> tuple[Tensor, Tensor]:
    """Values and positions, of windows that begin where `samples` [n, c, axes] have them (Graham,
    Fractional max-pooling, 2014); of two axes the last has the first sample."""
    rank, lead = len(size), x.rank - len(size)
    starts: list[Tensor] = []
    for i, (n, m, k) in enumerate(zip(x.shape[lead:], size, kernel, strict=True)):
        sample = build.select(samples, 2, 1 - i if rank == 2 else i)
        shape = (*x.shape[:lead], m)
        known = build.broadcast_in(build.reshape(sample, shape[:lead]), shape, range(lead))
        turn = build.iota(shape, lead)
        by = build.literal(n - k, x.dtype) / build.literal(at_least(1, m - 1), x.dtype)
        start = build.cast((build.cast(turn, x.dtype) + known) * by, i64)
        start = where(eq(turn, m - 1), n - k, start - build.cast(known * by, i64))
        starts.append(least(largest(start, 0), build.literal(n - k, i64)))
    whole, taps = (*x.shape[:lead], *size, *kernel), range(x.rank, x.rank + rank)
    places = [
        build.broadcast_in(start, whole, (*range(lead), lead + i)) + build.iota(whole, taps[i])
        for i, start in enumerate(starts)
    ]
    values, tap = best(read(x, range(lead, x.rank), places, range(lead)), taps)
    flat = build.literal(0, i64)
    for i in reversed(range(rank)):
        start = build.broadcast_in(starts[i], tap.shape, (*range(lead), lead + i))
        flat = flat + (start + tap % kernel[i]) * math.prod(x.shape[lead + i + 1 :])
        tap = tap // kernel[i]
    return values, flat


def fractional_backward(rank: int, g: Tensor, x: Tensor, *how: Any) -> Tensor:
    lead, winners = x.shape[: x.rank - rank], how[-1]
    base = build.full((*lead, math.prod(x.shape[x.rank - rank :])), 0, g.dtype)
    index, values = (
        build.reshape(t, (*lead, math.prod(t.shape[len(lead) :]))) for t in (winners, g)
    )
    return build.reshape(build.scatter(SUM, base, len(lead), index, values), x.shape)


ADAPTIVE: dict[str, Any] = {
    "_adaptive_avg_pool2d _adaptive_avg_pool3d": average,
    "adaptive_max_pool2d adaptive_max_pool3d": maximum,
    "fractional_max_pool2d fractional_max_pool3d": fractional,
    **{f"fractional_max_pool{n}d_backward": partial(fractional_backward, n) for n in (2, 3)},
    **{f"_adaptive_avg_pool{n}d_backward": partial(average_backward, n) for n in (2, 3)},
    **{f"adaptive_max_pool{n}d_backward": partial(maximum_backward, n) for n in (2, 3)},
}

ROWS: dict[str, Row] = rows("widened", ADAPTIVE)
