"""The bodies of a blocked loop's blocks: full ones, narrower ones, the last one.

full_body(b0 in 0..18 by 16)            # for a0 in b0..b0 + 16, of b0..min(b0 + 16, 18)
last_body(b0 in 0..18 by 16, 16, 2)     # for a0 in b0..b0 + 2

Where a size ends a loop, the last block may compute iterations again: all are full then.

before  for b0 in 0..s0 by 8:                     repeated  for b0 in 0..s0 by 8:
            for a0 in b0..min(b0 + 8, s0):                      for a0 in b0..b0 + 8:
                y[a0] = x[a0]                                       y[min(a0, s0 - 1)] = ...

overlapping     for b0 in 0..s0 by 8:
                    for a0 in min(b0, s0 - 8)..min(b0, s0 - 8) + 8:
                        y[a0] = x[a0]
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from weft.core.node import Node, make, postorder, rebuild, substitute
from weft.scalar import blocks
from weft.scalar.affine import linear
from weft.scalar.blocks import loops_in, map_each, nodes, rewrite_block, substitute_block
from weft.scalar.nest import Block, Buffer, For, Load, Store, Update, free_variables, walk
from weft.scalar.ops import apply, constant, function_of


def starting(body: Block, axis: Node) -> list[For]:
    """The loops over the blocks, or parts of these, that an axis is the start of."""
    return [s for s in loops_in(body) if s.lo is axis]


def loops_below(stmt: For) -> list[For]:
    """The loops over a part of a block that end where it does: others are whole in any case."""
    return [s for s in starting(stmt.body, stmt.axis) if stmt.hi in (s.hi, *s.hi.args)]


def unit_of(stmt: For) -> int:
    """Iterations that are not split where a block is unrolled."""
    return min((s.step for s in loops_below(stmt) if s.bind == "register"), default=stmt.step)


def unrolls(stmt: For) -> bool:
    return any(s.lanes or s.bind == "register" for s in loops_below(stmt))


def full_body(stmt: For, width: int | None = None) -> Block:
    """The body of a full block, of another width perhaps: min(axis + step, end) is axis + width."""
    return cut_body(stmt, lambda ends: apply("add", stmt.axis, constant(width)) if width else ends)


def last_body(stmt: For, unit: int, left: Node) -> Block:
    """The body of a block of `left` iterations, of `unit` at most: what is unrolled runs once.

    Vectors end at axis + left, so that counts and masks depend on `left` alone.
    """

    def once(s: For) -> For:
        unrolled = s.lo is stmt.axis and s.bind == "register"
        return replace(s, hi=apply("add", s.lo, constant(unit))) if unrolled else s

    return map_each(cut_body(stmt, lambda ends: apply("add", stmt.axis, left)), For, once)


def cut_body(stmt: For, end: Callable[[Node], Node]) -> Block:
    """The body with another end for min(axis + step, end of the loop), given axis + step."""

    def change(node: Node) -> Node | None:
        other = end_of(node, stmt)
        return None if other is None else end(other)

    return rewrite_block(stmt.body, change)


def end_of(node: Node, stmt: For) -> Node | None:
    """Of min(axis + step, end of the loop) the first."""
    if function_of(node) != "minimum" or stmt.hi not in node.args:
        return None
    other = node.args[0] if node.args[1] is stmt.hi else node.args[1]
    terms, width = linear(other)
    return other if terms == {stmt.axis: 1} and width <= stmt.step else None


def ending(loop: For, new: Node) -> Block:
    """The body of a loop with its blocks cut off at another end of it."""

    def change(node: Node) -> Node | None:
        cut = function_of(node) == "minimum" and loop.hi in node.args
        return make(node.op, *(new if a is loop.hi else a for a in node.args)) if cut else None

    return _with_ends(loop, lambda hi: rebuild((hi,), change)[0])


def with_blocks(loop: For) -> For:
    """The loop of one block at most, where min(axis + step, end) was simplified to the end."""
    block = apply("minimum", apply("add", loop.axis, constant(loop.step)), loop.hi)

    def change(hi: Node) -> Node:
        return hi if block in postorder(hi) else substitute((hi,), {loop.hi: block})[0]

    return replace(loop, body=_with_ends(loop, change))


def _with_ends(loop: For, change: Callable[[Node], Node]) -> Block:
    """The body of a loop, where its blocks and the blocks of these have other ends."""
    axes = {loop.axis}
    for s in loops_in(loop.body):
        axes |= {s.axis} if s.lo in axes else set()
    return map_each(loop.body, For, lambda s: replace(s, hi=change(s.hi)) if s.axis in axes else s)


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
    own, unrolled = blocks.locals_in(stmt.body), [*loops_in(stmt.body, "register")]
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
    places = [index for _, index in blocks.accesses(stmt.body)]
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
