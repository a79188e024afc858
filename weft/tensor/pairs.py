"""pair_bf16: sums products of bf16 two at a time, from words that hold two neighbours along K.

before  v = map{multiply}(view(f32(x)), view(f32(w)))          x: bf16[M,K], w: bf16[N,K]
        reduce{sum, axes=(2,)}(v)
after   p = map{pack_bf16}(view{(i0, 2 i1)}(x), view{(i0, 2 i1 + 1)}(x)): bf16pair[M,K/2], q from w
        reduce{sum, axes=(2,)}(map{dot_bf16}(view(p), view(q)))

For CPUs that multiply and add a pair at once (vdpbf16ps). Products of bf16 are exact in f32: only
the order of the sums changes. If K is odd, the last word is padded with 0.
"""

from weft.core.node import Graph, Node, make
from weft.core.rules import function_name
from weft.core.types import bf16
from weft.scalar.monoid import SUM
from weft.scalar.ops import dot_bf16, pack_bf16
from weft.scalar.sizes import hint
from weft.tensor.ops import Map, Reduce
from weft.tensor.rules import simplify as simplified
from weft.tensor.words import REUSE, Read, parts, read_of


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
        left, right = (_pairs(r, axis) for r in found)
        if left is not None and right is not None:
            return make(node.op, make(Map(dot_bf16), left, right))
    return None


def _pairs(read: Read, axis: int) -> Node | None:
    """The factor as words, half as many along the axis; None where neighbours are no word."""
    words = read.words(axis, 2)
    return words and words.read(make(Map(pack_bf16), *parts(read.source, words)))


def _read(node: Node) -> Read | None:
    """The read of a factor through views and casts to f32; None if its source is not bf16."""
    read = read_of(node).through("f32")
    return read if read and read.source.type.dtype is bf16 else None
