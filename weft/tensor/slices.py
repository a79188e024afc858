"""join_slices: reductions of slices that cover a tensor are slices of its one reduction.

before  a = view{[64,96] -> (i0, i1)}(x)          after  s = reduce{sum, axes=(0,)}(x): f32[1,160]
        b = view{[64,64] -> (i0, i1 + 96)}(x)             view{[1,96] -> (0, i1)}(s)
        reduce{sum, axes=(0,)}(a)                         view{[1,64] -> (0, i1 + 96)}(s)
        reduce{sum, axes=(0,)}(b)

So the gradient of a bias that both halves of a `cat` share is one pass over what both came from,
beside other sums over the same rows.
"""

from collections import defaultdict
from itertools import pairwise

from weft.core.node import Graph, Node, make, op_of
from weft.scalar.affine import linear
from weft.scalar.ops import apply, constant
from weft.scalar.sizes import is_short
from weft.tensor.ops import Reduce, View, position, positions


def join_slices(graph: Graph) -> Graph:
    """Join reductions over the same axes of slices that have each element of a tensor once."""
    found: dict[tuple[Node, Reduce, int], dict[int, Node]] = defaultdict(dict)
    for node in graph.nodes():
        if isinstance(node.op, Reduce) and (place := _place(node)) is not None:
            axis, start = place
            found[node.args[0].args[0], node.op, axis][start] = node
    whole: dict[Node, Node] = {}
    for (x, op, axis), slices in found.items():
        if _covers(x.type.shape[axis], axis, slices):
            whole |= {node: _slice(make(op, x), node, axis, k) for k, node in slices.items()}
    return graph.rewrite(whole.get) if whole else graph


def _place(node: Node) -> tuple[int, int] | None:
    """The axis along which what is reduced is a slice, and where it starts; None for others."""
    view, op = node.args[0].op, op_of(node, Reduce)
    if not isinstance(view, View) or view.valid is not None:
        return None
    shape = node.args[0].args[0].type.shape
    same = len(shape) == len(view.shape) and all(map(is_short, (*shape, *view.shape)))
    cut = [a for a, n in enumerate(shape) if same and view.shape[a] != n]
    if len(cut) != 1 or cut[0] in op.axes:
        return None
    terms = enumerate(zip(view.index, positions(len(shape)), strict=True))
    others = (t is p for a, (t, p) in terms if a not in cut)
    form, start = linear(view.index[cut[0]])
    return (cut[0], start) if all(others) and form == {position(cut[0]): 1} else None


def _covers(extent: int, axis: int, slices: dict[int, Node]) -> bool:
    """Whether slices that start there follow each other, from the first element to the last."""
    ends = {start: start + node.args[0].type.shape[axis] for start, node in slices.items()}
    order = sorted(ends)
    follow = all(ends[a] == b for a, b in pairwise(order))
    return order[0] == 0 and ends[order[-1]] == extent and follow


def _slice(whole: Node, node: Node, axis: int, start: int) -> Node:
    """What the node is of the reduction of the whole."""
    axes, rank = op_of(node, Reduce).axes, node.type.rank
    index = [constant(0) if a in axes else position(a) for a in range(rank)]
    index[axis] = apply("add", index[axis], constant(start)) if start else index[axis]
    return make(View(node.type.shape, tuple(index)), whole)
