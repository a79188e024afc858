"""Rows of what is put in order: sort, topk, kthvalue, median, mode, searchsorted, histc.

values, positions = sort(key, axis, False, [iota(key.shape, axis)])     # one Sort, of two results
Of equal elements the first comes first, wherever torch leaves open which does.
"""

import math
from collections.abc import Callable
from typing import Any

from weft.core.types import boolean, f32, i64
from weft.frontend.aten.formulas import is_nan
from weft.frontend.aten.indexing import read
from weft.frontend.aten.reductions import first_of
from weft.frontend.aten.table import Row, axis_of, require, rows
from weft.scalar import ops as s
from weft.scalar.monoid import LAST, MAX, MIN, SUM
from weft.scalar.sizes import Size
from weft.tensor import build
from weft.tensor.build import (
    FEW,
    Number,
    Tensor,
    broadcast,
    cast,
    full,
    iota,
    literal,
    reshape,
    scan,
    slice_,
    squeeze,
    total,
)

MANY = 64  # times as many elements as are kept, from which on blocks leave most out
LOW = (1 << 32) - 1  # the lower half of a word
Pair = tuple[Tensor, Tensor | int]  # values and where each one was


def sort_stable(x: Tensor, stable: Any = None, dim: int = -1, descending: bool = False) -> Pair:
    """Always stable."""
    return _sorted(x, axis_of(dim, x.rank), descending) if x.rank else (x, 0)


def sort(x: Tensor, dim: int = -1, descending: bool = False) -> Pair:
    return sort_stable(x, None, dim, descending)


def _sorted(
    x: Tensor, axis: int, descending: bool = False, first: int = 0
) -> tuple[Tensor, Tensor]:
    values, positions = build.sort(x, axis, descending, [iota(x.shape, axis)], first)
    return values, positions


def topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Pair:
    if x.rank == 0:
        return x, 0
    axis = axis_of(dim, x.rank)
    extent = x.shape[axis]
    if not isinstance(extent, Size) and FEW < k <= extent // 2:
        return _first_of_many(x, axis, k, largest)
    return _sorted(slice_(x, axis, 0, 0) if k == 0 else x, axis, largest, k)


def _first_of_many(x: Tensor, axis: int, k: int, largest: bool) -> tuple[Tensor, Tensor]:
    """The first k in order: those not beyond the k-th, together as they stand, then sorted."""
    at = _places(x, axis, k, largest)
    found = build.sort(_there(x, axis, at), axis, largest, [at])
    return found[0], found[1]


def _there(x: Tensor, axis: int, at: Tensor) -> Tensor:
    return read(x, (axis,), [at], [a for a in range(x.rank) if a != axis])


