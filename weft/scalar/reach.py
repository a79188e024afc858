"""How far loops go, tails included: their lengths, and what is known of axes inside them.

known = known_inside(loops)                                # a1 in 0..min(16, 37 - b1 * 16)
-least(negative(linear(b1 * 16 + a1)), known)              # 36, by symbols.py
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from weft.core.node import Node
from weft.scalar.affine import linear, plus
from weft.scalar.blocks import map_each, map_statements, substitute_block
from weft.scalar.index import simplify
from weft.scalar.intervals import Interval, Known, Ranges, bounds
from weft.scalar.nest import Block, For, Stmt, free_variables
from weft.scalar.ops import apply, apply_all, constant, function_of, has_symbol, subtract
from weft.scalar.sizes import size
from weft.scalar.symbols import furthest

Loops = dict[Node, For]  # by axis


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
        return min([n for n in (longest(lo, h) for h in hi.args) if n is not None], default=None)
    terms, offset = linear(apply("subtract", hi, lo))
    if not terms or has_symbol(hi) or has_symbol(lo):
        return None if terms else offset
    gap = bounds(hi, {})[1] - bounds(lo, {})[0]  # between places that are loaded, and checked
    return int(gap) if math.isfinite(gap) else None


def known_inside(loops: Loops) -> Known:
    """The ranges of axes inside these loops, and the terms that bound them."""
    ranges: dict[Node, Interval] = {}
    for loop in loops.values():
        ranges[loop.axis] = axis_range(loop, ranges)
    known = Known(ranges)
    known.first = {axis: loop.lo for axis, loop in loops.items()}
    known.last = {axis: _last(loop, loops) for axis, loop in loops.items()}
    return known


def _last(loop: For, loops: Loops) -> Node:
    """The axis in the last iteration, or a term that it never exceeds."""
    extent = extent_of(loop)
    if extent is not None:
        return apply("add", loop.lo, constant(max(0, extent - 1) // loop.step * loop.step))
    below = (
        apply(subtract, end, constant(_least_gap(loop, end, loops))) for end in ends_of(loop.hi)
    )
    return apply_all("minimum", below)


def ends_of(hi: Node) -> tuple[Node, ...]:
    """Where a loop ends: at the least of these."""
    least = function_of(hi) == "minimum"
    return tuple(end for a in hi.args for end in ends_of(a)) if least else (hi,)


def counted(block: Block) -> Block:
    """The block, whose loops count from 0 by one: `n in 0..4` for `at in 3..259 by 64`."""

    def one(s: For) -> For:
        if s.step == 1 and s.lo is constant(0):
            return s
        up = [apply("add", apply(subtract, n, s.lo), constant(s.step - 1)) for n in ends_of(s.hi)]
        hi = apply_all("minimum", (apply("floordiv", n, constant(s.step)) for n in up))
        at = apply("add", s.lo, apply("multiply", s.axis, constant(s.step)))
        loop = replace(s, lo=constant(0), hi=simplify(hi, {}), step=1)
        plain = partial(simplify, ranges=ranges_inside(loop, {}))

        def change(stmt: Stmt) -> Stmt:
            """Ends of loops keep their literal parts, which tell how long one may get."""
            return stmt if isinstance(stmt, For) else stmt.map_terms(plain)

        return replace(loop, body=map_statements(substitute_block(s.body, {s.axis: at}), change))

    return map_each(block, For, one)


def _least_gap(loop: For, end: Node, loops: Mapping[Node, For] = {}) -> int:
    """How far the axis stays below `end` at least: a divisor of the step and of end - lo.

    Where that is a number, as far as the last iteration that is below.
    """
    terms, offset = linear(apply(subtract, end, loop.lo))
    gap = loop.step
    if not terms and offset > 0:
        return (offset - 1) % gap + 1
    while axis := next((atom for atom in terms if atom in loops), None):
        around, factor = loops[axis], terms[axis]  # where its loop starts, and some of its steps
        gap = math.gcd(gap, factor * around.step)
        start = apply(subtract, around.lo, axis)
        terms, offset = plus((terms, offset), linear(start), factor)
    return math.gcd(gap, offset, *terms.values())


def ranges_inside(loop: For, ranges: Ranges) -> dict[Node, Interval]:
    """The ranges of axes in the loop's body: those around it, and its own.

    Of a loop that runs once or not at all it is two steps: a term that loses the axis would be
    computed before the loop, also where that does not run and a load is out of bounds.
    """
    inside = {**ranges, loop.axis: axis_range(loop, ranges)}
    low, high = bounds(loop.axis, inside)
    if low == high and bounds(apply("subtract", loop.hi, loop.lo), ranges)[0] <= 0:
        inside[loop.axis] = low, low + loop.step
    return inside


def axis_range(loop: For, ranges: Ranges) -> Interval:
    """The least and greatest value of the loop's axis."""
    (low, latest), end = bounds(loop.lo, ranges), furthest(loop.hi, ranges)
    loop = replace(loop, lo=constant(int(low))) if low == latest else loop
    if has_symbol(end) and not free_variables(end):
        return low, size(apply(subtract, end, constant(_least_gap(loop, loop.hi))))
    highs = (bounds(end, ranges)[1] - _least_gap(loop, end) for end in ends_of(loop.hi))
    return low, max(low, min(highs))
