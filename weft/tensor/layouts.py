"""The op of layouts: a tensor in memory of its own, so that what reads it does so in order.

y = contiguous(view{[4096,16] -> (i1, i0)}(x))      # rows of 16 side by side, if that is cheaper
Views cost nothing and compose; a lookup in one that transposes goes from line to line. Fusion
prices a kernel that copies against reading as the view does, and may do without the copy.
"""

from weft.core.node import Graph, Node, Op, op
from weft.core.types import TensorType


@op("contiguous")
class Contiguous(Op):
    """The same elements, row-major: a copy that fusion may leave out, and no rule looks through."""

    def infer(self, x: TensorType) -> TensorType:
        return TensorType(x.dtype, x.shape)

    def evaluate(self, x: object) -> object:
        return x


def without_layouts(graph: Graph) -> Graph:
    """The graph without copies: threads of a GPU that go over places each read other lines."""

    def same(node: Node) -> Node | None:
        return node.args[0] if isinstance(node.op, Contiguous) else None

    return graph.rewrite(same)
