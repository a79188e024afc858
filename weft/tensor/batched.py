"""A graph over slices as one over whole tensors: every op with one axis more in front.

batch = Batch({h: (hs, True), w: (w, False)}, 24)     # body's tensors: with the axis, or not
batch.of(y)                                           # the 24 values of y, stacked: [24, ...]
batch.summed(y)                                       # their sum
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from weft.core.node import Node, Nodes, bottom_up, make
from weft.scalar.monoid import SUM
from weft.scalar.ops import constant
from weft.tensor.build import Tensor, squeeze
from weft.tensor.layouts import Contiguous
from weft.tensor.ops import (
    Gather,
    Index,
    Map,
    Reduce,
    Scalar,
    Scan,
    Scatter,
    Select,
    Shape,
    Sort,
    View,
    moved,
    position,
    positions,
)
from weft.tensor.rules_view import axes_of, viewed

ALONG = Scan | Scatter | Select | Sort
BATCHED = ALONG | Contiguous | Gather | Index | Map | Reduce | Scalar | View

Value = tuple[Node, bool]  # a tensor, and whether it has the axis


def shifted(terms: Nodes, rank: int) -> Nodes:
    """Index terms over axes that stand one place further back."""
    return moved(terms, tuple(position(i + 1) for i in range(rank)))


class Batch:
    """`known` are tensors that have a stack already, or are the same in each slice."""

    def __init__(self, known: Mapping[Node, Value], count: int) -> None:
        self.count = count
        self.values: dict[Node, Value] = dict(known)

    def of(self, node: Node) -> Node:
        """The stack of all values of a tensor."""
        return self.stack(bottom_up(node, self.values, self._made), node.type.shape)

    def stack(self, value: Value, shape: Shape) -> Node:
        """The value with the axis, and of that shape behind it."""
        found, has = value
        shape, inner = (self.count, *shape), found.type.shape[has:]
        index = positions(len(shape))
        kept = index[:1] * has + (index[1:] if inner else ())
        return viewed(found, shape, kept)

    def summed(self, node: Node) -> Node:
        """The sum of all values; of products, a sum over one more axis."""
        return squeeze(Tensor(self._summed(self.of(node))), (0,)).node

    def _summed(self, node: Node) -> Node:
        """The sum along axis 0, which keeps length 1."""
        op = node.op
        if isinstance(op, Reduce) and op.monoid is SUM:
            return make(replace(op, axes=tuple(sorted({0, *op.axes}))), *node.args)
        if isinstance(op, View) and op.valid is None and _keeps_first(op):
            inner = self._summed(node.args[0])
            return viewed(inner, (1, *op.shape[1:]), (constant(0), *op.index[1:]))
        return make(Reduce(SUM, (0,)), node)

    def _made(self, node: Node) -> Value:
        op: Any = node.op
        given = [self.values[a] for a in node.args]
        if not any(has for _, has in given):
            return make(op, *(n for n, _ in given)), False
        if isinstance(op, View):
            terms = (*op.index, *((op.valid,) if op.valid is not None else ()))
            index = (position(0), *shifted(terms, len(op.shape)))
            valid = index[-1] if op.valid is not None else None
            index = index[: 1 + len(op.index)]
            return viewed(given[0][0], (self.count, *op.shape), index, valid, op.fill), True
        pairs = zip(given, node.args, strict=True)
        if isinstance(op, Gather) and not given[0][1]:
            table, *rows = given
            shapes = zip(rows, node.args[1:], strict=True)
            stacks = [self.stack(v, a.type.shape) for v, a in shapes]
            moved_on = replace(op, rest=tuple(r + 1 for r in op.rest))
            return make(moved_on, table[0], *stacks), True
        shape = node.type.shape
        shapes = [shape if isinstance(op, Map) else a.type.shape for _, a in pairs]
        stacks = [
            v[0] if isinstance(op, Map) and not (v[1] or v[0].type.rank) else self.stack(v, s)
            for v, s in zip(given, shapes, strict=True)
        ]
        return make(_further(op), *stacks), True


def _keeps_first(view: View) -> bool:
    """Whether axis 0 is that of what it reads, and nothing else there."""
    index = view.index
    return index[:1] == positions(1) and position(0) not in axes_of(*index[1:])


def _further(op: Any) -> Any:
    """The op with its axes one place further back."""
    if isinstance(op, Gather):
        axes, rest = (tuple(a + 1 for a in found) for found in (op.axes, op.rest))
        return replace(op, axes=axes, rest=(0, *rest))
    if isinstance(op, Reduce):
        return replace(op, axes=tuple(a + 1 for a in op.axes))
    return replace(op, axis=op.axis + 1) if isinstance(op, ALONG) else op
