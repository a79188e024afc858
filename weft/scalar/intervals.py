"""Intervals of index terms. symbols.py bounds affine forms, where these are too coarse.

bounds(a0 * 64 + a1, {a0: (0, 31), a1: (0, 63)})       # (0, 2047)
"""

import math
from collections.abc import Callable, Mapping
from functools import lru_cache

from weft.core.node import Node
from weft.core.types import Symbolic
from weft.scalar.affine import GREATEST, LEAST, Linear
from weft.scalar.ops import Constant, Symbol, function_of

Interval = tuple[float, float]  # inclusive; infinite where nothing is known
# Of axes. The end of an interval may be a size (a Symbolic); those that `bounds` gives never are.
Ranges = Mapping[Node, Interval]
UNKNOWN: Interval = (-math.inf, math.inf)


class Known(dict[Node, Interval]):
    """Ranges of axes, with a cache of what follows from them.

    The mapping itself caches intervals of terms. `sums` has intervals of affine forms without their
    constant, from `narrow`; `divisions` has (function, x, divisor) -> the simplified division,
    and ("whole", x, size) -> x // size with all that it reads simplified;
    `last` has the greatest values of axes where those are no numbers, and `first` the least ones;
    `lowest` has forms over sizes that forms without their constant are never below.
    """

    def __init__(self, ranges: Ranges) -> None:
        last = {a: high.term for a, (_, high) in ranges.items() if isinstance(high, Symbolic)}
        numbers = {a: (ranges[a][0], bounds(term, {})[1]) for a, term in last.items()}
        super().__init__({**ranges, **numbers} if last else ranges)
        self.last: dict[Node, Node] = {**getattr(ranges, "last", {}), **last}
        self.first: dict[Node, Node] = {}
        self.sums: dict[frozenset[tuple[Node, int]], Interval] = {}
        self.divisions: dict[tuple[str, Node, int | Node], Node] = {}
        self.lowest: dict[frozenset[tuple[Node, int]], tuple[Linear, float]] = {}


def as_known(ranges: Ranges) -> Known:
    return ranges if isinstance(ranges, Known) else _known_of(tuple(ranges.items()))


@lru_cache(maxsize=1 << 10)
def _known_of(ranges: tuple[tuple[Node, Interval], ...]) -> Known:
    """One for equal ranges: what follows from them is proved once."""
    return Known(dict(ranges))


def bounds(node: Node, ranges: Ranges) -> Interval:
    """Smallest interval this analysis proves for an i64 term; UNKNOWN where it could wrap."""
    known = as_known(ranges)
    found = known.get(node)
    if found is None:
        found = known[node] = _bounds(node, known)
    return found


def _bounds(node: Node, known: Known) -> Interval:
    if isinstance(node.op, Constant):
        return (node.op.value, node.op.value)
    if isinstance(node.op, Symbol):
        return (node.op.low, node.op.high)
    within = INTERVALS.get(function_of(node) or "")
    return within(*(bounds(a, known) for a in node.args[-2:])) if within else UNKNOWN


def in_range(low: float, high: float) -> Interval:
    """The interval; UNKNOWN where a value in it could wrap."""
    return (low, high) if low >= LEAST and high <= GREATEST else UNKNOWN


def _product(a: Interval, b: Interval) -> Interval:
    if not all(map(math.isfinite, a + b)):
        return UNKNOWN
    corners = [x * y for x in a for y in b]
    return in_range(min(corners), max(corners))


def _quotient(a: Interval, by: Interval) -> Interval:
    if by[0] <= 0 or math.isinf(by[1]):
        return UNKNOWN
    low, high = ([v if math.isinf(v) else v // b for b in by] for v in a)
    return min(low), max(high)


def _rest(a: Interval, by: Interval) -> Interval:
    if by[0] <= 0 or math.isinf(by[1]):
        return UNKNOWN
    return a if a[0] >= 0 and a[1] < by[0] else (0, by[1] - 1)


# Function -> the interval of its values from those of its last two arguments.
INTERVALS: dict[str, Callable[[Interval, Interval], Interval]] = {
    "add": lambda a, b: in_range(a[0] + b[0], a[1] + b[1]),
    "subtract": lambda a, b: in_range(a[0] - b[1], a[1] - b[0]),
    "multiply": _product,
    "minimum": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "maximum": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "floordiv": _quotient,
    "floormod": _rest,
    "where": lambda a, b: (min(a[0], b[0]), max(a[1], b[1])),
    # of extent 1 UNKNOWN: a literal would drop the check
    "checked_index": lambda _, n: (0, n[1] - 1) if n[1] > 1 else UNKNOWN,
}
