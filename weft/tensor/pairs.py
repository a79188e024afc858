"""pair_bf16: sums products of bf16 two at a time, from words that hold two neighbours along K.

before  v = map{multiply}(view(f32(x)), view(f32(w)))          x: bf16[M,K], w: bf16[N,K]
        reduce{sum, axes=(2,)}(v)
after   p = map{pack_bf16}(view{(i0, 2 i1)}(x), view{(i0, 2 i1 + 1)}(x)): bf16pair[M,K/2], q from w
        reduce{sum, axes=(2,)}(map{dot_bf16}(view(p), view(q)))

For CPUs that multiply and add a pair at once (vdpbf16ps). Products of bf16 are exact in f32: only
the order of the sums changes. If K is odd, the last word is padded with 0.
"""

from dataclasses import dataclass

from weft.core.node import Graph, Node, make
from weft.core.rules import function_name
from weft.core.types import bf16
from weft.scalar.affine import from_linear, linear
from weft.scalar.divisors import is_multiple
from weft.scalar.index import TRUE, simplify
from weft.scalar.monoid import SUM
from weft.scalar.ops import apply, bitand, dot_bf16, pack_bf16
from weft.scalar.sizes import hint
from weft.tensor.build import Tensor, affine, along, pad
from weft.tensor.ops import Map, Reduce, View, box, moved, positions
from weft.tensor.rules import simplify as simplified
from weft.tensor.rules_view import viewed

REUSE = 4  # least number of products that read a value: with fewer, packing does not pay


def pair_bf16(graph: Graph) -> Graph:
    """Pair every sum of bf16 products that reads each value at least REUSE times."""
    paired = graph.rewrite(_paired)
    return graph if paired.outputs == graph.outputs else simplified(paired)


def _paired(node: Node) -> Node | None:
    if not isinstance(node.op, Reduce) or node.op.monoid is not SUM:
        return None
    (product,) = node.args
    reads = [_read(a) for a in product.args] if function_name(product) == "multiply" else []
    found = [r for r in reads if r and hint(product.type.size) >= REUSE * hint(r.source.type.size)]
    for axis in reversed(node.op.axes) if len(found) == 2 else ():
        left, right = (r.words(axis) for r in found)
        if left is not None and right is not None:
            return make(node.op, make(Map(dot_bf16), left, right))
    return None


@dataclass(frozen=True)
class _Read:
    """A factor of the products: source[index] over their shape where `valid` holds, 0 elsewhere."""

    source: Node
    shape: tuple[int, ...]
    index: tuple[Node, ...]
    valid: Node

    def words(self, r: int) -> Node | None:
        """The factor as words, half as many along axis r; None where neighbours are no word."""
        extents = self.source.type.shape
        shape = tuple(-(-n // 2) if a == r else n for a, n in enumerate(self.shape))
        even, odd = (self._at(affine({r: 2}, half), r, shape) for half in (0, 1))
        moving = [d for d, (a, b) in enumerate(zip(even, odd, strict=True)) if a is not b]
        if len(moving) != 1 or (d := moving[0]) == len(extents):
            return None
        terms, offset = linear(even[d])
        ends = self.shape[r] % 2 == 0 or self.shape[r] == extents[d]
        if not is_multiple(even[d], 2) or not ends or linear(odd[d]) != (terms, offset + 1):
            return None
        whole = pad(Tensor(self.source), [(0, a == d and n % 2) for a, n in enumerate(extents)])
        halves = (along(whole, d, whole.shape[d] // 2, affine({d: 2}, i)).node for i in (0, 1))
        word = from_linear({a: k // 2 for a, k in terms.items()}, offset // 2)
        index = (*even[:d], word, *even[d + 1 : -1])
        return viewed(make(Map(pack_bf16), *halves), shape, index, even[-1])

    def _at(self, place: Node, r: int, shape: tuple[int, ...]) -> tuple[Node, ...]:
        """The index terms and `valid` with `place` for i_r, simplified over a shape."""
        index = tuple(place if a == r else i for a, i in enumerate(positions(len(shape))))
        return tuple(simplify(t, box(shape)) for t in moved((*self.index, self.valid), index))


def _read(node: Node) -> _Read | None:
    """The read of a factor through views and casts to f32; None if its source is not bf16."""
    shape, index, valid = node.type.shape, positions(node.type.rank), TRUE
    while isinstance(view := node.op, View) or function_name(node) == "f32":
        if isinstance(view, View):
            if view.fill != 0:
                return None
            valid = apply(bitand, valid, *moved((view.valid or TRUE,), index))
            index = moved(view.index, index)
        (node,) = node.args
    return _Read(node, shape, index, valid) if node.type.dtype is bf16 else None
