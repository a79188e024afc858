"""Rows that read where other tensors point: embedding, gather, index_select, x[rows, :].

**namesakes(gather)          # one Gather node; index tensors are broadcast to the result's shape
"""

from collections.abc import Sequence
from typing import Any

from weft.core.node import make
from weft.core.types import boolean, i64, u8
from weft.frontend.aten.table import Row, namesakes, on_axis, require, rows
from weft.scalar.ops import checked_index, eq
from weft.tensor.build import Axes, Tensor, broadcast_in, broadcast_shape, cast, iota, reshape
from weft.tensor.ops import Gather

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


def one_hot(x: Tensor, num_classes: int) -> Tensor:
    require(num_classes > 0, "the number of classes is data")
    shape = (*x.shape, num_classes)
    classes = broadcast_in(checked_index(x, num_classes), shape, range(x.rank))
    return cast(eq(classes, iota(shape, x.rank)), i64)


INDEXING = {
    **namesakes(one_hot, embedding, take),
    **namesakes(*map(on_axis, (gather, index_select))),
    "index.Tensor _unsafe_index.Tensor": index_tensor,
}

ROWS: dict[str, Row] = rows("stored", INDEXING)
