"""Rows of runs of elements whose lengths are data: segment_reduce, repeat_interleave.

segment_reduce(x, "sum", lengths=[2, 0, 3])    # [x[0] + x[1], 0, x[2] + x[3] + x[4]]
"""

import math
from typing import Any

from weft.core.types import boolean, i32, i64
from weft.frontend.aten.formulas import is_nan
from weft.frontend.aten.indexing import read
from weft.frontend.aten.table import Row, namesakes, require, rows
from weft.scalar import ops as s
from weft.scalar.monoid import MAX, MIN, PRODUCT, SUM, Monoid
from weft.scalar.sizes import Size, is_short
from weft.tensor import build
from weft.tensor.build import Tensor, broadcast_in, cast, full, iota, reshape, scan, slice_

LONG = 8  # elements of a segment, on average, from which on it is folded as a run again
FOLDS = {  # and what none is folded to
    "sum": (SUM, 0.0),
    "mean": (SUM, 0.0),
    "prod": (PRODUCT, 1.0),
    "max": (MAX, -math.inf),
    "min": (MIN, math.inf),
}


def ended(ends: Tensor, shape: Any, axis: int) -> Tensor:
    """How many ends come up to each place along the axis: those of empty segments count too."""
    n = shape[axis]
    wide = tuple(n + 1 if a == axis else k for a, k in enumerate(shape))
    word = i32 if is_short(ends.shape[axis]) else i64
    marks = build.scatter(SUM, full(wide, 0, word), axis, ends, full(ends.shape, 1, word))
    return cast(slice_(scan(SUM, marks, axis), axis, 0, n), i64)


