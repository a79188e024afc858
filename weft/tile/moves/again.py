"""Blocks whose last one computes iterations again, where a size ends a loop: all are full then.

before  for b0 in 0..s0 by 8:                     repeated  for b0 in 0..s0 by 8:
            for a0 in b0..min(b0 + 8, s0):                      for a0 in b0..b0 + 8:
                y[a0] = x[a0]                                       y[min(a0, s0 - 1)] = ...

overlapping     for b0 in 0..s0 by 8:
                    for a0 in min(b0, s0 - 8)..min(b0, s0 - 8) + 8:
                        y[a0] = x[a0]
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from weft.core.node import Node, postorder
from weft.scalar.blocks import accesses, locals_in, loops_in, map_each, nodes, substitute_block
from weft.scalar.nest import Block, Buffer, For, Load, Store, Update, free_variables, walk
from weft.scalar.ops import apply, constant
from weft.tile.moves.partial import cut_body, end_of, full_body, loops_below, starting, unit_of


def repeats(stmt: For) -> bool:
    """Whether the last block may compute its last iteration again in place of those beyond it.

    Then all loops that start at its axis are unrolled over it, and nothing reads what its body
    stores. Not where lanes cross the iterations, for `square` needs these side by side.
    """
    inner, starts = loops_below(stmt), starting(stmt.body, stmt.axis)
    single = {s.bind == "register" and s.step == 1 and s.role == "free" for s in inner} == {True}
    ends = [s for s in walk(stmt.body) if any(end_of(n, stmt) for n in postorder(*s.terms()))]
    return single and starts == ends == inner and _again(stmt, ()) and not _crosses(stmt, inner)


def overlaps(stmt: For) -> bool:
    """Whether lanes cross iterations that may be computed again: a block is whole, or slow."""
    own, unrolled = locals_in(stmt.body), [*loops_in(stmt.body, "register")]
    return stmt.role == "free" and _again(stmt, own) and _crosses(stmt, unrolled)


def _again(stmt: For, own: Collection[Buffer]) -> bool:
    """Whether what runs twice gives the same: it stores values, and reads nothing that it stores
    to, but for its own buffers: each block has these for itself.
    """
    stores = [s for s in walk(stmt.body) if isinstance(s, Store)]
    read = {n.op.buffer for n in nodes(stmt.body) if isinstance(n.op, Load)}
    plain = not stmt.folds and all(s.mask is None and s.how in ("", "stream") for s in stores)
    return plain and not ({s.buffer for s in stores} & read).difference(own)


def _crosses(stmt: For, unrolled: Sequence[For]) -> bool:
    """Whether a load or store has lanes across what is unrolled, as squares do."""
    own, lanes = {s.axis for s in unrolled}, {s.axis for s in loops_in(stmt.body) if s.lanes}
    places = [index for _, index in accesses(stmt.body)]
    return any(free_variables(*p[-1:]) & own and lanes & free_variables(*p[:-1]) for p in places)


def repeated(stmt: For, end: Node) -> Block:
    """A block in which iterations beyond the end of the loop are the last one again."""
    last = apply("subtract", end, constant(1))

    def change(s: For) -> For:
        if s.lo is not stmt.axis:
            return s
        return replace(s, body=substitute_block(s.body, {s.axis: apply("minimum", s.axis, last)}))

    return map_each(full_body(stmt, stmt.step), For, change)


def overlapping(stmt: For) -> Block:
    """A full block, which starts earlier where it would go beyond the end of the loop."""
    start = apply("minimum", stmt.axis, apply("subtract", stmt.hi, constant(stmt.step)))
    return substitute_block(full_body(stmt, stmt.step), {stmt.axis: start})


def rolled(block: Block) -> Block:
    """The block with its loops by units in place of blocks, and none unrolled that sums nothing."""

    def change(stmt: For) -> For:
        if stmt.step > 1 and unit_of(stmt) == 1:
            end = apply("minimum", apply("add", stmt.axis, constant(1)), stmt.hi)
            return replace(stmt, step=1, body=cut_body(stmt, lambda _: end))
        sums = any(isinstance(s, Update) for s in walk(stmt.body))
        return replace(stmt, bind="serial") if stmt.bind == "register" and not sums else stmt

    return map_each(block, For, change)
