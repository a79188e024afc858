"""trim_scatters: a scatter makes only the rows that are read, and leaves out what goes to others.

before  s = scatter{sum, axis=0}(base, index, x): f32[769,256]
        v = view{[768,256] -> (i0, i1)}(s)
after   b = view{[768,256] -> (i0, i1)}(base)
        v = scatter{sum, axis=0, beyond=1}(b, index, x): f32[768,256]

Lists that are padded to one length name a row past a table's end, and the gradient of that row is
cut off: nearly half of what an NNUE's lists add.
"""

from collections.abc import Sequence

from weft.core.node import Graph, Node, make, op_of
from weft.core.types import Symbolic
from weft.tensor.build import Tensor, slice_
from weft.tensor.ops import Scatter, View, positions
from weft.tensor.rules import simplify


def trim_scatters(graph: Graph) -> Graph:
    """Trim every scatter of which all that is read are its first rows, as many each time."""
    trimmed = graph
    while (found := _trimmed(trimmed)) is not None:
        trimmed = found
    return graph if trimmed is graph else simplify(trimmed)


def _trimmed(graph: Graph) -> Graph | None:
    """The graph with one scatter trimmed, None where there is none to trim."""
    for node, users in graph.users().items():
        if isinstance(node.op, Scatter) and node not in graph.outputs:
            rows = {_rows_read(user, node.op.axis) for user in users}
            if len(rows) == 1 and (n := rows.pop()) is not None:
                return _replaced(graph, users, shortened(node, n))
    return None


def _replaced(graph: Graph, old: Sequence[Node], new: Node) -> Graph:
    return graph.rewrite(lambda node: new if node in old else None)


def _rows_read(user: Node, axis: int) -> int | None:
    """How many of the first rows a view of a scatter is; None where it is not some of these."""
    op, shape = user.op, user.args[0].type.shape
    if not isinstance(op, View) or op.valid is not None or op.index != positions(len(shape)):
        return None
    others = (d == axis or op.shape[d] == n for d, n in enumerate(shape))
    known = not isinstance(op.shape[axis], Symbolic) and not isinstance(shape[axis], Symbolic)
    return op.shape[axis] if known and all(others) and op.shape[axis] < shape[axis] else None


def shortened(node: Node, rows: int) -> Node:
    """The first rows of a scatter, as one that leaves out what goes beyond."""
    op, (base, *rest) = op_of(node, Scatter), node.args
    beyond = op.beyond + node.type.shape[op.axis] - rows
    start = slice_(Tensor(base), op.axis, 0, rows).node
    return make(Scatter(op.monoid, op.axis, beyond), start, *rest)
