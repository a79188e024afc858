"""Rows that write where other tensors point: scatter, index_put, index_add, masked_scatter.

scatter(SUM, x, 0, index, values)      # x[index[i, j], j] += values[i, j]
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from weft.core.node import Node
from weft.core.types import boolean, i32, i64, row_major, u8
from weft.frontend.aten.formulas import power_by
from weft.frontend.aten.indexing import Indices, embedding, read, take
from weft.frontend.aten.table import Row, namesakes, on_axis, require, rows
from weft.scalar.monoid import LAST, MAX, MIN, PRODUCT, SUM, Monoid, highest, lowest
from weft.scalar.ops import (
    FUNCTIONS,
    apply,
    checked_index,
    constant,
    eq,
    floordiv,
    floormod,
    lt,
    maximum,
    ne,
    where,
)
from weft.scalar.sizes import Size, differ
from weft.tensor import build
from weft.tensor.build import (
    Axes,
    Number,
    Operand,
    Tensor,
    affine,
    broadcast,
    broadcast_in,
    broadcast_shape,
    cast,
    full,
    iota,
    permute,
    reshape,
    slice_,
    winners,
)

# --- one value for each index ---------------------------------------------------------------------


def scatter(monoid: Monoid | None, x: Tensor, axis: int, index: Tensor, values: Tensor) -> Tensor:
    """Fold values[p] into the element of x that index[p] names along the axis, p elsewhere.

    Without a monoid the last value stays. `index` may be a part of the values, and, along other
    axes, of x.
    """
    if x.rank == 0:
        axis, index, values = 0, reshape(index, (-1,)), reshape(values, (-1,))
        return reshape(scatter(monoid, reshape(x, (1,)), axis, index, values), ())
    if index.rank == 0:
        index, values = reshape(index, (1,)), reshape(values, (1,))
    if 0 in index.shape:
        return x
    part, whole = x, x.shape
    for a, n in enumerate(index.shape):
        values = slice_(values, a, 0, n) if differ(values.shape[a], n) else values
        part = slice_(part, a, 0, n) if a != axis and differ(whole[a], n) else part
    part = cast(_folded(monoid, part, axis, index, values), x.dtype)
    for a in range(x.rank):
        part = _within(x, a, part) if differ(part.shape[a], whole[a]) else part
    return part


def _within(x: Tensor, axis: int, part: Tensor) -> Tensor:
    """The part, which begins where x does, with the rest of x beyond its end along the axis."""
    for a in range(axis + 1, x.rank):
        x = slice_(x, a, 0, part.shape[a]) if differ(x.shape[a], part.shape[a]) else x
    end = part.shape[axis]
    pads = [(0, x.shape[axis] - end if a == axis else 0) for a in range(x.rank)]
    return where(lt(iota(x.shape, axis), end), build.pad(part, pads), x)


def _folded(monoid: Monoid | None, x: Tensor, axis: int, index: Tensor, values: Tensor) -> Tensor:
    """The same where `index` has the values' shape, and x has it along other axes."""
    if index.shape[axis] != 1:
        return build.scatter(monoid or LAST, x, axis, index, values)
    # one value: no element has two to fold, each compares its place with that value's
    place = broadcast(checked_index(cast(index, i64), x.shape[axis]), x.shape)
    known = build.widen(x)
    new = broadcast(build.widen(values), x.shape)
    if monoid is not None:
        assert monoid.function is not None
        new = build.map_(FUNCTIONS[monoid.function], known, new)
    return where(eq(place, iota(x.shape, axis)), new, known)


def _put(x: Tensor, axis: int, last: Tensor, values: Tensor) -> Tensor:
    """x with the values at those positions along the axis, where there is one."""
    found = read(values, (axis,), [maximum(last, 0)], [a for a in range(x.rank) if a != axis])
    return where(last >= 0, found, x)


def scatter_values(x: Tensor, axis: int, index: Tensor, src: Operand, **how: str) -> Tensor:
    """Also scatter.reduce: "add" or "multiply"."""
    monoid = {"add": SUM, "multiply": PRODUCT}[how["reduce"]] if how else None
    values = src if isinstance(src, Tensor) else full(index.shape, src, x.dtype)
    return scatter(monoid, x, axis, index, values)


def reduced(
    x: Tensor, axis: int, index: Tensor, src: Tensor, reduce: str, include_self: bool = True
) -> Tensor:
    """scatter_reduce; without `include_self` what is named begins with the fold's identity."""
    monoid = {"sum": SUM, "mean": SUM, "prod": PRODUCT, "amax": MAX, "amin": MIN}[reduce]
    require(x.dtype is not boolean, "bools are folded")
    start, counts = x, None
    if reduce == "mean" or not include_self:
        ones = full(index.shape, 1, i64)
        counts = scatter(SUM, full(x.shape, 0, i64), axis, index, ones)
    if not include_self:
        assert counts is not None
        begins: dict[str, Any] = {"amax": lowest, "amin": highest, "prod": lambda _: 1}
        first: Number = x.dtype.python(begins.get(reduce, lambda _: 0)(x.dtype.numpy))
        start = where(counts > 0, full(x.shape, first, x.dtype), x)
    out = scatter(monoid, start, axis, index, src)
    if reduce != "mean":
        return out
    assert counts is not None
    counts = counts + 1 if include_self else where(eq(counts, 0), 1, counts)
    if not x.dtype.is_float:
        return floordiv(cast(out, i64), counts)
    return build.widen(out) / cast(counts, x.dtype.compute)


