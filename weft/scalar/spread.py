"""How far apart the values of an index term are in neighbouring iterations of an axis.

spread((a0 + 1) // 2, a0, 16, {a0: (0, 1023)})     # (0, 8): of 16, from that in the first one on
What 16 lanes read is then among 9 elements, which one load has.
"""

from weft.core.node import Node, bottom_up
from weft.scalar.affine import function_of
from weft.scalar.intervals import Interval, Ranges
from weft.scalar.nest import free_variables
from weft.scalar.ops import value_of
from weft.scalar.symbols import bounded


def spread(term: Node, axis: Node, count: int, ranges: Ranges) -> Interval | None:
    """The least and greatest of term(axis + i) - term(axis), 0 <= i < count; None where unknown.

    `ranges` include all of these iterations, so that a sum with known bounds is no sum that wraps.
    """
    memo: dict[Node, Interval | None] = {}

    def parts(node: Node) -> tuple[Node, ...]:
        return node.args[-2:] if axis in free_variables(node) else ()

    def one(node: Node) -> Interval | None:
        if axis not in free_variables(node):
            return 0, 0
        if node is axis:
            return 0, count - 1
        moved = [found for a in node.args[-2:] if (found := memo[a]) is not None]
        return _moved(node, *moved) if len(moved) == 2 and bounded(node, ranges) else None

    return bottom_up(term, memo, one, parts)


def _moved(node: Node, left: Interval, right: Interval) -> Interval | None:
    """How far a term moves from how far its last two arguments do."""
    (low, high), (first, last), by = left, right, value_of(node.args[1])
    match function_of(node):
        case "add":
            return low + first, high + last
        case "subtract":
            return low - last, high - first
        case "multiply" if by is not None:
            return min(low * by, high * by), max(low * by, high * by)
        case "floordiv" if by is not None and by > 0:  # as floor(x + y) <= floor(x) + ceil(y)
            return low // by, -(-high // by)
        case "minimum" | "maximum":  # of which each moves by no more than what it is of
            return min(low, first), max(high, last)
        case _:
            return None
