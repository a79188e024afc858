"""split_ranges: a loop whose body asks where it is becomes one loop for each answer.

before  for a0 in 0..12:  # free                     after  for a0 in 0..5:  # free
            y[a0] = where(a0 < 5, x[a0], z[a0 - 5])             y[a0] = x[a0]
                                                            for a0 in 0..7:  # free
                                                                y[a0 + 5] = z[a0]
"""

from __future__ import annotations

from dataclasses import replace

from weft.core.node import Node, postorder
from weft.scalar.blocks import substitute_block
from weft.scalar.index import function_of, linear
from weft.scalar.nest import Block, For, Kernel, Stmt, walk
from weft.scalar.ops import add, apply, constant, subtract
from weft.targets.cpu import CPU
from weft.tile.moves import Labels
from weft.tile.peel import axis_range, simplify_block

PIECES = 4  # a loop is copied at most so often
STATEMENTS = 8  # and only while its body is small

# first value of the axis for which the answer differs, from a - b = axis + c and from c - axis
CHANGES = {
    "lt": (lambda c: -c, lambda c: c + 1),
    "le": (lambda c: 1 - c, lambda c: c),
    "gt": (lambda c: 1 - c, lambda c: c),
    "ge": (lambda c: -c, lambda c: c + 1),
}


def split_ranges(kernel: Kernel, target: CPU) -> Kernel:
    """Split every small free loop at the literals its axis is compared with."""

    labels = Labels(kernel.body)

    def visit(block: Block, ranges: dict[Node, tuple[float, float]]) -> Block:
        out: list[Stmt] = []
        for stmt in block:
            for piece in _pieces(stmt, labels) if isinstance(stmt, For) else (stmt,):
                if isinstance(piece, For):
                    inner = ranges | {piece.axis: axis_range(piece, ranges)}
                    body = visit(simplify_block(piece.body, inner), inner)
                    piece = replace(piece, body=body)
                out.append(piece)
        return tuple(out)

    return replace(kernel, body=visit(kernel.body, {}))


def _pieces(stmt: For, labels: Labels) -> list[For]:
    """The loop over each of its ranges, counted from 0."""
    inside = list(walk(stmt.body))
    folds = any(isinstance(s, For) and s.folds for s in inside)
    if stmt.role != "free" or stmt.extent is None or folds or len(inside) > STATEMENTS:
        return [stmt]
    cuts = sorted({c for s in inside for c in _cuts(s, stmt.axis) if 0 < c < stmt.extent})
    if not cuts or len(cuts) >= PIECES:
        return [stmt]
    pieces: list[For] = []
    for start, end in zip([0, *cuts], [*cuts, stmt.extent], strict=True):
        moved = {stmt.axis: apply(add, stmt.axis, constant(start))} if start else {}
        body = substitute_block(stmt.body, moved)
        piece = replace(stmt, hi=constant(end - start), body=body)
        pieces.append(_with_own_axes(piece, labels) if start else piece)
    return pieces


def _with_own_axes(stmt: For, labels: Labels) -> For:
    """A copy of a nest over axes of its own."""
    fresh = labels.axis("a")
    body = tuple(_with_own_axes(s, labels) if isinstance(s, For) else s for s in stmt.body)
    return replace(stmt, axis=fresh, body=substitute_block(body, {stmt.axis: fresh}))


def _cuts(stmt: Stmt, axis: Node) -> set[int]:
    """Where the statement's comparisons of the axis with literals change their answer."""
    found: set[int] = set()
    for term in postorder(*stmt.terms()):
        name = function_of(term)
        if name in CHANGES and term.args[0].type == axis.type:
            terms, offset = linear(apply(subtract, *term.args))
            if terms in ({axis: 1}, {axis: -1}):
                found.add(CHANGES[name][terms[axis] < 0](offset))
    return found