def _places(x: Tensor, axis: int, k: int, largest: bool) -> Tensor:
    """Where the first k in order are, from the first place on.

    Of blocks, the first k by their first elements have all of them: each block before one of these
    has an element before any of its own. NaN, the greatest, has no block by a minimum.
    """
    extent, numbers = x.shape[axis], x.dtype is not boolean and (largest or not x.dtype.is_float)
    if extent < MANY * k or not numbers:
        return _not_beyond(x, axis, k, largest)
    size = math.isqrt(extent // k)
    count, wide = -(-extent // size), build.widen(x)
    worst = (MAX if largest else MIN).identity((wide.dtype,))[0].op.value  # type: ignore[attr-defined]
    last = [(0, count * size - extent if a == axis else 0) for a in range(x.rank)]
    wide = build.pad(wide, last, worst)
    blocks = reshape(wide, (*x.shape[:axis], count, size, *x.shape[axis + 1 :]))
    first = build.reduce(MAX if largest else MIN, blocks, (axis + 1,))
    block = build.unsqueeze(_places(first, axis, k, largest), axis + 1)
    shape = (*block.shape[: axis + 1], size, *block.shape[axis + 2 :])
    at = build.broadcast(block * size, shape) + iota(shape, axis + 1)
    at = reshape(at, (*x.shape[:axis], k * size, *x.shape[axis + 1 :]))
    return _there(at, axis, _not_beyond(_there(wide, axis, at), axis, k, largest))


def _not_beyond(x: Tensor, axis: int, k: int, largest: bool) -> Tensor:
    """The same by the k-th of all.

    Of those equal to the k-th the first are kept, as many as are left. One scan counts in both
    halves of a word how many come before and how many are equal up to each.
    """
    extent, wide = x.shape[axis], build.widen(x)
    last, _ = selected(x, axis, ranks(x, axis, extent - k if largest else k - 1))
    last = build.broadcast(build.widen(last), x.shape)
    before, same = wide > last if largest else wide < last, s.eq(wide, last)
    if x.dtype.is_float:  # NaN is the greatest
        a, b = (wide, last) if largest else (last, wide)
        before = before | (is_nan(a) & ~is_nan(b))
        same = same | (is_nan(a) & is_nan(b))
    counts = scan(SUM, cast(before, i64) + s.shift_left(cast(same, i64), 32), axis)
    sure = slice_(counts, axis, extent - 1, 1) & LOW
    place = (counts & LOW) + s.minimum(s.shift_right(counts, 32), k - sure) - 1
    kept = before | (same & (s.shift_right(counts, 32) <= k - sure))
    shape = tuple(k if a == axis else n for a, n in enumerate(x.shape))
    place, at = s.where(kept, place, k), iota(x.shape, axis)
    return build.scatter(LAST, full(shape, 0, i64), axis, place, at, 1)


def along(pick: Callable[..., tuple[Tensor, Tensor]]) -> Callable[..., Pair]:
    """The row of an op that picks one element of each line along an axis, of what is sorted."""

    def row(x: Tensor, *how: Any) -> Pair:
        *more, dim, keepdim = how
        if x.rank == 0:
            return x, 0
        axis = axis_of(dim, x.rank)
        found = pick(x, axis, *more)
        return found if keepdim else tuple(squeeze(t, (axis,)) for t in found)  # type: ignore[return-value]

    return row


def _at(pair: tuple[Tensor, Tensor], axis: int, place: Tensor) -> tuple[Tensor, Tensor]:
    """Both tensors at a place along the axis, whose extent there is 1."""
    rest = [a for a in range(place.rank) if a != axis]
    values, positions = (read(t, (axis,), [place], rest) for t in pair)
    return values, positions


def selected(x: Tensor, axis: int, rank: Tensor) -> tuple[Tensor, Tensor]:
    """The element of a rank along the axis, from 0 on, and where its first equal is."""
    place = build.select_rank(x, axis, rank)
    return read(x, (axis,), [place], [a for a in range(x.rank) if a != axis]), place


def ranks(x: Tensor, axis: int, rank: Number) -> Tensor:
    """The same rank for each line along the axis."""
    shape = tuple(1 if a == axis else n for a, n in enumerate(x.shape))
    return broadcast(literal(rank, i64), shape)


def kth(x: Tensor, axis: int, k: int) -> tuple[Tensor, Tensor]:
    return selected(x, axis, ranks(x, axis, k - 1))


def middle(ignore: bool) -> Callable[..., tuple[Tensor, Tensor]]:
    """The lower median: the first NaN where there is one, unless these are ignored."""

    def pick(x: Tensor, axis: int) -> tuple[Tensor, Tensor]:
        extent = x.shape[axis]
        require(isinstance(extent, Size) or extent > 0, "there is nothing to take")
        half = s.shift_right(ranks(x, axis, extent - 1), 1)
        if x.dtype.is_float:
            numbers = total(cast(s.eq(x, x), i64), (axis,), keep=True)
            some = s.maximum(s.shift_right(numbers - 1, 1), 0)
            half = some if ignore else s.where(s.lt(numbers, extent), numbers, half)
        return selected(x, axis, half)

    return pick


def of_all(row: Callable[..., Pair]) -> Callable[..., Tensor]:
    """The value of a row's pick over the whole tensor."""
    return lambda x: row(reshape(x, (-1,)), 0, False)[0] if x.rank else x


def most_frequent(x: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """The least of the values that occur most: the end of the first of the longest runs."""
    pair = _sorted(x, axis)
    values, at, n = pair[0], iota(x.shape, axis), x.shape[axis]
    require(isinstance(n, Size) or n > 0, "there is nothing to take")
    pads = [(1 if a == axis else 0, 0) for a in range(x.rank)]
    before = slice_(build.pad(values, pads), axis, 0, n)
    starts = s.ne(values, before) | s.eq(at, 0)
    length = at - scan(MAX, s.where(starts, at, 0), axis)
    place = first_of("argmax", length, (axis,), True)
    assert isinstance(place, Tensor)
    return _at(pair, axis, place)


# --- places among boundaries ----------------------------------------------------------------------


def searchsorted(
    edges: Tensor, x: Tensor | Number, out_int32: bool = False, right: bool = False,
    side: str | None = None, sorter: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """How many edges come before each value: a binary search that meets the edges torch's meets."""
    if not isinstance(x, Tensor):
        edges = cast(edges, f32) if isinstance(x, float) and not edges.dtype.is_float else edges
        x = full((), x, edges.dtype.compute)
    extent, right = edges.shape[-1], right or side == "right"
    require(not isinstance(extent, Size), "the number of steps is a size's")
    if extent == 0:
        return full(x.shape, 0, i64)
    scalar, rank = x.rank == 0, max(x.rank, 1)
    x = reshape(x, (1,)) if scalar else x
    start, length = full(x.shape, 0, i64), full(x.shape, extent, i64)
    rest = [] if edges.rank == 1 else [*range(rank - 1)]
    for _ in range(extent.bit_length()):
        half = s.shift_right(length, 1)
        middle = start + half
        place = s.minimum(s.maximum(middle, 0), extent - 1)
        for table in (sorter, edges):
            place = place if table is None else read(table, (table.rank - 1,), [place], rest)
        beyond = place > x if right else place >= x
        goes = ~beyond & (length > 0)
        start = s.where(goes, middle + 1, start)
        length = s.where(goes, length - half - 1, half)
    return reshape(start, ()) if scalar else start


def bucketize(
    x: Tensor | Number, edges: Tensor, out_int32: bool = False, right: bool = False
) -> Tensor:
    return searchsorted(edges, x, out_int32, right)


def data_range(x: Tensor, apart: float) -> tuple[Tensor, Tensor]:
    """The least and the largest element, moved apart where they are equal; a fault of no number."""
    low, high = (build.reduce(m, x, range(x.rank)) for m in (MIN, MAX))
    finite = (abs(low) < math.inf) & (abs(high) < math.inf)
    checked = cast(s.checked_index(s.where(finite, 0, full((), 1, i64)), 1), x.dtype)
    low, high, same = low + checked, high + checked, s.eq(low, high)
    return s.where(same, low - apart, low), s.where(same, high + apart, high)


def histc(x: Tensor, bins: int = 100, min: Number = 0, max: Number = 0) -> Tensor:
    """How many elements are in each of some bins of one width, in the dtype of the elements.

    A range of one number is the data's, or 1 to either side of their one value.
    """
    require(math.isfinite(min) and math.isfinite(max) and min <= max, "torch refuses its range")
    dtype, x = x.dtype, build.widen(reshape(x, (-1,)))
    low, high = (build.widen(build.literal(e, dtype)) for e in (min, max))
    if min == max:
        require(x.type.size > 0, "there is nothing to count")
        low, high = data_range(x, 1)

    def rounded(value: Tensor) -> Tensor:
        return build.widen(cast(value, dtype))

    place = rounded(rounded(rounded(x - low) / rounded(high - low)) * bins)
    inside = (x >= low) & (x <= high)
    place = s.minimum(cast(s.where(inside, place, 0), i64), bins - 1)
    return build.scatter(SUM, full((bins,), 0, i64), 0, place, cast(inside, i64))


SORTS = {
    "sort": sort,
    "sort.stable": sort_stable,
    "topk": topk,
    "kthvalue": along(lambda x, axis, k: kth(x, axis, k)),
    "median.dim": along(middle(False)),
    "nanmedian.dim": along(middle(True)),
    "median": of_all(along(middle(False))),
    "nanmedian": of_all(along(middle(True))),
    "mode": along(most_frequent),
    "histc": histc,
}
SEARCHES = {"searchsorted.Tensor,Scalar": searchsorted, "bucketize.Tensor,Scalar": bucketize}

ROWS: dict[str, Row] = {
    **rows("stored", SORTS),
    **rows("widened", SEARCHES),
}
