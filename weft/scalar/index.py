"""Index arithmetic: bounds, affine normal form, and the simplifier every level shares.

i = simplify((a0 * 64 + a1) // 64, {a0: (0, 31), a1: (0, 63)})     # a0
bounds(a0 * 64 + a1, ...)                                          # (0, 2047)
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from weft.core.node import Node, make
from weft.core.types import boolean, i64
from weft.scalar.ops import (
    Apply,
    Constant,
    add,
    apply,
    bitand,
    bitor,
    constant,
    eq,
    floordiv,
    floormod,
    ge,
    gt,
    le,
    lt,
    maximum,
    minimum,
    multiply,
    ne,
    subtract,
    value_of,
    where,
)

Interval = tuple[float, float]  # inclusive; infinite where nothing is known
Ranges = Mapping[Node, Interval]
Linear = tuple[dict[Node, int], int]  # sum of coefficient * atom, plus a constant

UNKNOWN: Interval = (-math.inf, math.inf)
TRUE, FALSE = constant(True), constant(False)


def function_of(node: Node) -> str | None:
    """Name of the applied function, None when the node is not an application."""
    return node.op.function.name if isinstance(node.op, Apply) else None


def bounds(node: Node, ranges: Ranges) -> Interval:
    """Smallest interval this analysis proves for an i64 term."""
    if node in ranges:
        return ranges[node]
    if isinstance(node.op, Constant):
        return (node.op.value, node.op.value)
    name = function_of(node)
    if name in ("add", "subtract", "multiply", "minimum", "maximum"):
        return _combine(name, bounds(node.args[0], ranges), bounds(node.args[1], ranges))
    if name in ("floordiv", "floormod"):
        return _divide(name, bounds(node.args[0], ranges), value_of(node.args[1]))
    if name == "where":
        a, b = bounds(node.args[1], ranges), bounds(node.args[2], ranges)
        return (min(a[0], b[0]), max(a[1], b[1]))
    return UNKNOWN


def _combine(name: str, a: Interval, b: Interval) -> Interval:
    if name == "add":
        return (a[0] + b[0], a[1] + b[1])
    if name == "subtract":
        return (a[0] - b[1], a[1] - b[0])
    if name == "minimum":
        return (min(a[0], b[0]), min(a[1], b[1]))
    if name == "maximum":
        return (max(a[0], b[0]), max(a[1], b[1]))
    corners = [x * y for x in a for y in b if not (math.isinf(x * y) or math.isnan(x * y))]
    return (min(corners), max(corners)) if len(corners) == 4 else UNKNOWN


def _divide(name: str, a: Interval, by: int | float | bool | None) -> Interval:
    if by is None or by <= 0:
        return UNKNOWN
    if name == "floormod":
        return a if 0 <= a[0] and a[1] < by else (0, by - 1)
    return tuple(v if math.isinf(v) else v // by for v in a)  # type: ignore[return-value]


def linear(node: Node) -> Linear:
    """Affine form over atoms: whatever is not +, - or * by a constant is an atom."""
    name = function_of(node)
    if isinstance(node.op, Constant):
        return {}, int(node.op.value)
    if name in ("add", "subtract"):
        sign = 1 if name == "add" else -1
        (a, c), (b, d) = linear(node.args[0]), linear(node.args[1])
        total = dict(a)
        for atom, k in b.items():
            total[atom] = total.get(atom, 0) + sign * k
        return {atom: k for atom, k in total.items() if k}, c + sign * d
    if name == "multiply":
        for x, y in (node.args, node.args[::-1]):
            k = value_of(y)
            if k is not None:
                terms, c = linear(x)
                return ({atom: v * int(k) for atom, v in terms.items()} if k else {}), c * int(k)
    return {node: 1}, 0


def from_linear(terms: Mapping[Node, int], offset: int) -> Node:
    """The canonical term of an affine form: largest stride first, the constant last."""
    total: Node | None = None
    for atom, k in sorted(terms.items(), key=lambda t: (-abs(t[1]), repr(t[0]))):
        part = atom if k == 1 else apply(multiply, atom, constant(k))
        total = part if total is None else apply(add, total, part)
    if total is None:
        return constant(offset)
    return total if offset == 0 else apply(add, total, constant(offset))


def _linear_bounds(terms: Mapping[Node, int], offset: int, ranges: Ranges) -> Interval:
    low = high = float(offset)
    for atom, k in terms.items():
        a, b = bounds(atom, ranges)
        low, high = low + min(a * k, b * k), high + max(a * k, b * k)
    return low, high


def _simplify_division(name: str, x: Node, by: int, ranges: Ranges) -> Node | None:
    """x // by and x % by: pull out multiples of `by`, prove the rest small, merge divisions."""
    terms, offset = linear(x)
    low, high = _linear_bounds(terms, offset, ranges)
    if math.isinf(low) or math.isinf(high):
        return None  # could wrap: leave the program's own integers alone
    if by == 1:
        return x if name == "floordiv" else constant(0)
    whole = {a: k // by for a, k in terms.items() if k % by == 0}
    rest = {a: k for a, k in terms.items() if k % by}
    quotient, remainder = divmod(offset, by)
    low, high = _linear_bounds(rest, remainder, ranges)
    if low // by == high // by:  # the rest lies in one block
        block = int(low // by)
        if name == "floordiv":
            return from_linear(whole, quotient + block)
        return from_linear(rest, remainder - block * by)
    if name == "floormod":
        inner = from_linear(rest, remainder)
        return None if inner is x else apply(floormod, inner, constant(by))
    common = math.gcd(by, *rest.values())
    if common > 1:
        rest = {a: k // common for a, k in rest.items()}
        remainder, by = remainder // common, by // common
    inner = from_linear(rest, remainder)
    if function_of(inner) == "floordiv" and value_of(inner.args[1]) is not None:
        inner, by = inner.args[0], by * int(value_of(inner.args[1]) or 1)
    node = apply(floordiv, inner, constant(by))
    total = dict(whole)
    total[node] = total.get(node, 0) + 1
    return from_linear(total, quotient)


def _rejoin(terms: dict[Node, int]) -> dict[Node, int] | None:
    """(x // c) * c + x % c  ->  x, for one pair of atoms."""
    for atom, k in terms.items():
        if function_of(atom) != "floormod":
            continue
        x, by = atom.args
        c = value_of(by)
        # x // c may have been split or merged when it was made; ask for the form it has now
        partner = apply(floordiv, x, by)
        if function_of(x) == "floordiv" and value_of(x.args[1]) is not None and c is not None:
            partner = apply(floordiv, x.args[0], constant(int(value_of(x.args[1]) or 1) * int(c)))
        if c is not None and terms.get(partner) == k * c:
            left = {a: v for a, v in terms.items() if a is not atom and a is not partner}
            more, offset = linear(x)
            if offset:
                return None
            for a, v in more.items():
                left[a] = left.get(a, 0) + v * k
            return {a: v for a, v in left.items() if v}
    return None


def _compare(name: str, a: Node, b: Node, ranges: Ranges) -> Node | None:
    (terms, offset), (more, other) = linear(a), linear(b)
    difference = dict(terms)
    for atom, k in more.items():
        difference[atom] = difference.get(atom, 0) - k
    low, high = _linear_bounds({t: k for t, k in difference.items() if k}, offset - other, ranges)
    if math.isinf(low) and math.isinf(high):
        return None
    always = {"lt": high < 0, "le": high <= 0, "gt": low > 0, "ge": low >= 0}
    never = {"lt": low >= 0, "le": low > 0, "gt": high <= 0, "ge": high < 0}
    always |= {"eq": low == high == 0, "ne": low > 0 or high < 0}
    never |= {"eq": low > 0 or high < 0, "ne": low == high == 0}
    return TRUE if always[name] else FALSE if never[name] else None


COMPARISONS = {f.name for f in (eq, ne, lt, le, gt, ge)}


def step(node: Node, ranges: Ranges) -> Node | None:
    """One simplification of a node whose arguments are already simple; None when there is none."""
    name = function_of(node)
    if name is None:
        return None
    if node.type.dtype is boolean or name == "where":
        return _step_logic(name, node, ranges)
    if node.type.dtype is not i64 or node.type.lanes != 1:
        return None
    if name in (floordiv.name, floormod.name):
        by = value_of(node.args[1])
        return _simplify_division(name, node.args[0], int(by), ranges) if by and by > 0 else None
    if name in (minimum.name, maximum.name):
        smaller = _compare("le", node.args[0], node.args[1], ranges)
        if smaller is None:
            return None
        return node.args[0 if (smaller is TRUE) == (name == minimum.name) else 1]
    if name in (add.name, subtract.name, multiply.name):
        terms, offset = linear(node)
        while (joined := _rejoin(terms)) is not None:
            terms = joined
        canonical = from_linear(terms, offset)
        return None if canonical is node else canonical
    return None


def _step_logic(name: str, node: Node, ranges: Ranges) -> Node | None:
    args = node.args
    if name in COMPARISONS and args[0].type.dtype is i64:
        return _compare(name, args[0], args[1], ranges)
    if name == bitand.name:
        if args[0] is FALSE or args[1] is FALSE:
            return FALSE
        return args[1] if args[0] is TRUE or args[0] is args[1] else args[0] if args[1] is TRUE else None
    if name == bitor.name:
        if args[0] is TRUE or args[1] is TRUE:
            return TRUE
        return args[1] if args[0] is FALSE or args[0] is args[1] else args[0] if args[1] is FALSE else None
    if name == where.name and args[0] in (TRUE, FALSE):
        return args[1] if args[0] is TRUE else args[2]
    return None


def simplify_node(node: Node, ranges: Ranges) -> Node | None:
    """Repeat `step` on one node (its arguments simple) until nothing changes."""
    current = node
    for _ in range(8):
        after = step(current, ranges)
        if after is None or after is current:
            break
        current = after
    return None if current is node else current


def simplify(node: Node, ranges: Ranges) -> Node:
    """Simplify a whole term bottom-up under the ranges of its axes."""
    from_memo: dict[Node, Node] = {}

    def visit(n: Node) -> Node:
        if n in from_memo:
            return from_memo[n]
        args = tuple(visit(a) for a in n.args)
        same = all(x is y for x, y in zip(args, n.args, strict=True))
        current = n if same else make(n.op, *args)
        from_memo[n] = simplify_node(current, ranges) or current
        return from_memo[n]

    return visit(node)
