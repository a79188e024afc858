"""Joins nested loops: one axis over the product of their iterations.

before  for a0 in 0..28: for a1 in 0..512: x[a0, a1]    after  for j0 in 0..14336:
                                                                   x[j0 // 512, j0 % 512]
"""

from collections.abc import Sequence
from dataclasses import replace

from weft.core.node import Node, postorder
from weft.scalar.blocks import map_each, only_loop, substitute_block
from weft.scalar.index import simplify
from weft.scalar.nest import Block, For, Store, free_variables
from weft.scalar.ops import apply, constant, floordiv, floormod, has_symbol
from weft.scalar.reach import extent_of
from weft.tile.analysis.access import Contraction, is_even, ranges_in, span, trips, value_uses
from weft.tile.moves.loops import Labels


def collapse(block: Block) -> Block:
    """The block with its loops joined wherever that keeps every access even."""
    labels = Labels(block)
    return map_each(block, For, lambda loop: collapsed(loop, labels) or loop)


def collapsed(stmt: For, labels: Labels) -> For | None:
    """The one loop for a loop and the only loop inside it, None when strides would break."""
    inner = only_loop(stmt.body)
    if inner is None or stmt.role != inner.role or stmt.role == "scan":
        return None
    loop = None if stmt.bind or inner.bind or inner.folds else joined(stmt, inner, labels)
    if loop is None:
        return None
    ranges = ranges_in((loop,))
    even = is_even(loop.body, loop.axis, ranges)
    # as a value the joint axis would be divided: only addresses absorb that
    return loop if even and not value_uses(loop.body, loop.axis) else None


def joined(outer: For, inner: For, labels: Labels) -> For | None:
    """Both loops as one, over the product of their iterations; None where that is not known."""
    count, turns = _count(inner), _count(outer)
    if count is None or turns is None or outer.axis in postorder(inner.lo, inner.hi):
        return None  # a block of rows may end before its length
    joint = labels.axis("j")
    parts = (outer, floordiv), (inner, floormod)
    values = {loop.axis: _at(loop, apply(part, joint, count)) for loop, part in parts}
    body, end = substitute_block(inner.body, values), simplify(apply("multiply", turns, count), {})
    return replace(outer, axis=joint, lo=constant(0), hi=end, step=1, body=body)


def nested_and_joined(loops: Sequence[For], body: Block, labels: Labels) -> For:
    """The body inside loops, each joined with those inside it where accesses stay even."""
    nest = replace(loops[-1], body=body)
    for loop in reversed(loops[:-1]):
        both = replace(loop, body=(nest,))
        nest = collapsed(both, labels) or both
    return nest


def _count(loop: For) -> Node | None:
    """The number of iterations, where that is a literal or a size; None for none, or another."""
    if has_symbol(loop.hi) and loop.lo is constant(0) and loop.step == 1:
        return None if free_variables(loop.hi) else loop.hi
    return constant(trips(loop)) if extent_of(loop) else None


def _at(loop: For, turn: Node) -> Node:
    """The value of the loop's axis in iteration number `turn`."""
    return simplify(apply("add", loop.lo, apply("multiply", turn, constant(loop.step))), {})


def joined_columns(c: Contraction, labels: Labels) -> Contraction | None:
    """The contraction with columns over two loops joined; None where accesses would be uneven.

    before  for a0 in ..: for a1 in ..: y[.., a0, a1]   columns: the loop over j0, joined: both
    """
    whole = c.outer and {c.columns.lo, c.outer[-1].lo} == {constant(0)}
    if not whole or span(c.columns) is None:
        return None
    outer, inner = c.outer[-1], c.columns
    joint = collapsed(replace(outer, body=(replace(inner, body=c.stores),)), labels)
    if joint is None or outer.axis in postorder(c.left):
        return None
    stores = tuple(s for s in joint.body if isinstance(s, Store))
    columns = replace(joint, body=())
    return replace(c, columns=columns, outer=c.outer[:-1], stores=stores, joined=(outer, inner))
