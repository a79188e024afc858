"""split_ranges: splits a loop at the bounds that its body compares the axis with.

before  for a0 in 0..12:  # free                     after  for a0 in 0..5:  # free
            y[a0] = where(a0 < 5, x[a0], z[a0 - 5])             y[a0] = x[a0]
                                                            for a0 in 0..7:  # free
                                                                y[a0 + 5] = z[a0]

A sum over both parts is that of each, added up. Loops over sliding windows are split likewise where
windows reach into the padding, and those over chunks of a row at the last one, which may be a part
of one. An innermost loop whose axis is divided becomes two, over quotients and remainders: memory
is even along these.

before  for a0 in 0..256:  # free                       after  for a0 in 0..4:  # free
            y[a0] = x[a0 // 64, a0 % 64]                           for a1 in 0..64:  # free
                                                                       y[a0 * 64 + a1] = x[a0, a1]
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from weft.core.node import Node
from weft.scalar.blocks import nodes, substitute_block
from weft.scalar.nest import Block, For, Kernel, Stmt, Update, walk
from weft.scalar.ops import add, apply, constant, function_of, value_of
from weft.scalar.reach import ranges_inside
from weft.scalar.sizes import hint, larger, smaller
from weft.scalar.structure import renumber
from weft.targets.machine import Machine
from weft.tile.analysis.access import Ranges, contraction, ranges_in, span
from weft.tile.moves.loops import Labels
from weft.tile.moves.peel import cuts, simplify_block

PIECES = 4  # a loop is copied at most so often
STATEMENTS = 8  # and only while its body is small
SHORTEST = 8  # of the loops over remainders
WIDE = 64  # the least piece of a sum, or of a loop around one that is no product


def split_ranges(kernel: Kernel, target: Machine) -> Kernel:
    """Split small free loops where a comparison has one answer beyond, or the axis is divided.

    And loops over chunks of any size, once.
    """

    labels = Labels(kernel.body)

    def visit(block: Block, ranges: Ranges, product: bool) -> Block:
        def split(stmt: For) -> Iterator[For]:
            whole = product or contraction(stmt) is not None
            for number, part in enumerate(_pieces(stmt, ranges_in((stmt,), ranges), whole)):
                piece = _divided(_with_own_folds(part, number), labels)
                inner = ranges_inside(piece, ranges)
                yield replace(piece, body=visit(simplify_block(piece.body, inner), inner, whole))

        made, sums = list[Stmt](), dict[Node, Node]()
        for before in block:
            (stmt,) = substitute_block((before,), sums)
            parts = [*split(stmt)] if isinstance(stmt, For) else [stmt]
            made += parts
            sums |= _sums(parts)
        return tuple(made)

    return replace(kernel, body=renumber(visit(kernel.body, {}, False)))


def _pieces(stmt: For, ranges: Ranges, product: bool) -> list[For]:
    """One loop for each range, counted from 0."""
    inside = list(walk(stmt.body))
    loops = [s for s in inside if isinstance(s, For)]
    # windows: of the loops around a reduction not the one that lanes may run over
    kept = any(s.folds for s in loops) and (product or all(s.role != "free" for s in loops))
    extent = span(stmt)
    plain = stmt.role == "free" and not (kept and product) and len(inside) <= STATEMENTS
    chunks = stmt.role == "scan" and not stmt.folds
    sums = not product and _is_sum(stmt)
    if extent is None or not (plain or chunks or sums):
        return [stmt]
    found = {c for s in inside for c, _ in cuts(s, stmt.axis, extent, ranges)}
    within = {c for c in found if 0 <= hint(c) <= hint(extent)} - {0, extent}
    bounds = sorted(within, key=lambda cut: (hint(cut), str(cut)))
    if not 0 < len(bounds) < (2 if chunks else PIECES):
        return [stmt]
    if (kept or sums) and not _all_wide([0, *bounds, extent]):
        return [stmt]
    pieces: list[For] = []
    start: Any = 0
    for cut in (*bounds, extent):
        end = larger(start, smaller(cut, extent))
        moved = {stmt.axis: apply(add, stmt.axis, constant(start))} if start != 0 else {}
        body = substitute_block(stmt.body, moved)
        pieces.append(replace(stmt, hi=constant(end - start), body=body))
        start = end
    return pieces


def _all_wide(bounds: Sequence[Any]) -> bool:
    """Whether the pieces between bounds are long, whatever sizes are."""
    return all(isinstance(b, int) for b in bounds) and all(
        b - a >= WIDE for a, b in pairwise(bounds)
    )


def _is_sum(stmt: For) -> bool:
    """Whether a loop does nothing but to fold values by simple functions."""
    own = (isinstance(s, Update) and s.fold in stmt.folds for s in stmt.body)
    return stmt.role == "reduce" and all(own) and all(f.monoid.function for f in stmt.folds)


def _with_own_folds(part: For, number: int) -> For:
    """A piece of a loop, where its folds have names of their own if it is not the first."""
    if not number or not part.folds:
        return part
    own = {f: f.suffixed(f"q{number}") for f in part.folds}
    body = (replace(s, fold=own[s.fold]) if isinstance(s, Update) else s for s in part.body)
    return replace(part, folds=tuple(own.values()), body=tuple(body))


def _sums(parts: Sequence[Stmt]) -> dict[Node, Node]:
    """What the pieces of a fold are together, by the accumulators of the first."""
    first, *others = ([*s.folds] if isinstance(s, For) else [] for s in parts)
    found = dict[Node, Node]()
    for n, fold in enumerate(first if others else []):
        terms = fold.accs
        for other in others:
            terms = fold.monoid.combine(terms, other[n].accs)
        found.update(zip(fold.accs, terms, strict=True))
    return found


def _divided(stmt: For, labels: Labels) -> For:
    """The loop as one over axis // n around one over axis % n, for the largest n of its body."""
    found = [n for n in nodes(stmt.body) if function_of(n) == "floormod"]
    units = [int(value_of(n.args[1]) or 0) for n in found if n.args[0] is stmt.axis]
    extent = stmt.extent or 0
    unit = max((n for n in units if SHORTEST <= n < extent and extent % n == 0), default=0)
    plain = stmt.role == "free" and stmt.lo is constant(0) and stmt.step == 1
    if unit == 0 or not plain or any(isinstance(s, For) for s in stmt.body):
        return stmt
    rest = labels.axis("r")
    whole = apply(add, apply("multiply", stmt.axis, constant(unit)), rest)
    body = substitute_block(stmt.body, {stmt.axis: whole})
    inner = replace(stmt, axis=rest, hi=constant(unit), body=body)
    return replace(stmt, hi=constant(extent // unit), body=(inner,))
