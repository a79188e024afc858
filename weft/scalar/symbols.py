"""Bounds of affine forms, over axes that end at sizes too, and their quotients by sizes.

linear_bounds({a0: 64, a1: 1}, 0, {a0: (0, 31), a1: (0, 63)})              # (0, 2047)
linear_bounds({s0: 1, a0: -1}, 0, {a0: (0, s0 - 1)})                       # (1, the greatest s0)
quotient({a0 * s1: 1, a1: 1}, {s1: 1}, {a1: (0, s1 - 1)})                  # a0, and a1 is left

An axis that ends at a size is replaced by its end where that makes the form least; then what the
sizes have in common cancels. Sizes, and all else, are their least value and what they exceed it by.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from itertools import combinations
from operator import itemgetter

from weft.core.node import Node, postorder
from weft.core.types import Symbolic
from weft.scalar.affine import Linear, factors, from_linear, linear, order, plus, product, times
from weft.scalar.intervals import UNKNOWN, Interval, Known, Ranges, as_known, bounds, in_range
from weft.scalar.ops import function_of, has_symbol

ROUNDS = 24  # most variables that one bound replaces by their ends
ONE: Linear = ({}, 1)


def linear_bounds(terms: Mapping[Node, int], offset: int, ranges: Ranges) -> Interval:
    """Bounds of an affine form; UNKNOWN where a part is, or where the sum could wrap."""
    known = as_known(ranges)
    low, high = _sum(terms, offset, known)
    if any(a in known.last or has_symbol(a) for a in terms):
        form = (dict(terms), offset)
        low, high = max(low, least(form, known)), min(high, -least(negative(form), known))
    return in_range(low, high)


def _sum(terms: Mapping[Node, int], offset: int, known: Known) -> Interval:
    """Bounds of an affine form by those of each atom alone."""
    low = high = offset
    for atom, k in terms.items():
        a, b = bounds(atom, known)
        if math.isinf(a) or math.isinf(b):
            return UNKNOWN
        low, high = low + min(a * k, b * k), high + max(a * k, b * k)
    if known.sums:
        a, b = known.sums.get(frozenset(terms.items()), UNKNOWN)
        low, high = max(low, a + offset), min(high, b + offset)
    return low, high


def bounded(node: Node, ranges: Ranges) -> bool:
    """Whether the term has known bounds: nothing wraps, so its affine form is its value."""
    form, known = linear(node), as_known(ranges)
    alone = in_range(*_sum(*form, known))  # the others are within these
    return alone is not UNKNOWN or linear_bounds(*form, known) is not UNKNOWN


def furthest(term: Node, ranges: Ranges) -> Node:
    """The term where axes that it grows with, and whose last values are sizes, have these."""
    terms, offset = linear(term)
    end: Linear = ({}, offset)
    for atom, k in terms.items():
        last = ranges.get(atom, UNKNOWN)[1]
        form = linear(last.term) if isinstance(last, Symbolic) and k > 0 else ({atom: 1}, 0)
        end = plus(end, form, k)
    return from_linear(*end)


def negative(form: Linear) -> Linear:
    return times(form, ({}, -1))


def difference(a: Linear, b: Linear) -> Linear:
    return plus(a, b, -1)


def least(form: Linear, known: Known) -> float:
    """A number that the form is never below; -infinity where none is found."""
    return lowest(form, known)[1]


def lowest(form: Linear, known: Known, rounds: int = ROUNDS) -> tuple[Linear, float]:
    """A form over sizes that the form is never below, as far as axes have ends to put for them,
    and the least value of that form.
    """
    key = frozenset(form[0].items())
    if key not in known.lowest:
        start: Linear = dict(form[0]), 0
        ways = [*_replaced(start, known, rounds), (start, _least_of_sizes(start, known))]
        known.lowest[key] = max(ways, key=itemgetter(1))
    (terms, offset), bound = known.lowest[key]
    return (terms, offset + form[1]), bound + form[1]


Lower = tuple[Linear, float]  # a form, and the least that it is


def _replaced(form: Linear, known: Known, rounds: int) -> Iterator[Lower]:
    """Forms below this one, and what they are at least: by the ends of the first that has any."""
    for atom in _replaceable(form, known) if rounds else ():
        inside, rest = cofactor(form, atom)
        if inside is None:
            continue
        for sign, upper in ((1, False), (-1, True)):
            if least(times(inside, ({}, sign)), known) < 0:
                continue
            ends = [times(inside, end) for end in _ends(atom, upper, known)]
            by, end = _multiple(atom, inside, upper, known)
            ends += [end] if by == 1 else []
            ways = [lowest(plus(rest, end), known, rounds - 1) for end in ends]
            if function_of(atom) in ("where", "maximum" if upper else "minimum"):  # one of them
                given = (plus(rest, times(inside, linear(a))) for a in atom.args[-2:])
                ways += _number(min(lowest(g, known, rounds - 1)[1] for g in given))
            yield from ways
            if by > 1:
                several = plus(times(rest, ({}, by)), end)
                yield from _number(-(-lowest(several, known, rounds - 1)[1] // by))
            if ways:
                return
            break


def _number(low: float) -> list[Lower]:
    return [(({}, int(low)), low)] if math.isfinite(low) else []


def _replaceable(form: Linear, known: Known) -> list[Node]:
    """The factors that have ends: those made of others first, then axes, the innermost first.

    Last what a size is multiplied with.
    """
    found = dict.fromkeys(f for atom in form[0] for f in factors(atom))
    made = [f for f in found if function_of(f) and (has_symbol(f) or _reads(f, known))]
    made.sort(key=lambda f: -order(f)[1])  # what is left may cancel
    last = [a for a in reversed(known.last) if a in found]
    products = (parts for a in form[0] if len(parts := factors(a)) > 1 and has_symbol(a))
    times = [f for parts in products for f in parts if not has_symbol(f)]
    return [*made, *last, *(f for f in times if f not in made and f not in last)]


def _reads(term: Node, known: Known) -> bool:
    """Whether an atom such as a0 // 64 is of an axis that ends at a size."""
    return any(n in known.last for n in postorder(term))


