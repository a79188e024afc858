"""Rows of embedding bags: sums, means or maxima of rows of a table, and their gradients.

sums, of, lengths, _ = embedding_bag(weight, indices, offsets, ...)   # of[i]: the bag of indices[i]
"""

import math
from typing import Any

from weft.core.types import boolean, i32, i64
from weft.frontend.aten.formulas import is_nan
from weft.frontend.aten.indexing import embedding, read
from weft.frontend.aten.scatters import scatter
from weft.frontend.aten.table import Row, require, rows
from weft.scalar.index import bounds, simplify
from weft.scalar.monoid import MAX, MIN, SUM
from weft.scalar.ops import (
    CASTS,
    apply,
    checked_index,
    constant,
    eq,
    maximum,
    minimum,
    ne,
    where,
)
from weft.scalar.sizes import Size, is_short
from weft.tensor import build
from weft.tensor.build import (
    Tensor,
    broadcast_in,
    cast,
    full,
    iota,
    reshape,
    slice_,
    unsqueeze,
)
from weft.tensor.ops import Index, Map, position

SUMS, MEANS, MAXIMA = 0, 1, 2  # modes


def even_length(offsets: Tensor, count: int) -> int | None:
    """The one length of all bags, where it follows from how the offsets are made."""
    bags, length = offsets.shape[0], count // max(1, *offsets.shape)
    whole = offsets.node.op == Map(CASTS[i32]) and count < 2**31  # of i32 indices
    begins, at = (offsets.node.args[0] if whole else offsets.node).op, position(0)
    if not isinstance(begins, Index) or length == 0 or bags * length != count:
        return None
    gap = apply("subtract", begins.term, apply("multiply", at, constant(length)))
    even = simplify(gap, {at: (0, bounds(constant(bags), {})[1] - 1)}) is constant(0)
    return length if even else None


def bag_of(offsets: Tensor, count: int) -> Tensor:
    """The bag of each index, i64: how many bags begin up to there, but for the first."""
    length = even_length(offsets, count)
    if length is not None:
        of = broadcast_in(iota(offsets.shape, 0), (*offsets.shape, length), (0,))
        return reshape(of, (count,))
    word = i32 if is_short(count) else i64
    marks = full(offsets.shape, 1, word)
    begins = scatter(SUM, full((count + 1,), 0, word), 0, offsets, marks)
    return cast(slice_(build.scan(SUM, begins, 0), 0, 0, count), i64) - 1


def starts_of(offsets: Tensor, count: int, bags: int) -> Tensor | None:
    """Where each bag begins, and the last ends; the first begins at 0. None of a free number."""
    if any(isinstance(n, Size) for n in (count, bags)) or not count:
        return None
    starts = cast(offsets, i64)
    if offsets.shape[0] == bags:
        starts = build.pad(starts, [(0, 1)], count)
    first = checked_index(slice_(cast(offsets, i64), 0, 0, 1), 1)
    return starts + build.pad(first, [(0, bags)])


def lengths_of(of: Tensor, bags: int, live: Tensor | None) -> Tensor:
    """How many indices each bag has, i64; `live` ones alone."""
    ones = full(of.shape, 1, i64) if live is None else cast(live, i64)
    return scatter(SUM, full((bags,), 0, i64), 0, of, ones)


def embedding_bag(
    weight: Tensor, indices: Tensor, offsets: Tensor, *how: Any
) -> tuple[Tensor, ...]:
    """Rows folded; then each index's bag, the bags' lengths, and which row a maximum is of.

    `how` has two switches that are about gradients alone.
    """
    _, mode, _, per_sample_weights, include_last_offset, padding_idx = how
    count, bags = indices.shape[0], offsets.shape[0] - bool(include_last_offset)
    length = None if include_last_offset else even_length(offsets, count)
    live = None if padding_idx < 0 else ne(indices, padding_idx)
    of, found = bag_of(offsets, count), build.widen(embedding(weight, indices))
    if mode == MAXIMA:
        lengths = lengths_of(of, bags, live)
        return _maxima(found, indices, of, lengths, live)
    if per_sample_weights is not None:
        found = found * build.widen(unsqueeze(per_sample_weights, 1))
    if live is not None:
        found = where(unsqueeze(live, 1), found, 0)
    starts = None if length is not None else starts_of(offsets, count, bags)
    base = full((bags, *found.shape[1:]), 0, found.dtype)
    if length is not None:
        sums = build.total(reshape(found, (bags, length, *found.shape[1:])), (1,))
    elif starts is not None:
        sums = build.runs(SUM, base, 0, starts, found)
    else:
        sums = scatter(SUM, base, 0, broadcast_in(of, found.shape, (0,)), found)
    if live is None and length is not None:
        lengths = full((bags,), length, i64)
    elif live is None and starts is not None:
        lengths = slice_(starts, 0, 1, bags) - slice_(starts, 0, 0, bags)
    else:
        lengths = lengths_of(of, bags, live)
    if mode == MEANS:
        sums = sums / cast(maximum(unsqueeze(lengths, 1), 1), sums.dtype)
    lengths = cast(lengths, indices.dtype)
    return sums, cast(of, indices.dtype), lengths, lengths


