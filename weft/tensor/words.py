"""Words of neighbours along a sum: what a CPU multiplies and adds up several at a time.

read = read_of(factor).through("f32")   # the tensor that a factor reads, and where
read.words(r, 2)                        # how words of two neighbours along axis r are read
"""

from dataclasses import dataclass

from weft.core.node import Graph, Node
from weft.core.rules import function_name
from weft.scalar.affine import from_linear, linear
from weft.scalar.divisors import is_multiple
from weft.scalar.index import TRUE, simplify
from weft.scalar.ops import PACKS, apply, bitand
from weft.tensor.build import Tensor, affine, along, pad
from weft.tensor.ops import Input, View, box, moved, positions
from weft.tensor.rules_view import viewed

REUSE = 4  # least number of products that read a value: with fewer, packing does not pay


@dataclass(frozen=True)
class Words:
    """A read of words: `axis` is that of the source along which `each` elements are one word."""

    axis: int
    each: int
    shape: tuple[int, ...]
    index: tuple[Node, ...]
    valid: Node

    def read(self, words: Node) -> Node:
        return viewed(words, self.shape, self.index, self.valid)


@dataclass(frozen=True)
class Read:
    """A factor of the products: source[index] over their shape where `valid` holds, 0 elsewhere."""

    source: Node
    shape: tuple[int, ...]
    index: tuple[Node, ...]
    valid: Node

    def words(self, r: int, n: int) -> Words | None:
        """Words of n neighbours, of which axis r has so many fewer; None where they are no word."""
        extents = self.source.type.shape
        shape = tuple(-(-e // n) if a == r else e for a, e in enumerate(self.shape))
        first, *others = (self._at(affine({r: n}, i), r, shape) for i in range(n))
        moving = {d for o in others for d, place in enumerate(o) if place is not first[d]}
        if len(moving) != 1 or (d := moving.pop()) == len(extents):
            return None
        terms, offset = linear(first[d])
        ends = self.shape[r] % n == 0 or self.shape[r] == extents[d]
        follow = all(linear(o[d]) == (terms, offset + i) for i, o in enumerate(others, 1))
        if not is_multiple(first[d], n) or not ends or not follow:
            return None
        word = from_linear({a: k // n for a, k in terms.items()}, offset // n)
        return Words(d, n, shape, (*first[:d], word, *first[d + 1 : -1]), first[-1])

    def through(self, cast: str) -> "Read | None":
        """The read of what is behind views that fill with 0, and casts of that name."""
        node, index, valid = self.source, self.index, self.valid
        while isinstance(view := node.op, View) or function_name(node) == cast:
            if isinstance(view, View):
                if view.fill != 0:
                    return None
                if view.valid is not None:
                    valid = apply(bitand, valid, *moved((view.valid,), index))
                index = moved(view.index, index)
            (node,) = node.args
        return Read(node, self.shape, index, valid)

    def _at(self, place: Node, r: int, shape: tuple[int, ...]) -> tuple[Node, ...]:
        """The index terms and `valid` with `place` for i_r, simplified over a shape."""
        index = tuple(place if a == r else i for a, i in enumerate(positions(len(shape))))
        return tuple(simplify(t, box(shape)) for t in moved((*self.index, self.valid), index))


def read_of(node: Node) -> Read:
    """A factor as a read of itself."""
    return Read(node, node.type.shape, positions(node.type.rank), TRUE)


def parts(source: Node, words: Words) -> list[Node]:
    """The first, second ... elements of all words; the last word is padded with 0."""
    extents, d, n = source.type.shape, words.axis, words.each
    ends = [(0, -e % n if a == d else 0) for a, e in enumerate(extents)]
    whole = pad(Tensor(source), ends)
    return [along(whole, d, whole.shape[d] // n, affine({d: n}, i)).node for i in range(n)]


def in_memory(graph: Graph) -> set[Node]:
    """Words that memory holds as they are: a kernel of their own is left out, its input is read."""
    return {n for n in graph.nodes() if function_name(n) in PACKS and _is_in_memory(n)}


def _is_in_memory(words: Node) -> bool:
    (first, *_), n = words.args, len(words.args)
    views = [a.op for a in words.args if isinstance(a.op, View) and a.args == first.args]
    source = first.args[0] if len(views) == n else words
    if not isinstance(source.op, Input) or any(v.valid is not None for v in views):
        return False
    shape, last = source.type.shape, source.type.rank - 1
    row = (*shape[:-1], shape[-1] // n) == words.type.shape and shape[-1] % n == 0
    if not row or source.type.layout[last] != 1:
        return False
    places = [(*positions(last), affine({last: n}, i)) for i in range(n)]
    return [v.index for v in views] == places
