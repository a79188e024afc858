"""spread: a sum over groups of terms, whose lanes each add up their part of all groups.

before  for a1 in 0..64:  # reduce acc0        after  for c0 in 0..16:  # reduce vector16
            for a2 in 0..32:  # reduce acc1               for b0 in 0..64 by 4:  # reduce serial
                acc1 <- add(acc1, x * q)                      for a1 in b0..b0 + 4:  # register
            acc0 <- add(acc0, acc1 * s[a1])                       v = x * q + x * q
                                                                  acc0 <- add(acc0, v * s[a1])

What is done to the sum of a group is linear, so a lane does it to its own part of that sum: lanes
are added up once, not once in each group. Of groups that are shorter than a vector, several have
their lanes side by side.
"""

from collections.abc import Mapping
from dataclasses import replace

from weft.core.node import Node, postorder
from weft.scalar.affine import function_of
from weft.scalar.blocks import address, loops_from, map_outermost, nodes, substitute_block
from weft.scalar.index import simplify
from weft.scalar.intervals import UNKNOWN
from weft.scalar.monoid import SUM
from weft.scalar.nest import Acc, Block, For, Load, Update, walk
from weft.scalar.ops import apply, apply_all, constant, has_symbol
from weft.scalar.wholes import wholes
from weft.tile.analysis.access import (
    Ranges,
    ranges_in,
    stride_along,
    trips,
    window,
)
from weft.tile.moves.loops import Labels, around, blocked
from weft.tile.moves.peel import simplify_block
from weft.tile.moves.spread_rows import rows_inside

GROUPS = 4  # at a time, each with an accumulator: they hide the latency of an addition
SHORT = 8  # vectors of a group that are unrolled


def spread_nest(stmt: For, lanes: int, labels: Labels) -> For | None:
    """A nest with the lanes of its sums over groups outside, and its few rows in registers.

    None where it has no such sums.
    """
    found: list[bool] = []
    ranges = ranges_in((stmt,))

    def one(loop: For) -> For | None:
        made = spread(loop, lanes, labels, ranges)
        found.append(made is not None)
        return made

    (nest,) = map_outermost((stmt,), one)
    return rows_inside(nest, labels) if any(found) and isinstance(nest, For) else None


