"""fold_in_one_pass: computes two dependent reductions of the same data in one pass where cheaper.

graph = fold_in_one_pass(graph, price)
sum((x - mean(x))^2)  ->  reduce{welford}(x)          sum(exp(x - max(x)))  ->  reduce{sumexp}(x)
Equal in real arithmetic, rounded differently; Welford 1962, Milakov and Gimelshein 2018.
"""

import math

from weft.core.node import Graph, Node, bottom_up, make
from weft.core.rules import function_name
from weft.scalar.monoid import MAX, SUM, SUMEXP, WELFORD, Monoid
from weft.scalar.nest import Buffer
from weft.tensor.groups import Price
from weft.tensor.lower import lower_group
from weft.tensor.ops import Reduce, Scalar, View
from weft.tensor.terms import is_stored_only


def fold_in_one_pass(graph: Graph, price: Price) -> Graph:
    """Replace a two-pass statistic by a one-pass monoid wherever the nest's price is lower."""

    def change(node: Node) -> Node | None:
        found = _statistic(node)
        if found is None:
            return None
        monoid, x = found
        one = make(Reduce(monoid, node.op.axes), x)  # type: ignore[attr-defined]
        return one if _price(one, x, price) < _price(node, x, price) else None

    return graph.rewrite(change)


def _price(node: Node, x: Node, price: Price) -> float:
    """Price of the kernel that computes `node` from x and other tensors, which have buffers."""

    def is_read(n: Node) -> bool:
        return n is x or is_stored_only(n)

    reached: dict[Node, int] = {}
    bottom_up(node, reached, lambda n: len(reached), lambda n: () if is_read(n) else n.args)
    buffers = {n: Buffer(f"b{i}", n.type) for n, i in reached.items() if is_read(n)}
    return price(lower_group((node,), buffers, {node: Buffer("y", node.type)}))


def _statistic(node: Node) -> tuple[Monoid, Node] | None:
    """The monoid and the x whose statistic the node is: welford or sumexp; else None."""
    if not isinstance(node.op, Reduce) or node.op.monoid is not SUM or not node.type.dtype.is_float:
        return None
    value, axes = node.args[0], node.op.axes
    if not value.args or function_name(value.args[0]) != "subtract":
        return None
    if function_name(value) == "multiply" and value.args[0] is value.args[1]:
        x, mean = value.args[0].args
        total = _statistic_of(mean, x, axes)
        if total is not None and function_name(total) == "multiply" and _is_mean(total, x, axes):
            return WELFORD, x
    if function_name(value) == "exp":
        x, top = value.args[0].args
        if _statistic_of(top, x, axes) is make(Reduce(MAX, axes), x):
            return SUMEXP, x
    return None


def _statistic_of(view: Node, x: Node, axes: tuple[int, ...]) -> Node | None:
    """The tensor that `view` broadcasts along the folded axes to x's shape; else None."""
    if not isinstance(view.op, View) or view.type.shape != x.type.shape:
        return None
    (source,) = view.args
    kept = tuple(1 if i in axes else n for i, n in enumerate(x.type.shape))
    plain = make(View(view.type.shape, view.op.index), source)
    return source if source.type.shape == kept and plain is view else None


def _is_mean(node: Node, x: Node, axes: tuple[int, ...]) -> bool:
    count = math.prod(x.type.shape[a] for a in axes)
    scale = [a.op.value for a in node.args if isinstance(a.op, Scalar)]
    sums = [a for a in node.args if a is make(Reduce(SUM, axes), x)]
    return bool(sums) and len(scale) == 1 and abs(scale[0] * count - 1) < 1e-6
