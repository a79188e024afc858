"""Intervals and affine forms of index terms, with which the simplifier reasons.

linear(a0 * 64 + a1 + 3)           # {a0: 64, a1: 1}, 3
bounds(a0 * 64 + a1, {a0: (0, 31), a1: (0, 63)})       # (0, 2047)
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from functools import lru_cache

from weft.core.node import Node
from weft.core.types import ScalarType, i64
from weft.scalar.ops import Apply, Axis, Constant, add, apply, constant, multiply, value_of

Interval = tuple[float, float]  # inclusive; infinite where nothing is known
Ranges = Mapping[Node, Interval]
Linear = tuple[dict[Node, int], int]  # sum of coefficient * atom, plus a constant

UNKNOWN: Interval = (-math.inf, math.inf)
LEAST, GREATEST = -(2**63), 2**63 - 1


class Known(dict[Node, Interval]):
    """Ranges of axes, with a cache of what follows from them.

    The mapping itself caches intervals of terms. `sums` has intervals of affine forms without their
    constant, from `narrow`; `divisions` has (function, x, divisor) -> the simplified division.
    """

    def __init__(self, ranges: Ranges) -> None:
        super().__init__(ranges)
        self.sums: dict[frozenset[tuple[Node, int]], Interval] = {}
        self.divisions: dict[tuple[str, Node, int], Node] = {}


def as_known(ranges: Ranges) -> Known:
    return ranges if isinstance(ranges, Known) else Known(ranges)


def function_of(node: Node) -> str | None:
    """Name of the applied function, None when the node is not an application."""
    return node.op.function.name if isinstance(node.op, Apply) else None


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
    name = function_of(node)
    if name in ("add", "subtract", "multiply", "minimum", "maximum"):
        return _combine(name, bounds(node.args[0], known), bounds(node.args[1], known))
    if name in ("floordiv", "floormod"):
        return _divide_bounds(name, bounds(node.args[0], known), value_of(node.args[1]))
    if name == "checked_index":  # of extent 1 UNKNOWN: a literal would drop the check
        last = (value_of(node.args[1]) or 0) - 1
        return (0, last) if last > 0 else UNKNOWN
    if name == "where":
        a, b = bounds(node.args[1], known), bounds(node.args[2], known)
        return (min(a[0], b[0]), max(a[1], b[1]))
    return UNKNOWN


def _in_range(low: float, high: float) -> Interval:
    return (low, high) if low >= LEAST and high <= GREATEST else UNKNOWN


def _combine(name: str, a: Interval, b: Interval) -> Interval:
    if name == "minimum":
        return (min(a[0], b[0]), min(a[1], b[1]))
    if name == "maximum":
        return (max(a[0], b[0]), max(a[1], b[1]))
    if not all(map(math.isfinite, a + b)):
        return UNKNOWN
    if name == "add":
        return _in_range(a[0] + b[0], a[1] + b[1])
    if name == "subtract":
        return _in_range(a[0] - b[1], a[1] - b[0])
    corners = [x * y for x in a for y in b]
    return _in_range(min(corners), max(corners))


def _divide_bounds(name: str, a: Interval, by: int | float | bool | None) -> Interval:
    if by is None or by <= 0:
        return UNKNOWN
    if name == "floormod":
        return a if a[0] >= 0 and a[1] < by else (0, by - 1)
    return tuple(v if math.isinf(v) else v // by for v in a)  # type: ignore[return-value]


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
    return {node: 1}, 0


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
    if isinstance(atom.op, Axis):
        return atom.op.label, 0, ""
    inner = [order(a) for a in atom.args]
    label = min((o[0] for o in inner if o[0]), default="")
    text = str(atom.op) + "".join(map(str, inner))
    digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    return label, 1 + max((o[1] for o in inner), default=0), digest


def _signed(value: int) -> int:
    """The value wrapped to i64."""
    return (value - LEAST) % 2**64 + LEAST


def is_multiple(term: Node, of: int) -> bool:
    """Whether the term is a multiple of a number for all values of its variables."""
    terms, offset = linear(term)
    return all(k % of == 0 for k in (*terms.values(), offset))


def from_linear(terms: Mapping[Node, int], offset: int) -> Node:
    """The canonical term of an affine form: largest stride first, the constant last."""
    total: Node | None = None
    for atom, k in sorted(terms.items(), key=lambda t: (-abs(t[1]), order(t[0]))):
        part = atom if k == 1 else apply(multiply, atom, constant(_signed(k)))
        total = part if total is None else apply(add, total, part)
    if total is None:
        return constant(_signed(offset))
    return total if offset == 0 else apply(add, total, constant(_signed(offset)))


def linear_bounds(terms: Mapping[Node, int], offset: int, ranges: Ranges) -> Interval:
    """Bounds of an affine form; UNKNOWN where a part is, or where the sum could wrap."""
    known = as_known(ranges)
    low = high = offset
    for atom, k in terms.items():
        a, b = bounds(atom, known)
        if math.isinf(a) or math.isinf(b):
            return UNKNOWN
        low, high = low + min(a * k, b * k), high + max(a * k, b * k)
    if known.sums:
        a, b = known.sums.get(frozenset(terms.items()), UNKNOWN)
        low, high = max(low, a + offset), min(high, b + offset)
    return _in_range(low, high)


def bounded(node: Node, ranges: Ranges) -> bool:
    """Whether the term has known bounds: nothing wraps, so its affine form is its value."""
    return linear_bounds(*linear(node), ranges) is not UNKNOWN