def spread(stmt: For, lanes: int, labels: Labels, ranges: Ranges) -> For | None:
    """The sums of a nest with their lanes outside; None where it is no such nest.

    `ranges` are those of axes around it.
    """
    outer = loops_from(stmt, lambda f: f.role == "reduce" and not f.bind)
    *groups, last = outer[-1].body
    sized = any(has_symbol(f.hi) for f in outer)
    if stmt.role != "reduce" or sized or not groups or not isinstance(last, Update):
        return None
    sums = {s.folds[0].accs[0]: s for s in groups if isinstance(s, For) and _is_sum(s)}
    alone = stmt.folds == (last.fold,) and len(sums) == len(groups)
    if not alone or not _is_linear(last, sums):
        return None
    lane, short = labels.axis("c"), {trips(s) for s in sums.values()}
    several = max(1, lanes // min(short))  # groups that lanes are in
    even = outer[-1].lo is constant(0) and outer[-1].step == 1 and trips(outer[-1]) % several == 0
    if several > 1 and short == {lanes // several} and lanes % several == 0 and even:
        outer[-1], inner = _in_groups(outer[-1], sums, last, lane, several)
    elif any(n % lanes for n in short):
        return None
    elif sum(map(trips, sums.values())) <= SHORT * lanes:
        totals = {acc: apply_all("add", _terms(s, lane, lanes)) for acc, s in sums.items()}
        inner = substitute_block((last,), totals)
    else:
        inner = (*(_in_vectors(s, lane, lanes, labels) for s in sums.values()), last)
    ranges = {**ranges, **ranges_in((stmt, *inner)), lane: (0, lanes - 1)}
    loads = nodes(tuple(u for u in walk(inner) if isinstance(u, Update)))
    if not all(_is_near(n, n.op, lane, lanes, ranges) for n in loads if isinstance(n.op, Load)):
        return None
    whole = replace(outer[-1], body=inner)
    by = next(n for n in (GROUPS, 2, 1) if trips(whole) % n == 0)
    whole = blocked(replace(whole, bind="register", folds=()), labels.axis("b"), by)
    nest = around(outer[:-1], whole, bind="serial", folds=())
    return For(
        lane, constant(0), constant(lanes), (nest,), 1, "reduce", f"vector{lanes}", stmt.folds
    )


def _is_sum(stmt: For) -> bool:
    """Whether the loop adds up terms, and nothing else."""
    adds = all(isinstance(s, Update) for s in stmt.body) and len(stmt.body) == len(stmt.folds) == 1
    sums = stmt.role == "reduce" and all(f.monoid is SUM for f in stmt.folds)
    return adds and sums and not stmt.bind and stmt.step == 1 and not has_symbol(stmt.hi)


def _is_linear(last: Update, sums: Mapping[Node, For]) -> bool:
    """Whether twice the sums of a group add twice as much to the sum of all."""
    others = (n for n in postorder(*last.values) if isinstance(n.op, Acc) and n not in sums)
    one = last.fold.monoid is SUM and len(last.values) == 1
    return one and not any(others) and _scales(last.values[0], sums)


def _scales(value: Node, sums: Mapping[Node, For]) -> bool:
    """Whether a value is linear in the sums.

    One of integers may be cast to f32 where that holds all of it.
    """
    if value in sums:
        return True
    holds = [a for a in value.args if not sums.keys().isdisjoint(postorder(a))]
    if function_of(value) == "f32":
        return value.args[0] in sums and _is_short(sums[value.args[0]])
    if function_of(value) == "multiply":
        return len(holds) == 1 and _scales(holds[0], sums)
    return function_of(value) == "add" and all(_scales(a, sums) for a in value.args)


def _is_near(node: Node, load: Load, lane: Node, lanes: int, ranges: Ranges) -> bool:
    """Whether lanes read one place, or places of one vector."""
    where = address(load.buffer, node.args[: load.buffer.type.rank], ranges)
    step = stride_along(where, lane)
    return step in (0, 1) or window(where, lane, lanes, ranges, load.buffer.type) is not None


def _in_groups(
    stmt: For, sums: Mapping[Node, For], last: Update, lane: Node, several: int
) -> tuple[For, Block]:
    """The loop over groups, several at a time, and what one lane does, which is in one of them."""
    each = trips(next(iter(sums.values())))
    place = apply("floormod", lane, constant(each))
    at = {s.axis: apply("add", s.lo, place) for s in sums.values()}
    totals = {acc: s.body[0].terms()[0] for acc, s in sums.items()}
    first = apply("multiply", stmt.axis, constant(several))
    group = apply("add", first, apply("floordiv", lane, constant(each)))
    block = substitute_block(substitute_block((last,), totals), {**at, stmt.axis: group})
    return replace(stmt, hi=constant(trips(stmt) // several)), block


def _in_vectors(stmt: For, lane: Node, lanes: int, labels: Labels) -> For:
    """The loop by vectors, of which it computes one lane."""
    start = labels.axis("b")
    body = substitute_block(stmt.body, {stmt.axis: apply("add", start, lane)})
    return For(start, stmt.lo, stmt.hi, body, lanes, stmt.role, "serial", stmt.folds)


def _terms(stmt: For, lane: Node, lanes: int) -> list[Node]:
    """The values that one lane adds up of a short group, which know their place in it."""
    values: list[Node] = []
    for first in range(0, trips(stmt), lanes):
        at = simplify(apply("add", stmt.lo, constant(first)), {})
        block = substitute_block(stmt.body, {stmt.axis: apply("add", at, lane)})
        values += (t for s in simplify_block(block, {lane: (0, lanes - 1)}) for t in s.terms())
    return values


def _is_short(stmt: For) -> bool:
    """Whether the sum of a loop's integers is less than 2**24, so that f32 has it."""
    found = [wholes(t) or UNKNOWN for t in stmt.body[0].terms()]
    return trips(stmt) * sum(max(map(abs, of)) for of in found) < 1 << 24
