"""Which classes compute the same tensor under other names of axes: exp(x[i, j]) and exp(x[i, k]).

alike(g, i) == alike(g, j)        # by the oldest term of each class, so that some are missed
"""

from collections.abc import Hashable
from typing import Any
from zlib import crc32

from weft.core.node import Node, postorder, substitute
from weft.core.types import ScalarType
from weft.scalar.ops import Axis, axis
from weft.search.egraph import EGraph

LONGEST = 64  # terms of what is compared
ANY = axis("any")


def alike(g: EGraph, i: int) -> Hashable:
    """A key that is the same for classes whose terms differ in the names of axes alone."""
    shapes: dict[int, int] = {}
    names: dict[Node, Node] = {}
    found: list[Hashable] = []

    def shape(i: int) -> int:
        """A number of a class, whatever its axes are, which orders what commutes."""
        if i not in shapes:
            term = g.terms[i][0]
            data = renamed(term.data, dict.fromkeys(_axes(term.data), ANY))
            below = sorted(shape(g.find(a)) for a in term.args)
            shapes[i] = crc32(repr((term.kind, data, below)).encode())
        return shapes[i]

    stack = [g.find(i)]
    while stack and len(found) <= LONGEST:
        term = g.terms[stack.pop()][0]
        for a in _axes(term.data):
            names.setdefault(a, axis(f"a{len(names)}_{g.extents[a]}"))
        found.append((term.kind, renamed(term.data, names), len(term.args)))
        stack += sorted(map(g.find, term.args), key=shape)
    return g.find(i) if stack else tuple(found)


def _axes(data: Any) -> list[Node]:
    """The axes in what a term has beside its operands, in order."""
    match data:
        case Node(type=ScalarType()):
            return [n for n in postorder(data) if isinstance(n.op, Axis)]
        case frozenset():
            return sorted(data, key=lambda a: a.op.label)  # type: ignore[attr-defined]
        case tuple():
            return [a for part in data for a in _axes(part)]
        case _:
            return []


def renamed(data: Any, names: dict[Node, Node]) -> Any:
    match data:
        case Node(type=ScalarType()):
            return substitute((data,), names)[0]
        case frozenset():
            return frozenset(renamed(a, names) for a in data)
        case tuple():
            return tuple(renamed(part, names) for part in data)
        case _:
            return data