def _maxima(
    found: Tensor, indices: Tensor, of: Tensor, lengths: Tensor, live: Tensor | None
) -> tuple[Tensor, ...]:
    """Of each column the first of the largest, or the bag's first where that is NaN; 0 of none.

    As torch, which passes over any NaN but a first one.
    """
    (count, width), bags = found.shape, lengths.shape[0]
    if not count:
        return full((bags, width), 0, found.dtype), of, lengths, full((bags, width), 0, i64)
    place, each = iota((count,), 0), broadcast_in(of, found.shape, (0,))
    counts = full((count,), True, boolean) if live is None else live
    first = scatter(MIN, full((bags,), count, i64), 0, of, where(counts, place, count))
    first = broadcast_in(minimum(first, count - 1), (bags, width), (0,))
    named = broadcast_in(counts, found.shape, (0,))
    key = where(~named | is_nan(found), -math.inf, found)
    top = scatter(MAX, full((bags, width), -math.inf, key.dtype), 0, each, key)
    best = named & eq(key, read(top, (0,), [each], (1,))) & ~is_nan(found)
    at = where(best, broadcast_in(place, found.shape, (0,)), count)
    at = scatter(MIN, full((bags, width), count, i64), 0, each, at)
    at = where(is_nan(read(found, (0,), [first], (1,))), first, minimum(at, count - 1))
    some = unsqueeze(lengths > 0, 1)
    rows_ = where(some, read(indices, (0,), [at], ()), 0)
    return where(some, read(found, (0,), [at], (1,)), 0), of, lengths, rows_


def forward_only(weight: Tensor, indices: Tensor, offsets: Tensor, *how: Any) -> tuple[Tensor, ...]:
    """The same; of bags with a last offset torch has one length more, of no bag."""
    sums, of, lengths, rows_ = embedding_bag(weight, indices, offsets, *how)
    more = offsets.shape[0] - lengths.shape[0]
    return sums, of, build.pad(lengths, [(0, more)]) if more else lengths, rows_


def _gradients(grad: Tensor, of: Tensor) -> Tensor:
    """The gradient of each index's bag."""
    return build.widen(embedding(grad, of))


def embedding_bag_dense_backward(
    grad: Tensor, indices: Tensor, of: Tensor, lengths: Tensor, *how: Any
) -> Tensor:
    """The table's gradient, of as many rows as the table."""
    maxima, number, by_frequency, mode, per_sample_weights, padding_idx = how
    if mode == MAXIMA:
        each = where(unsqueeze(lengths > 0, 1), build.widen(grad), 0)
        return scatter(SUM, full((number, *grad.shape[1:]), 0, each.dtype), 0, maxima, each)
    require(not by_frequency, "torch counts other indices than it names")
    each = _gradients(grad, of)
    if per_sample_weights is not None:
        each = each * build.widen(unsqueeze(per_sample_weights, 1))
    if mode == MEANS:
        each = each / cast(unsqueeze(embedding(lengths, of), 1), each.dtype)
    if padding_idx >= 0:
        each = where(unsqueeze(ne(indices, padding_idx), 1), each, 0)
    base = full((number, *grad.shape[1:]), 0, each.dtype)
    return scatter(SUM, base, 0, broadcast_in(indices, each.shape, (0,)), each)


def embedding_bag_backward(grad: Tensor, indices: Tensor, offsets: Tensor, *rest: Any) -> Tensor:
    of, lengths, maxima, number, by_frequency, mode, sparse, weights, padding_idx = rest
    require(not sparse, "a sparse gradient is torch's to make")
    count = indices.shape[0]
    if of.shape[0] != count:
        of = bag_of(offsets, count)
    if mode != SUMS:
        live = None if padding_idx < 0 else ne(indices, padding_idx)
        lengths = lengths_of(of, grad.shape[0], live)
    how = maxima, number, by_frequency, mode, weights, padding_idx
    return embedding_bag_dense_backward(grad, indices, of, lengths, *how)


def embedding_bag_per_sample_weights_backward(
    grad: Tensor, weight: Tensor, indices: Tensor, offsets: Tensor, *how: Any
) -> Tensor:
    of, mode, padding_idx = how
    require(mode == SUMS, "its mode has no row")
    if of.shape[0] != indices.shape[0]:
        of = bag_of(offsets, indices.shape[0])
    products = _gradients(grad, of) * build.widen(embedding(weight, indices))
    sums = build.total(products, (1,))
    return sums if padding_idx < 0 else where(eq(indices, padding_idx), 0, sums)


ROWS: dict[str, Row] = rows(
    "stored",
    {
        "_embedding_bag": embedding_bag,
        "_embedding_bag_forward_only": forward_only,
        "_embedding_bag_dense_backward": embedding_bag_dense_backward,
        "_embedding_bag_backward": embedding_bag_backward,
        "_embedding_bag_per_sample_weights_backward": embedding_bag_per_sample_weights_backward,
    },
)
