"""Quotients as products with reciprocals, while the search looks at a graph, and back.

graph, products = as_products(graph)        # x / y -> x * reciprocal(y)
graph = as_quotients(graph, products)       # those of them that are left are quotients again

A reciprocal is no polynomial: it is a leaf of the region that reads it, and a root of the other.
"""

from collections.abc import Collection, Mapping

from weft.core.node import Graph, Node, Nodes, bottom_up, make
from weft.scalar.ops import FUNCTIONS
from weft.scalar.sizes import hint
from weft.tensor.ops import Map, View

MULTIPLY, DIVIDE, RECIPROCAL = (Map(FUNCTIONS[n]) for n in ("multiply", "divide", "reciprocal"))


def as_products(graph: Graph) -> tuple[Graph, set[Node]]:
    """The graph without quotients by what is repeated, and the products that it has for them.

    Those are what a law may pull out of a sum; any other quotient stays what cuts a region.
    """
    products: set[Node] = set()

    def change(node: Node) -> Node | None:
        if node.op != DIVIDE or node.type.dtype.compute is not node.type.dtype:
            return None
        x, y = node.args
        spread = isinstance(y.op, View) and y.op.valid is None
        if not spread or hint(y.args[0].type.size) >= hint(node.type.size):
            return None
        one = make(y.op, make(RECIPROCAL, y.args[0]))
        product = make(MULTIPLY, x, one)
        products.add(product)
        return product

    return graph.rewrite(change), products


def as_quotients(graph: Graph, products: Collection[Node]) -> Graph:
    """The graph with quotients for products with reciprocals."""
    memo: dict[Node, Node] = {}

    def compute(node: Node) -> Node:
        args = tuple(memo[a] for a in node.args)
        if node in products and node.op == MULTIPLY:
            y = _divisor(args[1])
            if y is not None:
                return make(DIVIDE, args[0], y)
        return node if args == node.args else make(node.op, *args)

    return rewritten(graph, memo, tuple(bottom_up(n, memo, compute) for n in graph.outputs))


def _divisor(node: Node) -> Node | None:
    """What the node is the reciprocal of, if it is one."""
    spread = isinstance(node.op, View) and node.args[0].op == RECIPROCAL
    return make(node.op, node.args[0].args[0]) if spread else None


def rewritten(graph: Graph, memo: Mapping[Node, Node], outputs: Nodes) -> Graph:
    """A graph of nodes that `memo` has for the old ones, which keep names and origins."""
    names = {memo.get(n, n): name for n, name in graph.names.items()} | graph.names
    origin = {memo[n]: graph.origin[n] for n in memo if n in graph.origin} | graph.origin
    return Graph(graph.level, graph.name, graph.inputs, outputs, names, origin)
