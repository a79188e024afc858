"""split_reduction: splits an outermost reduction among the threads, then combines their parts.

before  for a0 in 0..4096:  # reduce acc0        after  local part0: f32[2]
            acc0 <- add(acc0, x[a0])                    for p0 in 0..4096 by 2048:  # free parallel
        y[] = acc0                                          for a0 in p0..p0 + 2048:  # reduce
                                                                acc0_p <- add(acc0_p, x[a0])
                                                            part0[p0 // 2048] = acc0_p
                                                        for q0 in 0..2:  # reduce acc0
                                                            acc0 <- add(acc0, part0[q0])
"""

from __future__ import annotations

from dataclasses import replace

from weft.core.node import make
from weft.core.types import TensorType
from weft.scalar.nest import Block, Buffer, Fold, For, Kernel, Load, Local, Stmt, Store, Update
from weft.scalar.ops import apply, constant, floordiv
from weft.targets.machine import Machine
from weft.tile.analysis.access import trips
from weft.tile.moves.loops import Labels, over, upto
from weft.tile.price.cost import block_time_us

ROUND = 256  # iterations a part is a multiple of: whole vectors, several at a time


def split_reduction(kernel: Kernel, target: Machine) -> Kernel:
    """Split every outermost reduction that takes longer than waking the threads."""
    labels = Labels(kernel.body)
    out: list[Stmt] = []
    for stmt in kernel.body:
        whole = isinstance(stmt, For) and stmt.role == "reduce" and stmt.folds and stmt.extent
        if whole and block_time_us((stmt,), target) > 8 * target.fork_us:
            assert isinstance(stmt, For)
            out.extend(_split(stmt, target, labels))
        else:
            out.append(stmt)
    return replace(kernel, body=tuple(out))


def _split(stmt: For, target: Machine, labels: Labels) -> Block:
    part = -(-trips(stmt) // (target.cores * ROUND)) * ROUND
    if trips(stmt) < target.cores * ROUND:
        part = -(-trips(stmt) // target.cores)
    parts = -(-trips(stmt) // part)
    origin, turn = labels.axis("p"), labels.axis("q")
    own = {f: replace(f, labels=tuple(f"{n}_p" for n in f.labels)) for f in stmt.folds}
    partial = {f: _buffers(f, parts, labels) for f in stmt.folds}
    lines = [b for buffers in partial.values() for b in buffers]
    inner = replace(stmt, lo=origin, hi=upto(origin, part, stmt.hi))
    inner = replace(inner, body=over(stmt.body, own), folds=tuple(own.values()))
    at = apply(floordiv, origin, constant(part))
    accs = (acc for f in stmt.folds for acc in own[f].accs)
    stores = [Store(b, (at,), acc) for b, acc in zip(lines, accs, strict=True)]
    shared = For(origin, stmt.lo, stmt.hi, (inner, *stores), part, "free", "parallel")
    reads = {f: tuple(make(Load(b), turn) for b in partial[f]) for f in stmt.folds}
    updates = tuple(Update(f, values, partial=True) for f, values in reads.items())
    turns = constant(0), constant(parts)
    combine = For(turn, *turns, updates, 1, "reduce", "serial", stmt.folds)
    return (*(Local(b) for b in lines), shared, combine)


def _buffers(fold: Fold, parts: int, labels: Labels) -> tuple[Buffer, ...]:
    return tuple(
        Buffer(labels.buffer("part"), TensorType(d, (parts,)), "local") for d in fold.dtypes
    )
