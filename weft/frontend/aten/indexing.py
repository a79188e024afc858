"""Rows that read where other tensors point: embedding, gather, index_select, x[rows, :].

**namesakes(gather)          # one Gather node; index tensors are broadcast to the result's shape
"""

import math
from collections.abc import Sequence
from typing import Any

from weft.core.node import make
from weft.core.types import boolean, i32, i64, u8
from weft.frontend.aten.table import Row, namesakes, on_axis, require, rows
from weft.scalar.index import bounds, simplify
from weft.scalar.ops import apply, checked_index, constant, eq, lt, where
from weft.tensor import build
from weft.tensor.build import Axes, Tensor, broadcast_in, broadcast_shape, cast, iota, reshape
from weft.tensor.ops import Gather, Index, position

Indices = Sequence[Tensor | None]  # None: all of that axis


def read(x: Tensor, axes: Axes, rows_: list[Tensor], rest: Axes, wraps: bool = False) -> Tensor:
    """x at the given positions of `axes`, and along output axis rest[j] for each other axis."""
    whole = [cast(r, i64).node for r in rows_]
    require(x.type.size > 0 or not rows_[0].type.size, "there is nothing to index")
    return Tensor(make(Gather(tuple(axes), tuple(rest), wraps), x.node, *whole))


def take(x: Tensor, index: Tensor, wraps: bool = True) -> Tensor:
    return reshape(read(reshape(x, (-1,)), (0,), [reshape(index, (-1,))], (), wraps), index.shape)


def gather(x: Tensor, axis: int, index: Tensor, **_: Any) -> Tensor:
    if x.rank == 0 or index.rank == 0:
        return take(x, index, wraps=False)
    return read(x, (axis,), [index], [a for a in range(x.rank) if a != axis])


def index_select(x: Tensor, axis: int, index: Tensor) -> Tensor:
    if x.rank == 0:
        return x
    return index_tensor(x, [*[None] * axis, reshape(index, (-1,))], wraps=False)


def embedding(weight: Tensor, indices: Tensor, *_: Any) -> Tensor:
    """The rows that the indices name; what else is given is about gradients."""
    return index_tensor(weight, [indices], wraps=False)


def embedding_bag(
    weight: Tensor, indices: Tensor, offsets: Tensor, *how: Any
) -> tuple[Tensor, ...]:
    """Sums or means (mode 1) of rows; then each index's bag, the bags' lengths, and no maxima.

    `how` has two switches that are about gradients alone.
    """
    _, mode, _, per_sample_weights, include_last_offset, padding_idx = how
    bags, length = offsets.shape[0], indices.shape[0] // max(1, *offsets.shape)
    begins, at = offsets.node.op, position(0)
    even = False
    if isinstance(begins, Index) and length > 0:  # where bags of that length begin
        gap = apply("subtract", begins.term, apply("multiply", at, constant(length)))
        even = simplify(gap, {at: (0, bounds(constant(bags), {})[1] - 1)}) is constant(0)
    require(even and bags * length == indices.shape[0], "its bags differ in length")
    require(mode < 2 and padding_idx < 0 and not include_last_offset, "its mode has no row")
    found = embedding(weight, reshape(indices, (bags, length)))
    if per_sample_weights is not None:
        found = found * reshape(per_sample_weights, (bags, length, 1))
    sums = (build.mean if mode == 1 else build.total)(found, (1,))
    lengths = build.full((bags,), length, indices.dtype)
    of = broadcast_in(cast(iota((bags,), 0), indices.dtype), (bags, length), (0,))
    return sums, reshape(of, indices.shape), lengths, lengths


def index_tensor(x: Tensor, indices: Indices, wraps: bool = True) -> Tensor:
    """x[a, :, b]: index tensors broadcast together; side by side they stay in place, else lead."""
    given = [(a, t) for a, t in enumerate(indices) if t is not None]
    masks = any(t.dtype in (boolean, u8) for _, t in given)
    require(not masks, "a mask's result has no fixed shape")
    axes = [a for a, _ in given]
    joint = broadcast_shape(*(t.shape for _, t in given))
    kept = [a for a in range(x.rank) if a not in axes]
    beside = axes == list(range(axes[0], axes[0] + len(axes)))
    lead = sum(a < axes[0] for a in kept) if beside else 0
    before, after = kept[:lead], kept[lead:]
    shape = (*(x.shape[a] for a in before), *joint, *(x.shape[a] for a in after))
    end = lead + len(joint)
    rows_ = [broadcast_in(t, shape, range(end - t.rank, end)) for _, t in given]
    rest = [*range(lead), *range(end, len(shape))]
    if not shape:
        return reshape(read(x, axes, [reshape(r, (1,)) for r in rows_], (), wraps), ())
    return read(x, axes, rows_, rest, wraps)


def scatter_add(x: Tensor, axis: int, index: Tensor, src: Tensor) -> Tensor:
    require(x.rank > 0, "a scalar is indexed")
    whole = [n for d, n in enumerate(x.shape) if d != axis]
    fits = whole == [n for d, n in enumerate(index.shape) if d != axis]
    require(fits and index.shape == src.shape, "an index over part of the source or the result")
    return build.scatter_sum(x, axis, index, src)


def index_add(x: Tensor, axis: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Tensor:
    require(x.rank > 0 and source.rank == x.rank, "a scalar is indexed")
    rows_ = broadcast_in(reshape(index, (-1,)), source.shape, (axis,))
    return build.scatter_sum(x, axis, rows_, source if alpha == 1 else source * alpha)


def index_put(x: Tensor, indices: Indices, values: Tensor, accumulate: bool) -> Tensor:
    """x with values added at x[:, a, b]: along one axis over all places that a and b can name."""
    given = {a: t for a, t in enumerate(indices) if t is not None}
    first, last = min(given, default=0), max(given, default=0)
    require(accumulate, "of values for one place the last stays")
    require(len(given) == last - first + 1, "the indexed axes are apart")
    require(all(t.dtype in (i32, i64) for t in given.values()), "its index is no i32 or i64")
    joint = broadcast_shape(*(t.shape for t in given.values()))
    before, after = x.shape[:first], x.shape[last + 1 :]
    places = (*before, *joint, *after)
    require(0 not in x.shape, "there is nothing to index")
    require(broadcast_shape(values.shape, places) == places, "its values have other shapes")
    row = build.full(joint, 0, i64)
    for a, t in given.items():
        place = cast(t, i64)
        place = where(lt(place, 0), place + x.shape[a], place)
        row = row * x.shape[a] + checked_index(place, x.shape[a])
    whole = build.broadcast(values, places)
    shape = (*before, math.prod(joint), *after)
    index = broadcast_in(reshape(row, (-1,)), shape, (first,))
    flat = reshape(x, (*before, math.prod(x.shape[first : last + 1]), *after))
    return reshape(build.scatter_sum(flat, first, index, reshape(whole, shape)), x.shape)


def one_hot(x: Tensor, num_classes: int) -> Tensor:
    require(num_classes > 0, "the number of classes is data")
    shape = (*x.shape, num_classes)
    classes = broadcast_in(checked_index(x, num_classes), shape, range(x.rank))
    return cast(eq(classes, iota(shape, x.rank)), i64)


INDEXING = {
    **namesakes(one_hot, embedding, take, index_put),
    **namesakes(*map(on_axis, (gather, index_select, scatter_add, index_add))),
    "_embedding_bag _embedding_bag_forward_only": embedding_bag,
    "index.Tensor _unsafe_index.Tensor": index_tensor,
}

ROWS: dict[str, Row] = rows("stored", INDEXING)
