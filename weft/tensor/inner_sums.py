"""nest_sums: takes factors that groups of terms share out of the sums over those groups.

before  w = map{multiply}(codes, view{(i0, i1)}(scale))         codes: [N,K/g,g], scale: [N,K/g]
        reduce{sum, axes=(2,)}(map{multiply}(view(x), view{(i1, i2 // g, i2 % g)}(w)))
after   t = reduce{sum, axes=(3,)}(map{multiply}(view(x), view{(i1, i2, i3)}(codes)))
        reduce{sum, axes=(2,)}(map{multiply}(t, view{(i1, i2)}(scale)))

Sums are added in another order, and a product's rounding to 16 bits inside a sum is left out, so
that results are nearer to exact ones; only where the sum of a group is beyond f32 without its scale
is it infinite, as it is for scales of whole rows. Where many products read each code, w is computed
once for all of them, and the sum stays one.
"""

from dataclasses import dataclass

from weft.core.node import Graph, Node, make, postorder
from weft.core.rules import function_name
from weft.core.types import Symbolic, f32
from weft.scalar.affine import function_of
from weft.scalar.index import TRUE, simplify
from weft.scalar.monoid import SUM
from weft.scalar.ops import apply, bitand, multiply, value_of
from weft.scalar.sizes import hint
from weft.tensor.build import affine
from weft.tensor.ops import Map, Reduce, View, box, moved, position, positions
from weft.tensor.rules import simplify as simplified
from weft.tensor.rules_view import axes_of, viewed

FEW = 12  # products that read a value: with as many, it is multiplied once for all of them


def nest_sums(graph: Graph) -> Graph:
    """Every sum over groups as a sum of sums, where few products read what the groups hold."""
    nested = graph.rewrite(_nested)
    return graph if nested.outputs == graph.outputs else simplified(nested)


@dataclass(frozen=True)
class _Factor:
    """A factor of the products: source[index] over their shape where `valid` holds, 0 elsewhere."""

    source: Node
    index: tuple[Node, ...]
    valid: Node

    def moved(self, place: tuple[Node, ...], shape: tuple[int, ...]) -> "_Factor":
        """The same over another shape, whose coordinates `place` is made of."""
        *index, valid = (simplify(t, box(shape)) for t in moved((*self.index, self.valid), place))
        return _Factor(self.source, tuple(index), valid)

    def reads(self, axis: Node) -> bool:
        return axis in axes_of(*self.index, self.valid)

    def node(self, shape: tuple[int, ...]) -> Node:
        return viewed(self.source, shape, self.index, self.valid)


def _nested(node: Node) -> Node | None:
    if not isinstance(node.op, Reduce) or node.op.monoid is not SUM or node.op.finite:
        return None
    (product,), axes = node.args, node.op.axes
    if len(axes) != 1 or not product.type.dtype.is_float or function_name(product) != "multiply":
        return None
    found = _factors(product, positions(product.type.rank), TRUE)
    shape, r = product.type.shape, axes[0]
    if len(found) < 3 or isinstance(shape[r], Symbolic):
        return None
    groups = [n for n in _groups(found, position(r)) if 1 < n < shape[r] and shape[r] % n == 0]
    return _by_groups(node, found, r, min(groups)) if groups else None


def _by_groups(node: Node, found: list[_Factor], r: int, group: int) -> Node | None:
    """The sum along r by groups of terms; None where no factor leaves them, or where many read."""
    before, after = (s := node.args[0].type.shape)[:r], s[r + 1 :]
    shape = (*before, s[r] // group, group, *after)
    places = positions(len(shape))
    place = (*places[:r], affine({r: group, r + 1: 1}), *places[r + 2 :])
    factors = [f.moved(place, shape) for f in found]
    inner = [f for f in factors if f.reads(position(r + 1))]
    outer = [f for f in factors if f not in inner]
    often = hint(node.args[0].type.size) // group // FEW
    if len(inner) < 2 or not any(hint(f.source.type.size) > often for f in outer):
        return None
    total = make(Reduce(SUM, (r + 1,)), _product([f.node(shape) for f in inner]))
    shape = (*shape[: r + 1], 1, *after)
    sums = make(Reduce(SUM, (r,)), _product([total, *(f.node(shape) for f in outer)]))
    back = (*positions(r + 1), *(position(i) for i in range(r, len(node.type.shape))))
    return viewed(sums, node.type.shape, back)


def _product(factors: list[Node]) -> Node:
    first, *more = factors
    for other in more:
        first = make(Map(multiply), first, other)
    return first


def _factors(node: Node, index: tuple[Node, ...], valid: Node) -> list[_Factor]:
    """The factors of a product, through views; what rounds a product is looked through."""
    if isinstance(view := node.op, View) and view.fill == 0:
        valid = apply(bitand, valid, *moved((view.valid or TRUE,), index))
        return _factors(node.args[0], moved(view.index, index), valid)
    if function_name(node) == "multiply" and all(
        a.type.shape == node.type.shape for a in node.args
    ):
        return [f for a in node.args for f in _factors(a, index, valid)]
    rounded = node
    while function_name(rounded) in ("f32", "bf16", "f16") and rounded.args[0].type.dtype.is_float:
        (rounded,) = rounded.args
    if rounded is not node and rounded.type.dtype is f32 and _is_product(rounded):
        return _factors(rounded, index, valid)
    return [_Factor(node, index, valid)]


def _is_product(node: Node) -> bool:
    while isinstance(node.op, View):
        (node,) = node.args
    return function_name(node) == "multiply"


def _groups(factors: list[_Factor], along: Node) -> set[int]:
    """The numbers that factors divide a coordinate by."""
    terms = postorder(*(t for f in factors for t in (*f.index, f.valid)))
    divided = (t for t in terms if function_of(t) == "floordiv" and t.args[0] is along)
    return {int(n) for t in divided if (n := value_of(t.args[1])) is not None}
