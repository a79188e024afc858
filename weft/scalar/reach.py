"""Bounds of an index over the loops around it, tails included: which elements an access reaches.

reach(b1 * 16 + a1, loops)      # (0, 36) where a1 runs in 0..min(16, 37 - b1 * 16)
"""

from __future__ import annotations

import math

from weft.core.node import Node
from weft.core.types import Symbolic
from weft.scalar.affine import (
    UNKNOWN,
    Interval,
    Linear,
    Ranges,
    bounds,
    from_linear,
    function_of,
    has_symbol,
    linear,
    order,
    plus,
    times,
)
from weft.scalar.nest import For, free_variables
from weft.scalar.ops import Constant, apply, constant, subtract, value_of
from weft.scalar.sizes import size

Loops = dict[Node, For]  # by axis
ROUNDS = 16  # most ends of loops that one bound substitutes


def extent_of(loop: For) -> int | None:
    """hi - lo, at least 0, where it is a literal; else None."""
    terms, offset = linear(apply(subtract, loop.hi, loop.lo))
    return None if terms else max(offset, 0)


def longest(lo: Node, hi: Node) -> int | None:
    """A literal upper bound on hi - lo, None when there is none."""
    both = function_of(hi) == function_of(lo) == "minimum"
    if both and (cut := {*hi.args} & {*lo.args}) and len(cut) == 1:  # min(x, n)..min(y, n)
        (x,), (y,) = ([a for a in end.args if a not in cut] for end in (lo, hi))
        most = longest(x, y)
        return None if most is None else max(most, 0)
    if function_of(hi) == "minimum":
        known = [n for n in (longest(lo, h) for h in hi.args) if n is not None]
        return min(known, default=None)
    terms, offset = linear(apply("subtract", hi, lo))
    return None if terms else offset


def reach(index: Node, loops: Loops) -> Interval:
    """The least and greatest value: substitutes the ends of each loop, innermost first."""
    return (_extreme(index, loops, -1, ROUNDS), _extreme(index, loops, 1, ROUNDS))


def _extreme(index: Node, loops: Loops, sign: int, rounds: int) -> float:
    terms, offset = linear(index)
    if not terms:
        return float(offset)
    best = bounds(index, _ranges(loops))[sign > 0]
    if rounds == 0:
        return best
    axes = list(loops)  # what is made of others first, for these cancel then
    depth = {a: axes.index(a) if a in loops else len(axes) + order(a)[1] for a in terms}
    atom = max(terms, key=lambda a: depth[a])
    rest = {a: k for a, k in terms.items() if a is not atom}

    def at(end: Linear) -> float:
        term = from_linear(*plus((rest, offset), end))
        return _extreme(term, loops, sign, rounds - 1)

    nearer, farther = (min, max) if sign > 0 else (max, min)
    upper, one = terms[atom] * sign > 0, ({}, terms[atom])
    for end in _ends(atom, loops, upper):
        best = nearer(best, at(times(linear(end), one)))
    if function_of(atom) == ("maximum" if upper else "minimum"):  # it is one of them
        best = nearer(best, farther(at(times(linear(a), one)) for a in atom.args))
    by = value_of(atom.args[1]) if function_of(atom) == "floordiv" else None
    if by and by > 0 and terms[atom] % by == 0:  # x // by * by is x, or up to by - 1 less
        end = linear(atom.args[0])
        end = end if upper else plus(end, ({}, 1 - int(by)))
        best = nearer(best, at(times(end, ({}, terms[atom] // int(by)))))
        alone = bounds(atom, _ranges(loops))[upper]
        best = nearer(best, at(({}, terms[atom] * int(alone)))) if math.isfinite(alone) else best
    return best


def _ends(atom: Node, loops: Loops, upper: bool) -> list[Node]:
    """Terms that bound an atom from above (`upper`) or from below."""
    loop = loops.get(atom)
    if loop is not None:
        if not upper:
            return [loop.lo] if function_of(loop.lo) != "maximum" else list(loop.lo.args)
        extent = extent_of(loop)
        if extent is not None:
            last = max(0, extent - 1) // loop.step * loop.step
            return [apply("add", loop.lo, constant(last))]
        ends = loop.hi.args if function_of(loop.hi) == "minimum" else (loop.hi,)
        return [apply(subtract, end, constant(_least_gap(loop, end, loops))) for end in ends]
    if function_of(atom) == ("minimum" if upper else "maximum"):
        return list(atom.args)
    return []


def _least_gap(loop: For, end: Node, loops: Loops | None = None) -> int:
    """How far the axis stays below `end` at least: a divisor of the step and of end - lo."""
    terms, offset = linear(apply(subtract, end, loop.lo))
    gap = loop.step
    for atom, factor in terms.items():
        around = (loops or {}).get(atom)
        if around is not None and isinstance(around.lo.op, Constant):
            offset += factor * int(around.lo.op.value)
            factor *= around.step
        gap = math.gcd(gap, factor)
    return math.gcd(gap, offset)


def _ranges(loops: Loops) -> dict[Node, Interval]:
    ranges: dict[Node, Interval] = {}
    for axis, loop in loops.items():
        ranges[axis] = axis_range(loop, ranges)
    return ranges


def _furthest(term: Node, ranges: Ranges) -> Node:
    """The term where axes that it grows with, and whose last values are sizes, have these."""
    terms, offset = linear(term)
    end: Linear = ({}, offset)
    for atom, k in terms.items():
        last = ranges.get(atom, UNKNOWN)[1]
        form = linear(last.term) if isinstance(last, Symbolic) and k > 0 else ({atom: 1}, 0)
        end = plus(end, form, k)
    return from_linear(*end)


def axis_range(loop: For, ranges: Ranges) -> Interval:
    """The least and greatest value of the loop's axis."""
    low, high = bounds(loop.lo, ranges)[0], bounds(loop.hi, ranges)[1]
    end = _furthest(loop.hi, ranges)
    if has_symbol(end) and not free_variables(end):
        return low, size(apply(subtract, end, constant(_least_gap(loop, loop.hi))))
    high = max(low, high - _least_gap(loop, loop.hi))
    if isinstance(loop.lo.op, Constant) and isinstance(loop.hi.op, Constant):
        high = low + (high - low) // loop.step * loop.step
    return low, high