# --- one index for each slice ---------------------------------------------------------------------


def _slices(monoid: Monoid | None, x: Tensor, axis: int, index: Tensor, source: Tensor) -> Tensor:
    """Fold slice i of the source, along the axis, into the slice of x that index[i] names."""
    if x.rank == 0:
        return scatter(monoid, x, 0, index, source)
    source, index = (reshape(t, (-1,)) if t.rank == 0 else t for t in (source, index))
    if monoid is None and index.shape[0] > 1 and x.rank > 1:
        last = winners((x.shape[axis],), 0, index)
        return _put(x, axis, broadcast_in(last, x.shape, (axis,)), source)
    return scatter(monoid, x, axis, broadcast_in(index, source.shape, (axis,)), source)


def index_add(x: Tensor, axis: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Tensor:
    return _slices(SUM, x, axis, index, source if alpha == 1 else source * alpha)


def index_fill(x: Tensor, axis: int, index: Tensor, value: Operand) -> Tensor:
    """A slice is filled where any index names it."""
    length = x.shape[axis] if x.rank else 1
    index = reshape(index, (-1,))
    place = cast(index, i64)
    place = where(lt(place, 0), place + length, place)
    counts = scatter(SUM, full((length,), 0, i64), 0, place, full(index.shape, 1, i64))
    named = counts > 0
    return where(broadcast_in(named, x.shape, (axis,)) if x.rank else reshape(named, ()), value, x)


def index_reduce(
    x: Tensor, axis: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    whole = reshape(x, (1,)) if x.rank == 0 else x
    source = reshape(source, (1,)) if source.rank == 0 else source
    place = broadcast_in(reshape(index, (-1,)), source.shape, (axis,))
    return reshape(reduced(whole, axis, place, source, reduce, include_self), x.shape)


def put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    flat, values = (reshape(v, (-1,)) for v in (x, source))
    return reshape(index_put(flat, [reshape(index, (-1,))], values, accumulate), x.shape)


def as_strided_scatter(
    x: Tensor, layout: Axes, src: Tensor, size: Axes, stride: Axes, offset: int | None
) -> Tensor:
    """x with the source at places of its memory, which is in order; of several the last stays."""
    require(layout == row_major(x.shape), "it writes to a tensor that is not in order in memory")
    require(not any(isinstance(n, Size) for n in (*x.shape, *size)), "its sizes are no numbers")
    src, offset = broadcast(src, size), offset or 0
    axes = axes_of(x.shape, size, stride, offset)
    if axes is not None:
        return _in_slice(x, src, stride, offset, axes)
    place = build.index_of(size, affine(dict(enumerate(stride)), offset))
    return put(x, place, src) if x.type.size else x


def axes_of(shape: Axes, size: Axes, stride: Axes, offset: int) -> list[int] | None:
    """The axis of a tensor in order in memory that each axis of that size steps along; -1: none.

    None where one leaves a row, or where two step along the same.
    """
    found: list[int] = []
    last = offset + sum((n - 1) * by for n, by in zip(size, stride, strict=True))
    if 0 in size or last >= math.prod(shape):
        return None
    for n, by in zip(size, stride, strict=True):
        if n == 1:
            found.append(-1)
            continue
        for a, step in enumerate(row_major(tuple(shape))):
            first = offset // step % shape[a]
            if a not in found and by and by % step == 0 and first + (n - 1) * by // step < shape[a]:
                found.append(a)
                break
    return found if len(found) == len(size) else None


def _in_slice(x: Tensor, src: Tensor, stride: Axes, offset: int, axes: Sequence[int]) -> Tensor:
    """x with the source in a slice of it, whose axes step along those `axes`."""
    index, inside = [constant(0)] * src.rank, list[Node]()
    for a, step in enumerate(row_major(x.shape)):
        from_first = affine({a: 1}, -(offset // step % x.shape[a]))
        if a not in axes:
            inside.append(apply(eq, from_first, constant(0)))
            continue
        d = axes.index(a)
        by = constant(stride[d] // step)
        index[d] = apply(floordiv, from_first, by)
        inside.append(build.within(index[d], src.shape[d]))
        inside.append(apply(eq, apply(floormod, from_first, by), constant(0)))
    valid = build.all_of(inside)
    return where(build.index_of(x.shape, valid), build.view(src, x.shape, index, valid), x)


def embedding_renorm(x: Tensor, index: Tensor, most: float, order: float) -> Tensor:
    """Rows that are named, of a norm above `most`, scaled to it."""
    index = reshape(index, (-1,))
    if not index.shape[0]:
        return x
    rows_ = build.widen(embedding(x, index))
    norm = cast(norm_of(rows_, order), x.dtype)
    scale = where(norm > most, most / (build.widen(norm) + 1e-7), 1.0)
    return _slices(None, x, 0, index, cast(rows_ * scale, x.dtype))


def norm_of(x: Tensor, order: float) -> Tensor:
    """Of rows [n, m], as [n, 1]."""
    size = abs(x)
    if order == math.inf or order == -math.inf:
        return build.reduce(MAX if order > 0 else MIN, size, (1,), keep=True)
    if order == 0:
        return build.total(cast(ne(x, 0), x.dtype), (1,), keep=True)
    sums = build.total(power_by(size, order), (1,), keep=True)
    return power_by(sums, 1 / order)


# --- places along several axes --------------------------------------------------------------------


def index_put(x: Tensor, indices: Indices, values: Tensor, accumulate: bool) -> Tensor:
    """x with values put, or added, at x[:, a, b]: along one axis over all that a and b can name."""
    given = {a: t for a, t in enumerate(indices) if t is not None}
    if any(t.dtype in (boolean, u8) for t in given.values()):
        return _put_where(x, given, values, accumulate)
    require(all(t.dtype in (i32, i64) for t in given.values()), "its index is no i32 or i64")
    require(0 not in x.shape, "there is nothing to index")
    first, last = min(given, default=0), max(given, default=0)
    if len(given) != last - first + 1:  # apart: what they name comes first
        order = [*given, *(a for a in range(x.rank) if a not in given)]
        moved = index_put(permute(x, order), [*given.values()], values, accumulate)
        return permute(moved, [order.index(a) for a in range(x.rank)])
    joint = broadcast_shape(*(t.shape for t in given.values()))
    before, after = x.shape[:first], x.shape[last + 1 :]
    places = (*before, *joint, *after)
    require(broadcast_shape(values.shape, places) == places, "its values have other shapes")
    row = full(joint, 0, i64)
    for a, t in given.items():
        place = cast(t, i64)
        place = where(lt(place, 0), place + x.shape[a], place)
        row = row * x.shape[a] + checked_index(place, x.shape[a])
    shape = (*before, math.prod(joint), *after)
    flat = reshape(x, (*before, math.prod(x.shape[first : last + 1]), *after))
    whole, row = reshape(broadcast(values, places), shape), reshape(row, (-1,))
    return reshape(_slices(SUM if accumulate else None, flat, first, row, whole), x.shape)


def _put_where(x: Tensor, given: dict[int, Tensor], values: Tensor, accumulate: bool) -> Tensor:
    """x[:, mask] = values, where these are the same for all elements that the mask names."""
    (first, mask), *more = given.items()
    require(not more, "a mask stands beside other indices")
    after = x.rank - first - mask.rank
    same = values.rank <= after or (values.rank == after + 1 and values.shape[0] == 1)
    require(same, "it takes as many values as a mask has elements")
    rest = values.shape[values.rank - after :] if values.rank > after else values.shape
    known = build.widen(x)
    new = broadcast(reshape(cast(values, known.dtype), rest), x.shape)
    named = broadcast_in(cast(mask, boolean), x.shape, range(first, first + mask.rank))
    return where(named, known + new if accumulate else new, known)


def _position(mask: Tensor) -> Tensor:
    """How many elements of a flat mask come before each that it names."""
    return build.scan(SUM, cast(mask, i64), 0) - 1


def masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """The next element of the source at each place that the mask names."""
    x = broadcast(x, broadcast_shape(x.shape, mask.shape))
    named = reshape(broadcast(cast(mask, boolean), x.shape), (-1,))
    if source.type.size == 0 or x.type.size == 0:
        require(x.type.size == 0, "there is nothing to take")
        return x
    place = where(named, _position(named), 0)
    return where(reshape(named, x.shape), reshape(take(source, place, wraps=False), x.shape), x)


def masked_scatter_backward(grad: Tensor, mask: Tensor, sizes: Sequence[int]) -> Tensor:
    named = reshape(broadcast(cast(mask, boolean), grad.shape), (-1,))
    flat = reshape(grad, (-1,))
    size = math.prod(sizes)
    require(size > 0 and grad.type.size > 0, "there is nothing to take")
    place = where(named, _position(named), 0)
    out = scatter(SUM, full((size,), 0, grad.dtype), 0, place, where(named, flat, 0))
    return reshape(out, tuple(sizes))


SCATTERS = {
    **namesakes(index_put, masked_scatter, masked_scatter_backward, *map(on_axis, [index_add])),
    "_unsafe_index_put": index_put,
    "embedding_renorm": embedding_renorm,
    "put": put,
    "scatter.src,value,reduce,value_reduce": on_axis(scatter_values),
    "scatter_add": on_axis(partial(scatter, SUM)),
    "scatter_reduce.two": on_axis(reduced),
    "index_copy": on_axis(partial(_slices, None)),
    "index_fill.int_Scalar,int_Tensor": on_axis(index_fill),
    "index_reduce": on_axis(index_reduce),
}

ROWS: dict[str, Row] = {
    **rows("stored", SCATTERS),
    **rows("strided", namesakes(as_strided_scatter)),
}