def _bounds(
    x: Tensor, lengths: Tensor | None, offsets: Tensor | None, axis: int, unsafe: bool
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Where segments end, where the first begins if that is not 0, and their lengths; all i64."""
    if offsets is not None:
        count = offsets.shape[axis] - 1
        ends, first = slice_(offsets, axis, 1, count), slice_(offsets, axis, 0, 1)
        lengths = cast(ends - slice_(offsets, axis, 0, count), i64)
        first = cast(first, i64)
    else:
        assert lengths is not None
        lengths, first = cast(lengths, i64), None
        ends = scan(SUM, lengths, axis)
        if not unsafe:
            fits = s.eq(slice_(ends, axis, ends.shape[axis] - 1, 1), x.shape[axis])
            fits = build.broadcast(fits, ends.shape) & (lengths >= 0)
            ends = ends + s.checked_index(s.where(fits, 0, full(ends.shape, 1, i64)), 1)
    require(ends.type.size > 0 and x.type.size > 0, "there is nothing to fold")
    return cast(ends, i64), first, lengths


def _segments(
    x: Tensor, lengths: Tensor | None, offsets: Tensor | None, axis: int, unsafe: bool = True
) -> tuple[Tensor, Tensor]:
    """The segment of each element along the axis, of none their count; and their lengths.

    Both have the axes of `lengths`, which x begins with.
    """
    ends, first, lengths = _bounds(x, lengths, offsets, axis, unsafe)
    shape = (*ends.shape[:axis], x.shape[axis])
    of = ended(ends, shape, axis)
    if first is not None:
        before = iota(shape, axis) < build.broadcast(first, shape)
        of = s.where(before, ends.shape[axis], of)
    return of, lengths


def _starts(x: Tensor, ends: Tensor, first: Tensor | None) -> Tensor | None:
    """Where each segment begins, and the last ends; None where runs do not take them."""
    (count, *others), shape = ends.shape, x.shape
    if others or any(isinstance(n, Size) for n in (*shape, count)) or not is_short(count + 1):
        return None
    starts = build.pad(ends, [(1, 0)])
    return starts if first is None else starts + build.pad(first, [(0, count)])


def _folded(monoid: Monoid, begin: float, x: Tensor, *given: Any) -> tuple[Tensor, Tensor]:
    """Each segment folded from `begin` on, and its length; given lengths or offsets, axis, unsafe.

    Segments of other axes than one, or in numbers that are a size's, are scattered.
    """
    ends, first, lengths = _bounds(x, *given)
    axis, count, shape = given[2], lengths.shape[given[2]], [*x.shape]
    shape[axis] = count
    starts = _starts(x, ends, first)
    if starts is not None:
        base = full(shape, begin, x.dtype.compute)
        return build.runs(monoid, base, axis, starts, build.widen(x)), lengths
    of, _ = _segments(x, *given)
    shape[axis] = count + 1
    folded = build.scatter(monoid, full(shape, begin, x.dtype), axis, _along(of, x.shape), x)
    return slice_(folded, axis, 0, count), lengths


def _along(t: Tensor, shape: Any) -> Tensor:
    """A tensor of leading axes alone, spread to a shape."""
    return broadcast_in(t, shape, range(t.rank))


def segment_reduce(x: Tensor, reduce: str, **how: Any) -> Tensor:
    lengths, offsets, axis = how.get("lengths"), how.get("offsets"), how.get("axis", 0)
    initial = how.get("initial")
    require(how.get("indices") is None, "it is told by indices")
    monoid, begin = FOLDS[reduce]
    given = lengths, offsets, axis, how.get("unsafe", False)
    out, lengths = _folded(monoid, begin, x, *given)
    if initial is not None:
        combine = {SUM: s.add, PRODUCT: s.multiply, MAX: s.maximum, MIN: s.minimum}
        out = combine[monoid](out, float(initial))
    if reduce != "mean":
        return out
    divisor = _along(lengths, out.shape)
    some = out / cast(s.maximum(divisor, 1), out.dtype)
    return some if initial is not None else s.where(s.eq(divisor, 0), math.nan, some)


def _segment_reduce_backward(
    grad: Tensor, out: Tensor, x: Tensor, reduce: str, **how: Any
) -> Tensor:
    lengths, offsets, axis = how.get("lengths"), how.get("offsets"), how.get("axis", 0)
    initial = how.get("initial")
    ends, first, _ = _bounds(x, lengths, offsets, axis, True)
    starts = _starts(x, ends, first)
    of, lengths = _segments(x, lengths, offsets, axis)
    count = lengths.shape[axis]
    of = of if starts is None else build.run_of(starts, x.shape[axis])
    at = _along(s.minimum(of, count - 1), x.shape)
    rest = [a for a in range(x.rank) if a != axis]

    def there(t: Tensor) -> Tensor:
        return read(t, (axis,), [at], rest)

    def fold(monoid: Monoid, begin: Tensor, values: Tensor) -> Tensor:
        if starts is not None and x.shape[axis] >= LONG * count:
            return build.runs(monoid, begin, axis, starts, values)
        return build.scatter(monoid, begin, axis, at, values)

    g = there(grad)
    if reduce == "mean":
        g = g / cast(s.maximum(there(_along(lengths, out.shape)), 1), g.dtype)
    elif reduce in ("max", "min"):
        best = is_nan(x) | s.eq(x, there(out))
        counts = fold(SUM, full(out.shape, 0, i64), cast(best, i64))
        g = s.where(best, g / cast(s.maximum(there(counts), 1), g.dtype), 0)
    elif reduce == "prod":
        g = g * _others(x, out.shape, 1.0 if initial is None else float(initial), there, fold)
    return s.where(_along(of < count, x.shape), g, 0)


def _others(x: Tensor, shape: Any, initial: float, there: Any, fold: Any) -> Tensor:
    """The product of the initial value and the others of an element's segment."""
    zero = s.eq(x, 0)
    zeros = fold(SUM, full(shape, 0, i64), cast(zero, i64))
    plain = s.where(zero, 1, x)
    product = fold(PRODUCT, full(shape, initial, x.dtype), plain)
    return s.where(s.eq(there(zeros) - cast(zero, i64), 0), there(product) / plain, 0)


def repeat_interleave(repeats: Tensor, output_size: int | None = None) -> Tensor:
    """0 repeats[0] times, then 1, and so on."""
    require(output_size is not None, "its length is data")
    assert output_size is not None
    count = repeats.shape[0]
    require(not isinstance(count, Size) and count > 0, "there is nothing to repeat")
    lengths = cast(repeats, i64)
    ends = scan(SUM, lengths, 0)
    fits = build.broadcast(s.eq(slice_(ends, 0, count - 1, 1), output_size), ends.shape)
    fits = fits & (lengths >= 0)
    ends = ends + s.checked_index(s.where(fits, 0, full(ends.shape, 1, i64)), 1)
    return ended(ends, (output_size,), 0)


def nonzero_static(x: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """The coordinates of the first `size` elements that are not 0, and the fill beyond them."""
    require(not any(isinstance(n, Size) for n in (size, *x.shape)), "its size is no number")
    shape = (size, x.rank)
    if 0 in shape or not x.type.size:
        return full(shape, fill_value, i64)
    named = reshape(cast(x, boolean), (-1,))
    before = scan(SUM, cast(named, i64), 0) - 1
    place = s.where(named & (before < size), before, size)
    base = full((size + 1,), -1, i64)
    flat = build.scatter(MAX, base, 0, place, iota(named.shape, 0))
    flat = slice_(flat, 0, 0, size)
    columns: list[Tensor] = []
    stride = x.type.size
    for n in x.shape:
        stride //= n
        columns.append(s.floormod(s.floordiv(flat, stride), n))
    found = build.concat([reshape(c, (size, 1)) for c in columns], 1)
    return s.where(build.broadcast_in(flat, shape, (0,)) < 0, fill_value, found)


SEGMENTS = {
    **namesakes(segment_reduce, _segment_reduce_backward, nonzero_static),
    "repeat_interleave.Tensor": repeat_interleave,
}

ROWS: dict[str, Row] = rows("stored", SEGMENTS)
