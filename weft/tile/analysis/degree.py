"""Finds which terms scale with exp(s - maximum), for online softmax's running maximum of a row.

degrees.of(exp(s[r, c] - acc0))     # 1: twice as large where acc0 is log(2) smaller
degrees.of(s[r, c] * v[c, d])       # 0: no maximum of the row decides it
"""

import math
from dataclasses import dataclass, field

from weft.core.node import Node, bottom_up
from weft.scalar.nest import Acc, Buffer, Load
from weft.scalar.ops import CASTS, Apply, apply, constant, function_of, value_of


class NotByChunks(Exception):
    """Raised where a kernel cannot be proved right when it runs over chunks of its rows."""


@dataclass
class Degrees:
    """The degree, 0 or 1, of terms in exp(s - maximum)."""

    folds: set[Node] = field(default_factory=set[Node])  # accumulators that a row's end tells
    scaled: set[Buffer] = field(default_factory=set[Buffer])  # that hold values of degree 1
    top: Node | None = None  # the accumulator that is the maximum
    plain: bool = False  # whether the maximum is subtracted as it is, infinite or not
    known: dict[Node, int] = field(default_factory=dict[Node, int])

    def of(self, term: Node) -> int:
        """The degree of a term; NotByChunks where it is neither 0 nor 1, as for a square."""
        degree = bottom_up(term, self.known, self._of)
        if degree < 0:
            raise NotByChunks
        return degree

    def _of(self, node: Node) -> int:
        if isinstance(node.op, Acc):
            return -1 if node in self.folds else 0
        if isinstance(node.op, Load):
            return int(node.op.buffer in self.scaled)
        degrees = [self.known[a] for a in node.args]
        if not any(degrees):
            return 0
        name = function_of(node)
        if name == "exp" and self._below_top(node.args[0]):
            return 1
        if name == "multiply":
            return sum(degrees) if degrees in ([0, 1], [1, 0]) else -1
        if name in ("add", "subtract"):
            return 1 if degrees == [1, 1] else -1
        if name == "divide":
            return 1 if degrees == [1, 0] else -1
        if name == "where" and degrees == [0, 1, 0]:
            return 1 if value_of(node.args[2]) == 0 else -1
        cast = isinstance(node.op, Apply) and node.op.function in CASTS.values()
        return 1 if (cast or name == "negate") and degrees == [1] else -1

    def _below_top(self, gap: Node) -> bool:
        """Whether a term is s - maximum, where a maximum of -infinity may count as 0."""
        if self.top is None or function_of(gap) != "subtract" or self.known[gap.args[0]]:
            return False
        self.plain = self.plain or gap.args[1] is self.top
        return gap.args[1] in (self.top, finite(self.top))


def finite(top: Node) -> Node:
    """The maximum, or 0 where it is still -infinity, so that subtracting it gives no NaN."""
    dtype = top.type.dtype
    none = apply("eq", top, constant(-math.inf, dtype))
    return apply("where", none, constant(0, dtype), top)
