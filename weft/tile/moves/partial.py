"""The bodies of a blocked loop's blocks: full ones, narrower ones, the last one.

full_body(b0 in 0..18 by 16)            # for a0 in b0..b0 + 16, of b0..min(b0 + 16, 18)
last_body(b0 in 0..18 by 16, 16, 2)     # for a0 in b0..b0 + 2
"""

from collections.abc import Callable
from dataclasses import replace

from weft.core.node import Node, make, postorder, rebuild, substitute
from weft.scalar.affine import function_of, linear
from weft.scalar.blocks import loops_in, map_each, rewrite_block
from weft.scalar.nest import Block, For
from weft.scalar.ops import apply, constant


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
