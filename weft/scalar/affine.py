"""Intervals and affine forms of index terms, with which the simplifier reasons.

linear(a0 * 64 + a1 + 3)           # {a0: 64, a1: 1}, 3
bounds(a0 * 64 + a1, {a0: (0, 31), a1: (0, 63)})       # (0, 2047)
Over sizes forms are polynomials, whose atoms may be products: a0 * s1 is one. symbols.py bounds
them, where intervals are too coarse.
"""

import hashlib
import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from weakref import WeakKeyDictionary

from weft.core.node import Node, bottom_up
from weft.core.types import ScalarType, Symbolic, i64
from weft.scalar.ops import Axis, Constant, Symbol, apply_all, constant, function_of, value_of

Interval = tuple[float, float]  # inclusive; infinite where nothing is known
# Of axes. The end of an interval may be a size (a Symbolic); those that `bounds` gives never are.
Ranges = Mapping[Node, Interval]
Linear = tuple[dict[Node, int], int]  # sum of coefficient * atom, plus a constant

UNKNOWN: Interval = (-math.inf, math.inf)
LEAST, GREATEST = -(2**63), 2**63 - 1


class Known(dict[Node, Interval]):
    """Ranges of axes, with a cache of what follows from them.

    The mapping itself caches intervals of terms. `sums` has intervals of affine forms without their
    constant, from `narrow`; `divisions` has (function, x, divisor) -> the simplified division;
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


@lru_cache(maxsize=1 << 16)
def linear(node: Node) -> Linear:
    """The affine form of a term over atoms: subterms other than +, - and * by a constant.

    a0 * 64 + a1 // 8 + 3 -> {a0: 64, a1 // 8: 1}, 3. Cached: do not change the result.
    """
    name = function_of(node)
    if isinstance(node.op, Constant):
        return {}, int(node.op.value)
    if name in ("add", "subtract"):
        return plus(linear(node.args[0]), linear(node.args[1]), 1 if name == "add" else -1)
    if name == "multiply":
        for x, y in (node.args, node.args[::-1]):
            k = value_of(y)
            if k is not None:
                return plus(({}, 0), linear(x), int(k))
        if any(map(has_symbol, node.args)):
            return times(linear(node.args[0]), linear(node.args[1]))
    return {node: 1}, 0


_symbolic: WeakKeyDictionary[Node, bool] = WeakKeyDictionary()


def has_symbol(term: Node) -> bool:
    """Whether a term depends on a size that is no number."""

    def compute(node: Node) -> bool:
        return isinstance(node.op, Symbol) or any(_symbolic[a] for a in node.args)

    return type(term.op) is not Axis and bottom_up(term, _symbolic, compute)  # type: ignore[arg-type]


@lru_cache(maxsize=1 << 16)
def factors(atom: Node) -> tuple[Node, ...]:
    """What an atom is the product of: of a0 * s1, (a0, s1)."""
    if function_of(atom) != "multiply" or not has_symbol(atom):
        return (atom,)
    return (*factors(atom.args[0]), *factors(atom.args[1]))


def product(parts: Iterable[Node]) -> Node:
    """The atom that is the product of others, which have an order."""
    return apply_all("multiply", sorted(parts, key=order))


def times(a: Linear, b: Linear) -> Linear:
    """a * b"""
    total = plus(({}, a[1] * b[1]), (a[0], 0), b[1])
    total = plus(total, (b[0], 0), a[1])
    for (x, k), (y, v) in itertools.product(a[0].items(), b[0].items()):
        total = plus(total, ({product((*factors(x), *factors(y))): k * v}, 0))
    return total


def plus(a: Linear, b: Linear, k: int = 1) -> Linear:
    """a + k * b"""
    total = dict(a[0])
    for atom, v in b[0].items():
        total[atom] = total.get(atom, 0) + k * v
    return {atom: v for atom, v in total.items() if v}, a[1] + k * b[1]


# Comparison -> (order of its operands, constant) of the form in `slack`: lt is y - x - 1.
SIGNS = {"lt": (-1, -1), "le": (-1, 0), "gt": (1, -1), "ge": (1, 0)}


def slack(condition: Node) -> Linear | None:
    """The form that is >= 0 just where an i64 comparison holds: y - x - 1 for x < y; else None."""
    name = function_of(condition)
    if name not in SIGNS or condition.args[0].type != ScalarType(i64):
        return None
    sign, more = SIGNS[name]
    x, y = condition.args[::sign]
    return plus(plus(linear(x), linear(y), -1), ({}, more))


@lru_cache(maxsize=1 << 16)
def order(atom: Node) -> tuple[str, int, str]:
    """A deterministic order of atoms: by least axis label, then depth, then structure."""
    if isinstance(atom.op, Axis | Symbol):
        return atom.op.label, 0, ""
    inner = [order(a) for a in atom.args]
    label = min((o[0] for o in inner if o[0]), default="")
    text = str(atom.op) + "".join(map(str, inner))
    digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    return label, 1 + max((o[1] for o in inner), default=0), digest


def _signed(value: int) -> int:
    """The value wrapped to i64."""
    return (value - LEAST) % 2**64 + LEAST


def from_linear(terms: Mapping[Node, int], offset: int) -> Node:
    """The canonical term of an affine form: largest stride first, the constant last."""
    ordered = sorted(terms.items(), key=lambda t: (-abs(t[1]), order(t[0])))
    parts = [a if k == 1 else apply_all("multiply", (a, constant(_signed(k)))) for a, k in ordered]
    if offset or not parts:
        parts.append(constant(_signed(offset)))
    return apply_all("add", parts)
