"""Divisors of index terms for all values of their axes: they prove that accesses are aligned.

divisor(a0 * 64 + c0, {c0: 4})      # 4
"""

import math
from collections.abc import Mapping

from weft.core.node import Node
from weft.scalar.affine import factors, linear, slack
from weft.scalar.nest import For
from weft.scalar.ops import Axis, Symbol, function_of, has_symbol, value_of

Divisors = Mapping[Node, int]  # axis -> a divisor of all its values; 0: the axis is 0


def divisor(term: Node, known: Divisors) -> int:
    """A divisor of the term for all values of its axes; 0 where the term is always 0."""
    terms, offset = linear(term)
    return math.gcd(offset, of_terms(terms, known))


def is_multiple(term: Node, of: int) -> bool:
    """Whether the term is a multiple of a number for all values of its variables."""
    return divisor(term, {}) % of == 0


def of_terms(terms: Mapping[Node, int], known: Divisors) -> int:
    """A divisor of the sum of coefficients times atoms."""
    return math.gcd(*(k * _of_atom(a, known) for a, k in terms.items()))


def _of_atom(atom: Node, known: Divisors) -> int:
    if isinstance(atom.op, Axis):
        return known.get(atom, 1)
    if isinstance(atom.op, Symbol):
        return atom.op.divisor
    name = function_of(atom)
    if name == "multiply" and has_symbol(atom):
        return math.prod(_of_atom(f, known) for f in factors(atom))
    if name in ("minimum", "maximum"):
        return math.gcd(*(divisor(a, known) for a in atom.args))
    by = value_of(atom.args[1]) if name in ("floordiv", "floormod") else None
    if by is None or by <= 0:
        return 1
    whole = divisor(atom.args[0], known)
    if name == "floormod":
        return math.gcd(whole, int(by))
    return whole // int(by) if whole % by == 0 else 1


def of_axis(loop: For, known: Divisors) -> int:
    """A divisor of every value of a loop's axis."""
    once = linear(loop.hi) == (linear(loop.lo)[0], linear(loop.lo)[1] + 1)
    first = divisor(loop.lo, known)
    return first if once else math.gcd(first, loop.step)


def condition_of_all(term: Node, known: Divisors) -> frozenset[object]:
    """A canonical form: conditions with equal forms hold for the same values of the axes.

    Where a0 is a multiple of 4, a0 < 8 and a0 + 3 < 8 have one form: one mask serves four lanes.
    """
    if function_of(term) == "and":
        return condition_of_all(term.args[0], known) | condition_of_all(term.args[1], known)
    found = slack(term)
    if found is None or not found[0]:
        return frozenset((term,))
    step = of_terms(found[0], known) or 1
    return frozenset(((frozenset(found[0].items()), found[1] // step * step),))
