"""The bodies of a blocked loop's blocks: full ones, narrower ones, the last one.

full_body(b0 in 0..18 by 16)            # for a0 in b0..b0 + 16, of b0..min(b0 + 16, 18)
last_body(b0 in 0..18 by 16, 16, 2)     # for a0 in b0..b0 + 2
"""

from collections.abc import Callable
from dataclasses import replace

from weft.core.node import Node
from weft.scalar.affine import function_of, linear
from weft.scalar.blocks import map_statements, rewrite_block
from weft.scalar.nest import Block, For, Stmt, walk
from weft.scalar.ops import apply, constant


def loops_below(stmt: For) -> list[For]:
    """The loops over a part of a block that end where it does: others are whole in any case."""
    found = [s for s in walk(stmt.body) if isinstance(s, For) and s.lo is stmt.axis]
    return [s for s in found if stmt.hi in (s.hi, *s.hi.args)]


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

    def once(s: Stmt) -> Stmt:
        if isinstance(s, For) and s.lo is stmt.axis and s.bind == "register":
            return replace(s, hi=apply("add", s.lo, constant(unit)))
        return s

    return map_statements(cut_body(stmt, lambda ends: apply("add", stmt.axis, left)), once)


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
