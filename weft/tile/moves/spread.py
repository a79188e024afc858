"""spread: a sum over groups of terms, whose lanes each add up their part of all groups.

before  for a1 in 0..64:  # reduce acc0        after  for c0 in 0..16:  # reduce vector16
            for a2 in 0..32:  # reduce acc1               for b0 in 0..64 by 4:  # reduce serial
                acc1 <- add(acc1, x * q)                      for a1 in b0..b0 + 4:  # register
            acc0 <- add(acc0, acc1 * s[a1])                       v = x * q + x * q
                                                                  acc0 <- add(acc0, v * s[a1])

What is done to the sum of a group is linear, so a lane does it to its own part of that sum: lanes
are added up once, not once in each group.
"""

from collections.abc import Mapping
from dataclasses import replace

from weft.core.node import Node, op_of, postorder
from weft.scalar.affine import function_of
from weft.scalar.blocks import loops_from, loops_in, map_outermost, nodes, substitute_block
from weft.scalar.index import simplify
from weft.scalar.monoid import SUM
from weft.scalar.nest import Acc, For, Load, Update, free_variables, walk
from weft.scalar.ops import apply, apply_all, constant, has_symbol
from weft.scalar.sizes import hint
from weft.tile.analysis.access import chain, factors, ranges_in, strides, tile_length, trips
from weft.tile.moves.loops import Labels, around, blocked
from weft.tile.moves.peel import simplify_block

GROUPS = 4  # at a time, each with an accumulator: they hide the latency of an addition
ROWS = 4  # whose accumulators are registers
MOST = 256  # products of two bytes, each less than 2**16
SHORT = 8  # vectors of a group that are unrolled


def spread_nest(stmt: For, lanes: int, labels: Labels) -> For | None:
    """A nest with the lanes of its sums over groups outside, and its few rows in registers.

    None where it has no such sums.
    """
    found: list[bool] = []

    def one(loop: For) -> For | None:
        made = spread(loop, lanes, labels)
        found.append(made is not None)
        return made

    (nest,) = map_outermost((stmt,), one)
    return rows_inside(nest, labels) if any(found) and isinstance(nest, For) else None


def spread(stmt: For, lanes: int, labels: Labels) -> For | None:
    """The sums of a nest with their lanes outside; None where it is no such nest."""
    outer = loops_from(stmt, lambda f: f.role == "reduce" and not f.bind)
    *groups, last = outer[-1].body
    sized = any(has_symbol(f.hi) for f in outer)
    if stmt.role != "reduce" or sized or not groups or not isinstance(last, Update):
        return None
    sums = {s.folds[0].accs[0]: s for s in groups if isinstance(s, For) and _is_sum(s, lanes)}
    alone = stmt.folds == (last.fold,) and len(sums) == len(groups)
    if not alone or not _is_linear(last, sums):
        return None
    lane = labels.axis("c")
    if sum(map(trips, sums.values())) <= SHORT * lanes:
        totals = {acc: apply_all("add", _terms(s, lane, lanes)) for acc, s in sums.items()}
        inner = substitute_block((last,), totals)
    else:
        inner = (*(_in_vectors(s, lane, lanes, labels) for s in sums.values()), last)
    ranges = {**ranges_in((stmt, *inner)), lane: (0, lanes - 1)}
    updates = (u for u in walk(inner) if isinstance(u, Update))
    if any(step not in (0, 1) for u in updates for _, step in strides(u, lane, ranges)):
        return None
    whole = replace(outer[-1], body=inner)
    by = next(n for n in (GROUPS, 2, 1) if trips(whole) % n == 0)
    whole = blocked(replace(whole, bind="register", folds=()), labels.axis("b"), by)
    nest = around(outer[:-1], whole, bind="serial", folds=())
    return For(
        lane, constant(0), constant(lanes), (nest,), 1, "reduce", f"vector{lanes}", stmt.folds
    )


def rows_inside(nest: For, labels: Labels) -> For:
    """The nest with its few rows in registers: what all of them read comes from memory once."""
    loops, body = chain(nest, "free")
    lanes = {f.axis for f in loops_in(body) if f.lanes}
    wide = [n for n in nodes(body) if isinstance(n.op, Load) and lanes & free_variables(n)]
    read = free_variables(*(n for n in wide if _bytes(n) == max(map(_bytes, wide))))
    rows, others = ([f for f in loops if (f.axis in read) == there] for there in (False, True))
    if not rows or not others:
        return nest
    *outer, last = rows
    tile = replace(last, body=body, bind="register")
    sized = has_symbol(last.hi)
    if sized or trips(last) > ROWS:
        even = -(-trips(last) // -(-trips(last) // ROWS))
        tile = blocked(tile, labels.axis("b"), tile_length(last, ROWS) if sized else even)
    return around((*others, *outer), tile)


def _bytes(load: Node) -> int:
    return hint(op_of(load, Load).buffer.bytes)


def _is_sum(stmt: For, lanes: int) -> bool:
    """Whether the loop adds up terms in whole vectors."""
    adds = all(isinstance(s, Update) for s in stmt.body) and len(stmt.body) == len(stmt.folds) == 1
    sums = stmt.role == "reduce" and all(f.monoid is SUM for f in stmt.folds)
    return adds and sums and not stmt.bind and stmt.step == 1 and (stmt.extent or 1) % lanes == 0


def _is_linear(last: Update, sums: Mapping[Node, For]) -> bool:
    """Whether twice the sums of a group add twice as much to the sum of all."""
    others = (n for n in postorder(*last.values) if isinstance(n.op, Acc) and n not in sums)
    one = last.fold.monoid is SUM and len(last.values) == 1
    return one and not any(others) and _scales(last.values[0], sums)


def _scales(value: Node, sums: Mapping[Node, For]) -> bool:
    """Whether a value is linear in the sums.

    One of integers may be cast to f32, which holds all of it where terms are products of bytes.
    """
    if value in sums:
        return True
    holds = [a for a in value.args if not sums.keys().isdisjoint(postorder(a))]
    if function_of(value) == "f32":
        return value.args[0] in sums and _is_short(sums[value.args[0]])
    if function_of(value) == "multiply":
        return len(holds) == 1 and _scales(holds[0], sums)
    return function_of(value) == "add" and all(_scales(a, sums) for a in value.args)


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
    """Whether a loop adds up few products of integers of a byte: less than 2**24 together."""
    (update,) = stmt.body
    parts = [f for value in update.terms() for f in factors(value)]
    narrow = (function_of(n) == "i32" and n.args[0].type.dtype.bytes == 1 for n in parts)
    return len(parts) == 2 and all(narrow) and trips(stmt) <= MOST
