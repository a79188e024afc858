"""The simplifier of index terms at every level, over the bounds and affine forms of affine.py.

simplify((a0 * 64 + a1) // 64, {a0: (0, 31), a1: (0, 63)})         # a0
simplify(c // 8 % 8 * 8 + c % 8, {c: (0, 999)})                    # c % 64
simplify(a0 - 1 >= 0, {a0: (0, 31)})                               # a0 >= 1
"""

import math
from collections.abc import Mapping
from functools import lru_cache, partial

from weft.core.node import Node, bottom_up, postorder, rebuild
from weft.core.types import ScalarType, boolean, i64
from weft.scalar.affine import Linear, factors, from_linear, linear, order, plus, slack, times
from weft.scalar.divisors import is_multiple, of_terms
from weft.scalar.intervals import GREATEST, UNKNOWN, Interval, Known, Ranges, as_known, bounds
from weft.scalar.ops import Apply, Constant, apply, constant, function_of, has_symbol, value_of
from weft.scalar.symbols import bounded, cofactor, divided, linear_bounds, long_division, quotient

TRUE, FALSE = constant(True), constant(False)
OPPOSITE = {"eq": "ne", "ne": "eq", "lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}


def _divisor(atom: Node, name: str) -> int:
    """The positive constant c of an atom x // c or x % c, by `name`; 0 for any other atom."""
    by = value_of(atom.args[1]) if function_of(atom) == name else None
    return int(by) if by is not None and by > 0 else 0


def _division(name: str, x: Node, by: int, known: Known) -> Node:
    """x // by or x % by, simplified; cached with the ranges."""
    key = (name, x, by)
    if key not in known.divisions:
        form = _divide if name == "floordiv" else _modulo
        plain = by != 1 and not bounded(x, known)  # x may wrap: leave it as it is
        new = apply(name, x, constant(by)) if plain else from_linear(*form(x, by, known))
        known.divisions[key] = new
    return known.divisions[key]


divide = partial(_division, "floordiv")
modulo = partial(_division, "floormod")


def _by_size(name: str, x: Node, by: Node, known: Known) -> Node | None:
    """x // by or x % by, where `by` is a size that is no number."""
    if not bounded(x, known):
        return None
    whole, rest = long_division(linear(x), linear(by))
    if rest == ({}, 0):  # whatever the sign of `by`
        return from_linear(*(rest if name == "floormod" else whole))
    if bounds(by, known)[0] <= 0:
        return None
    found = quotient(linear(x), linear(by), known)
    if found is not None:
        return from_linear(*found[name == "floormod"])
    for factor in factors(next(iter(linear(by)[0]))):
        one = {factor: 1}, 0
        parts = [long_division(linear(term), one) for term in (x, by)]
        if bounds(factor, known)[0] <= 0 or parts[1][1] != ({}, 0):
            continue
        if parts[0][1] == ({}, 0):  # x * n // (y * n) = x // y
            less = (from_linear(*part) for part, _ in parts)
            digit = linear(simplify(apply(name, *less), known))
            return from_linear(*(times(digit, one) if name == "floormod" else digit))
        found = quotient(linear(x), parts[1][0], known) if parts[1][0][0] else None
        if found is not None:  # x // (y * n) = x // y // n
            digit = linear(simplify(apply(name, from_linear(*found[0]), factor), known))
            least = plus(found[1], times(digit, parts[1][0]))
            return from_linear(*(least if name == "floormod" else digit))
    step = math.gcd(linear(by)[1], *linear(by)[0].values())
    split = _split(rest, step, known) if step > 1 else None
    if split is not None:  # (g * big + small) // (g * b) = big // b, and % is g * (big % b) + small
        g, big, small = split
        smaller = from_linear(*long_division(linear(by), ({}, g))[0])
        digit = linear(simplify(apply(name, from_linear(*big), smaller), known))
        return from_linear(*(plus(small, digit, g) if name == "floormod" else plus(whole, digit)))
    left = apply(name, from_linear(*rest), by)
    return left if name == "floormod" else from_linear(*plus(whole, ({left: 1}, 0)))


def _divide(x: Node, by: int, known: Known) -> Linear:
    """x // by: multiples of `by` pulled out, small parts dropped, divisions merged."""
    outside, (rest, remainder) = divided(linear(x), by)
    low, high = linear_bounds(rest, remainder, known)
    if low // by == high // by:  # rest // by is one constant
        return outside[0], outside[1] + int(low // by)
    split = _split((rest, remainder), by, known)
    if split is not None:  # (g * big + small) // (g * b) = big // b
        g, big, _ = split
        return plus(outside, linear(divide(from_linear(*big), by // g, known)))
    if len(rest) == 1 and next(iter(rest.values())) == 1:
        ((atom, _),) = rest.items()
        d = _divisor(atom, "floordiv")
        if d and bounded(atom.args[0], known):  # (y // d + r) // by = (y + d * r) // (d * by)
            shifted = plus(linear(atom.args[0]), ({}, remainder), d)
            return plus(outside, linear(divide(from_linear(*shifted), by * d, known)))
        d = _divisor(atom, "floormod")
        if d and d % by == 0 and remainder == 0:  # y % d // by = y // by % (d // by)
            digit = modulo(divide(atom.args[0], by, known), d // by, known)
            return plus(outside, linear(digit))
    if all(k < 0 and has_symbol(a) for a, k in rest.items()):  # (1 - s) // 2 = -(s // 2)
        turned = times((rest, remainder - by + 1), ({}, -1))
        return plus(outside, linear(divide(from_linear(*turned), by, known)), -1)
    return plus(outside, ({apply("floordiv", from_linear(rest, remainder), constant(by)): 1}, 0))


def _split(form: Linear, by: int, known: Known) -> tuple[int, Linear, Linear] | None:
    """The form as g * big + small, where g divides `by` and 0 <= small < g."""
    rest, remainder = form
    for g in sorted({math.gcd(k, by) for k in rest.values()} - {1}, reverse=True):
        small = {a: k for a, k in rest.items() if k % g}
        low, high = linear_bounds(small, remainder % g, known)
        if math.isfinite(low) and low // g == high // g:
            block = int(low // g)
            big = {a: k // g for a, k in rest.items() if k % g == 0}
            return g, (big, remainder // g + block), (small, remainder % g - block * g)
    return None


def _modulo(x: Node, by: int, known: Known) -> Linear:
    """x % by: multiples of `by` dropped, small parts kept outside, moduli merged."""
    _, (rest, remainder) = divided(linear(x), by)
    low, high = linear_bounds(rest, remainder, known)
    if low // by == high // by:
        return rest, remainder - int(low // by) * by
    if of_terms(rest, {}) % by == 0:
        return {}, remainder
    for atom, k in rest.items():  # k * (y % m) = k * y modulo `by`, when `by` divides k * m
        m = _divisor(atom, "floormod")
        if m and k * m % by == 0 and bounded(atom.args[0], known):
            others = {a: v for a, v in rest.items() if a is not atom}
            inner = plus((others, remainder), linear(atom.args[0]), k)
            if linear_bounds(*inner, known) is not UNKNOWN:
                return linear(modulo(from_linear(*inner), by, known))
    split = _split((rest, remainder), by, known)
    if split is not None:  # (g * big + small) % (g * b) = g * (big % b) + small
        g, big, small = split
        return plus(small, linear(modulo(from_linear(*big), by // g, known)), g)
    return {apply("floormod", from_linear(rest, remainder), constant(by)): 1}, 0


def _rejoin(form: Linear, known: Known) -> Linear | None:
    """(x // c) * c + x % c  ->  x, and (x // c % d) * c + x % c  ->  x % (c * d).

    (x // c) * c alone is x, where c divides that.
    """
    terms = form[0]
    for atom, k in terms.items():
        x, by = atom.args[0] if atom.args else atom, _divisor(atom, "floordiv")
        if by and k % by == 0 and is_multiple(x, by) and bounded(x, known):
            return plus(plus(form, ({atom: k}, 0), -1), linear(x), k // by)
        c = _divisor(atom, "floormod")
        if not c:
            whole = _rejoin_size(form, atom, known)
            if whole is not None:
                return whole
            continue
        x = atom.args[0]
        quotient = linear(divide(x, c, known))
        if quotient[0] and all(terms.get(a) == k * c * v for a, v in quotient[0].items()):
            rest = plus(plus(form, quotient, -k * c), ({atom: 1}, 0), -k)
            return plus(rest, linear(x), k)
        for other, v in terms.items():
            d = _divisor(other, "floormod")
            if not d or v != k * c or c * d > GREATEST:
                continue
            if modulo(from_linear(*quotient), d, known) is other:
                rest = plus(form, ({atom: k, other: v}, 0), -1)
                return plus(rest, linear(modulo(x, c * d, known)), k)
    return None


def _rejoin_size(form: Linear, atom: Node, known: Known) -> Linear | None:
    """The same for x // s * s + x % s, where s is a size and the sum may be multiplied."""
    digit = next((f for f in factors(atom) if function_of(f) == "floormod"), None)
    if digit is None or not has_symbol(digit.args[1]):
        return None
    part: Linear = ({atom: form[0][atom]}, 0)
    scale, _ = cofactor(part, digit)
    if scale is None:  # the digit is squared
        return None
    x, by = map(linear, digit.args)
    key = ("whole", digit.args[0], digit.args[1])
    if key not in known.divisions:  # each sum that has the digit asks for it
        known.divisions[key] = simplify(apply("floordiv", *digit.args), known)
    removed = times(times(linear(known.divisions[key]), by), scale)
    if not removed[0] or removed[1] or any(form[0].get(a) != k for a, k in removed[0].items()):
        return None
    return plus(plus(plus(form, removed, -1), part, -1), times(x, scale))


def _compare(name: str, a: Node, b: Node, known: Known) -> Node | None:
    """TRUE or FALSE where the bounds decide, else the comparison in its canonical form."""
    if a is b:
        return TRUE if name in ("eq", "le", "ge") else FALSE
    if not (bounded(a, known) and bounded(b, known)):
        return None
    terms, offset = plus(linear(a), linear(b), -1)
    low, high = linear_bounds(terms, offset, known)
    always = {"lt": high < 0, "le": high <= 0, "gt": low > 0, "ge": low >= 0}
    always |= {"eq": low == high == 0, "ne": low > 0 or high < 0}
    if always[name] or always[OPPOSITE[name]]:
        return TRUE if always[name] else FALSE
    if name in ("eq", "ne"):
        return None
    return _canonical(name in ("lt", "le"), terms, -offset + (name in ("le", "gt")), known)


def _canonical(less: bool, terms: Mapping[Node, int], limit: int, known: Known) -> Node | None:
    """The canonical form of terms < limit, or >= unless `less`.

    Common factors are divided out; the leading term is on the left, with a positive coefficient.
    """
    g = math.gcd(*terms.values())
    terms, limit = {a: k // g for a, k in terms.items()}, -(-limit // g)
    leading = min(terms, key=lambda a: (-abs(terms[a]), order(a)))
    if terms[leading] < 0:  # -x < c  is  x >= 1 - c
        terms, limit, less = {a: -k for a, k in terms.items()}, 1 - limit, not less
    left = {a: k for a, k in terms.items() if k > 0}
    right = {a: -k for a, k in terms.items() if k < 0}
    if not right and list(left.values()) == [1] and function_of(leading) == "floordiv":
        x, by = leading.args[0], _divisor(leading, "floordiv")
        if by:  # x // by < c  is  x < c * by
            more, offset = linear(x)
            return _canonical(less, more, limit * by - offset, known)
    if UNKNOWN in (linear_bounds(left, 0, known), linear_bounds(right, limit, known)):
        return None
    if right and limit == 1:  # x < y + 1 reads better as x <= y
        return apply("le" if less else "gt", from_linear(left, 0), from_linear(right, 0))
    return apply("lt" if less else "ge", from_linear(left, 0), from_linear(right, limit))


def narrow(condition: Node | None, ranges: Ranges) -> Known:
    """The ranges under a condition: its conjuncts `sum < c` and `sum >= c` narrow intervals."""
    known, facts = Known(ranges), dict(ranges)
    sums: dict[frozenset[tuple[Node, int]], Interval] = {}
    for part in _conjuncts(condition) if condition is not None else ():
        name = function_of(part)
        limit = value_of(part.args[1]) if name in ("lt", "ge") else None
        if has_symbol(part) and (found := slack(part)) is not None:
            sums[frozenset(found[0].items())] = (-found[1], math.inf)
            continue
        if limit is None or part.args[0].type.dtype is not i64:
            continue
        terms, offset = linear(part.args[0])
        key = frozenset(terms.items())
        low, high = linear_bounds(terms, 0, known)
        if not terms or math.isinf(low):
            continue
        low, high = sums.get(key, (low, high))
        limit = limit - offset
        low, high = (low, min(high, limit - 1)) if name == "lt" else (max(low, limit), high)
        if low <= high:
            sums[key] = (low, high)
            if list(terms.values()) == [1]:
                facts[next(iter(terms))] = (low, high)
    narrowed = Known(facts)
    narrowed.sums = sums
    return narrowed


def inside(term: Node, extent: int, ranges: Ranges) -> bool:
    """Whether 0 <= term < extent is proved; the extent may be a size."""
    known = as_known(ranges)
    form = linear(simplify(term, known))
    if linear_bounds(*form, known)[0] < 0:
        return False
    return linear_bounds(*plus(linear(constant(extent)), form, -1), known)[0] >= 1


def step(node: Node, ranges: Ranges) -> Node | None:
    """One simplification of a node whose operands are simplified; None when none applies."""
    name, known = function_of(node), as_known(ranges)
    if name is None:
        return None
    if node.type.dtype is boolean or name == "where":
        return _step_logic(name, node, known)
    if node.type.dtype is not i64 or node.type.lanes != 1:
        return None
    if name in ("floordiv", "floormod"):
        by = value_of(node.args[1])
        if by is None and has_symbol(node.args[1]):
            key = (name, node.args[0], node.args[1])
            if key not in known.divisions:
                known.divisions[key] = _by_size(*key, known) or node
            return known.divisions[key]
        return _division(name, node.args[0], int(by), known) if by and by > 0 else None
    if name in ("minimum", "maximum"):
        for x, y in (node.args, node.args[::-1]):
            if (smaller := _compare("le", x, y, known)) in (TRUE, FALSE):
                return x if (smaller is TRUE) == (name == "minimum") else y
        return None
    if name == "checked_divisor":
        return node.args[0] if _compare("ne", node.args[0], constant(0), known) is TRUE else None
    if name == "checked_index" and _compare("ge", node.args[0], constant(0), known) is TRUE:
        return node.args[0] if _compare("lt", node.args[0], node.args[1], known) is TRUE else None
    if name in ("add", "subtract", "multiply"):
        form = linear(node)
        while (joined := _rejoin(form, known)) is not None:
            form = joined
        return from_linear(*form)
    return None


def _step_logic(name: str, node: Node, known: Known) -> Node | None:
    args = node.args
    if name in OPPOSITE and args[0].type.dtype is i64 and args[0].type.lanes == 1:
        return _compare(name, args[0], args[1], known)
    for x, y in (args, args[::-1]) if len(args) == 2 else ():
        if name == "and" and node.type.dtype is boolean:
            if x is FALSE or y is TRUE or x is y or y in _conjuncts(x):
                return x
        elif name == "or" and (x is TRUE or y is FALSE or x is y):
            return x
    if name == "not" and args[0] in (TRUE, FALSE):
        return FALSE if args[0] is TRUE else TRUE
    if name == "where" and len(args) == 3 and (args[0] in (TRUE, FALSE) or args[1] is args[2]):
        return args[2] if args[0] is FALSE else args[1]
    return None


def _conjuncts(node: Node) -> list[Node]:
    """The operands of a tree of `and`."""
    found: dict[Node, None] = {}
    bottom_up(node, found, lambda _: None, lambda n: n.args if function_of(n) == "and" else ())
    return [n for n in found if function_of(n) != "and"]


def simplify_node(node: Node, known: Known) -> Node:
    """Repeat `step` on a node whose operands are simplified, up to 8 times."""
    for _ in range(8):
        after = step(node, known)
        if after is None or after is node:
            break
        node = after
    return node


@lru_cache(maxsize=1 << 14)
def _leaves(node: Node) -> tuple[Node, ...]:
    """Axes and other nodes in a term that are neither an application nor a constant."""
    return tuple(n for n in postorder(node) if not isinstance(n.op, Apply | Constant))


def simplify(node: Node, ranges: Ranges) -> Node:
    """Simplify a whole term bottom-up under the ranges of its axes."""
    if isinstance(ranges, Known) or any(isinstance(k.op, Apply) for k in ranges):
        return _simplify(node, as_known(ranges))
    return _simplify_over(node, tuple([(a, ranges[a]) for a in _leaves(node) if a in ranges]))


@lru_cache(maxsize=1 << 15)
def _simplify_over(node: Node, known: tuple[tuple[Node, Interval], ...]) -> Node:
    """Simplify under the ranges of the leaves, which are the key of the cache."""
    return _simplify(node, as_known(dict(known)))


def _simplify(root: Node, known: Known) -> Node:
    def change(node: Node) -> Node:
        node = simplify_node(node, known)
        if node.type == ScalarType(i64) and not isinstance(node.op, Constant):
            low, high = bounds(node, known)
            return constant(int(low)) if low == high else node
        return node

    return rebuild((root,), change)[0]
