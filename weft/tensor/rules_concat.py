"""A contraction along a concatenation, split into a contraction per piece where that moves less.

reduce{sum, k}(concat(a, b)[m, k] * w[k, n])
    reduce{sum, k < K}(a * w[:K]) + reduce{sum, k >= K}(b * w[K:])
The concatenation costs a write and a read of its elements; splitting costs a write and a read of
the result, so it pays for results no larger than the concatenation. The other direction never
does here: contractions that are added share one loop nest, without copying their operands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from weft.core.graph import Graph
from weft.core.node import Node, make
from weft.scalar.index import function_of, simplify
from weft.scalar.ops import add, apply, constant, value_of
from weft.tensor.ops import Index, Map, Reduce, View, box, moved, position, positions
from weft.tensor.rules_map import TENSORS
from weft.tensor.rules_view import viewed

SMALLEST_PIECE = 16  # a shorter contraction does not fill a register tile


def concat_boundary(x: Node, axis: int, users: Mapping[Node, int]) -> tuple[int, int] | None:
    """Where along an output axis a (viewed) concatenation of one user switches; and its size."""
    view = x.op if isinstance(x.op, View) and x.op.valid is None else None
    choice = x.args[0] if view is not None else x
    is_choice = isinstance(choice.op, Map) and choice.op.function.name == "where"
    if not is_choice or not isinstance(choice.args[0].op, Index):
        return None
    if users.get(choice, 0) > 1 or users.get(x, 0) > 1:
        return None  # the concatenation is made anyway
    shape = x.type.shape
    (condition,) = moved((choice.args[0].op.term,), view.index if view else positions(len(shape)))
    condition = simplify(condition, box(shape))
    limit = value_of(condition.args[1]) if function_of(condition) in ("lt", "ge") else None
    if limit is None or condition.args[0] is not position(axis):
        return None
    return int(limit), choice.type.size


def part(x: Node, axis: int, start: int, extent: int) -> Node:
    """A slice of x, with the choice of a concatenation made when the slice lies in one piece."""
    if x.type.rank == 0:
        return x
    shape = tuple(extent if i == axis else n for i, n in enumerate(x.type.shape))
    index = list(positions(len(shape)))
    index[axis] = apply(add, index[axis], constant(start)) if start else index[axis]
    if isinstance(x.op, View) and x.op.valid is None:
        inner = moved(x.op.index, tuple(index))
        return _chosen(x.args[0], shape, inner)
    return _chosen(x, shape, tuple(index))


def _chosen(x: Node, shape: tuple[int, ...], index: tuple[Node, ...]) -> Node:
    if isinstance(x.op, Map) and x.op.function.name == "where" and isinstance(x.args[0].op, Index):
        (condition,) = moved((x.args[0].op.term,), index)
        chosen = value_of(simplify(condition, box(shape)))
        if chosen is not None:
            x = x.args[1 if chosen else 2]
            return _chosen(x, shape, index)
    return viewed(x, shape, index if x.type.rank else ())


def split(node: Node, users: Mapping[Node, int]) -> Node | None:
    """The contraction as a sum of two, None when it is none or it does not pay."""
    product = node.args[0] if isinstance(node.op, Reduce) else None
    if product is None or not isinstance(node.op, Reduce) or not isinstance(product.op, Map):
        return None
    contracts = node.op.monoid.name == "sum" and product.op.function.name == "multiply"
    if not contracts or len(node.op.axes) != 1:
        return None
    (axis,), extent = node.op.axes, product.type.shape[node.op.axes[0]]
    for operand in product.args:
        found = concat_boundary(operand, axis, users) if operand.type.rank else None
        if found is None:
            continue
        at, size = found
        if min(at, extent - at) < SMALLEST_PIECE or node.type.size > size:
            continue
        pieces = [
            make(node.op, make(product.op, *(part(a, axis, start, n) for a in product.args)))
            for start, n in ((0, at), (at, extent - at))
        ]
        return TENSORS.call("add", *pieces)
    return None


def split_concats(graph: Graph) -> Graph:
    """Split every contraction along a concatenation that pays; the same graph when none does."""
    users = Counter(a for n in graph.nodes() for a in dict.fromkeys(n.args))
    users.update(graph.outputs)
    # rewritten nodes are new to `users`, so a concatenation of three is split at most twice
    wanted = {n: new for n in graph.nodes() if (new := split(n, users)) is not None}
    return graph.rewrite(wanted.get) if wanted else graph