def cofactor(form: Linear, factor: Node) -> tuple[Linear | None, Linear]:
    """The form as inside * factor + rest; None where it has a square of the factor."""
    inside: Linear = ({}, 0)
    rest: Linear = ({}, form[1])
    for atom, k in form[0].items():
        parts = [*factors(atom)]
        if factor not in parts:
            rest = plus(rest, ({atom: k}, 0))
            continue
        parts.remove(factor)
        if factor in parts:
            return None, form
        inside = plus(inside, ({product(parts): k}, 0) if parts else ({}, k))
    return inside, rest


def _ends(atom: Node, upper: bool, known: Known) -> Iterator[Linear]:
    """Forms that an atom never exceeds (`upper`), or is never below."""
    name = function_of(atom)
    end = (known.last if upper else known.first).get(atom)
    if end is not None:
        yield linear(end)
    elif name == ("minimum" if upper else "maximum"):
        yield from map(linear, atom.args)
    elif name in ("floordiv", "floormod") and least(by := linear(atom.args[1]), known) > 0:
        if name == "floormod":
            yield difference(by, ONE) if upper else ({}, 0)
        else:
            x = linear(atom.args[0])
            nearest = negative(lowest(negative(x), known)[0]) if upper else lowest(x, known)[0]
            found = quotient(nearest, by, known)
            if found is not None:
                yield found[0]
            elif not upper and by[0] and least(difference(x, by), known) >= 0:
                yield ONE
    bound = bounds(atom, known)[upper]
    if not has_symbol(atom) and math.isfinite(bound):
        yield {}, int(bound)


def _multiple(atom: Node, inside: Linear, upper: bool, known: Known) -> tuple[int, Linear]:
    """n and the same of n * inside * atom, where the atom is x // by and `by` divides n * inside.

    n is 0 where there is none.
    """
    if function_of(atom) == "floordiv":
        x, by = map(linear, atom.args)
        end = x if upper else plus(difference(x, by), ONE)
        whole, rest = long_division(inside, by)
        if rest == ({}, 0) and least(by, known) > 0:
            return 1, times(whole, end)
        if not by[0] and by[1] > 0:
            return by[1], times(inside, end)
    return 0, ONE


def _least_of_sizes(form: Linear, known: Known) -> float:
    """The least value, each factor written as its least value and more, all multiplied out."""
    terms, offset = form
    total: defaultdict[tuple[int, ...], int] = defaultdict(int)
    more: dict[int, float] = {}  # by a factor's number, what it exceeds its least value by at most
    number: dict[Node, int] = {}
    total[()] = offset
    for atom, k in terms.items():
        parts = factors(atom)
        lows: list[int] = []
        for f in parts:
            low, high = bounds(f, known)
            if math.isinf(low):
                return -math.inf
            lows.append(int(low))
            more[number.setdefault(f, len(number))] = high - low
        for count in range(len(parts) + 1):
            for above in combinations(range(len(parts)), count):
                below = math.prod(lows[i] for i in range(len(parts)) if i not in above)
                key = tuple(sorted(number[parts[i]] for i in above))
                total[key] += k * below
    least: float = total.pop(())
    for key, k in total.items():
        if k < 0:
            least += k * math.prod(more[n] for n in key) if all(more[n] for n in key) else 0
    return least


def quotient(form: Linear, by: Linear, ranges: Ranges) -> tuple[Linear, Linear] | None:
    """form // by and form % by, where the second is proved to lie in 0 .. by; `by` is positive."""
    known = as_known(ranges)
    whole, rest = long_division(form, by)
    for turn in (0, -1):
        left = difference(rest, times(by, ({}, turn)))
        inside = linear_bounds(*left, known)[0] >= 0
        if inside and linear_bounds(*difference(difference(by, left), ONE), known)[0] >= 0:
            return plus(whole, ({}, turn)), left
    return None


def divided(form: Linear, by: int) -> tuple[Linear, Linear]:
    """whole and rest, with form = whole * by + rest; in the rest coefficients keep their signs."""
    terms, (quotient, remainder) = form[0], divmod(form[1], by)
    whole = {a: abs(k) // by * (1 if k > 0 else -1) for a, k in terms.items() if abs(k) >= by}
    rest = {a: k - whole.get(a, 0) * by for a, k in terms.items()}
    return (whole, quotient), ({a: k for a, k in rest.items() if k}, remainder)


def long_division(form: Linear, by: Linear) -> tuple[Linear, Linear]:
    """whole and rest, with form = whole * by + rest; exact for all values of the variables."""
    if not by[0]:
        return divided(form, by[1])
    lead, size = max(by[0].items(), key=lambda item: len(factors(item[0])))
    needed = Counter(factors(lead))
    whole, rest = ({}, 0), form
    for atom, k in form[0].items():
        parts = Counter(factors(atom))
        if k % size or not needed <= parts:
            continue
        left = [*(parts - needed).elements()]
        one: Linear = ({product(left): k // size}, 0) if left else ({}, k // size)
        whole, rest = plus(whole, one), difference(rest, times(one, by))
    return whole, rest
