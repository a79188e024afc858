"""block_sums: a long sum is a sum of the sums of blocks, so that rounding errors stay small.

before  for a0 in 0..8192:  # reduce acc0     after  for s0 in 0..8192 by 128:  # reduce acc0
            acc0 <- add(acc0, x[a0])                     for a0 in s0..s0 + 128:  # reduce
                                                             acc0_s0 <- add(acc0_s0, x[a0])
                                                         acc0 <- add(acc0, acc0_s0)

One accumulator over n terms is off by up to n roundings, blocks of b by b + n / b; where there are
many blocks, they are in blocks again.
"""

from __future__ import annotations

import math
from dataclasses import replace

from weft.scalar.index import bounds
from weft.scalar.monoid import SUM
from weft.scalar.nest import Block, Fold, For, Kernel, Stmt, Update, walk
from weft.scalar.ops import apply, subtract
from weft.scalar.reach import axis_range
from weft.tile.access import Ranges
from weft.tile.moves import Labels, ending, over, upto

BLOCK = 128  # terms; twice as many are still added one by one
BLOCKS = 16  # the same of blocks


def block_sums(kernel: Kernel, target: object) -> Kernel:
    """Block every serial loop that adds more than two blocks of floats, and its other folds."""
    labels = Labels(kernel.body)

    def one(stmt: Stmt, ranges: Ranges) -> Stmt:
        if not isinstance(stmt, For):
            return stmt
        inner = ranges | {stmt.axis: axis_range(stmt, ranges)}
        if any(_sums(f) for f in stmt.folds) and _is_serial(stmt):
            return blocked_sum(stmt, ranges, labels)
        return replace(stmt, body=tuple(one(s, inner) for s in stmt.body))

    return replace(kernel, body=tuple(one(s, {}) for s in kernel.body))


def _sums(fold: Fold) -> bool:
    return fold.monoid is SUM and fold.dtypes[0].is_float


def _is_serial(stmt: For) -> bool:
    """A nest of serial or unrolled reduce loops that declares no accumulators of its own."""
    inner = [s for s in walk(stmt.body) if isinstance(s, For)]
    plain = all(s.role == "reduce" and not s.folds for s in inner)
    plain = plain and all(f.lanes == 1 for f in stmt.folds)
    return stmt.role == "reduce" and stmt.bind in ("", "serial") and plain


def blocked_sum(stmt: For, ranges: Ranges, labels: Labels) -> For:
    """The sum in blocks of its outermost loops; of its inner loops where those are long alone."""
    inside = ranges | {stmt.axis: axis_range(stmt, ranges)}
    below = _terms(stmt.body, inside)
    if _trips(stmt, ranges) * below <= 2 * BLOCK:
        return stmt
    inner = stmt.body[0]
    if below >= BLOCK and len(stmt.body) == 1 and isinstance(inner, For):
        own = _renamed(stmt.folds, "s")
        part = replace(inner, body=over(inner.body, own), folds=tuple(own.values()))
        return replace(stmt, body=(blocked_sum(part, inside, labels), *_updates(own)))
    return _in_blocks(stmt, max(1, BLOCK // below) * stmt.step, ranges, labels)


def _in_blocks(stmt: For, width: int, ranges: Ranges, labels: Labels) -> For:
    """The loop in blocks of `width`, and in blocks of blocks where there are many."""
    origin = labels.axis("s")
    own = _renamed(stmt.folds, str(origin.op.label))  # type: ignore[attr-defined]
    hi = upto(origin, width, stmt.hi)
    body = ending(over(stmt.body, own), stmt.hi, hi)
    part = replace(stmt, lo=origin, hi=hi, body=body, folds=tuple(own.values()))
    outer = replace(stmt, axis=origin, body=(part, *_updates(own)), step=width)
    many = _trips(outer, ranges) > 2 * BLOCKS
    return _in_blocks(outer, width * BLOCKS, ranges, labels) if many else outer


def _renamed(folds: tuple[Fold, ...], suffix: str) -> dict[Fold, Fold]:
    return {f: replace(f, labels=tuple(f"{n}_{suffix}" for n in f.labels)) for f in folds}


def _updates(own: dict[Fold, Fold]) -> Block:
    return tuple(Update(f, part.accs, partial=True) for f, part in own.items())


def _trips(stmt: For, ranges: Ranges) -> int:
    """Most iterations that follow one another."""
    most = bounds(apply(subtract, stmt.hi, stmt.lo), ranges)[1]
    if stmt.bind not in ("", "serial") or math.isinf(most):
        return 1
    return max(1, math.ceil(most / stmt.step))


def _terms(block: Block, ranges: Ranges) -> int:
    """Terms that one accumulator adds in a block."""
    total = 1
    for stmt in block:
        if isinstance(stmt, For):
            inner = ranges | {stmt.axis: axis_range(stmt, ranges)}
            total = max(total, _trips(stmt, ranges) * _terms(stmt.body, inner))
    return total
