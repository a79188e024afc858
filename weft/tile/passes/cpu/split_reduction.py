"""split_reduction: splits an outermost reduction among the threads, then combines their parts.

before  for a0 in 0..4096:  # reduce acc0        after  local part0: f32[2]
            acc0 <- add(acc0, x[a0])                    for p0 in 0..4096 by 2048:  # free parallel
        y[] = acc0                                          for a0 in p0..p0 + 2048:  # reduce
                                                                acc0_p <- add(acc0_p, x[a0])
                                                            part0[p0 // 2048] = acc0_p
                                                        for q0 in 0..2:  # reduce acc0
                                                            acc0 <- add(acc0, part0[q0])
"""

from dataclasses import replace

from weft.core.node import Node
from weft.scalar.blocks import expand_loops
from weft.scalar.choices import Choices
from weft.scalar.nest import Block, For, Kernel, Local, Store
from weft.scalar.ops import add, apply, constant, floordiv, maximum, minimum, multiply
from weft.scalar.sizes import Size
from weft.targets.machine import Machine
from weft.tile.analysis.access import span, trips
from weft.tile.moves.loops import Labels, upto
from weft.tile.moves.parts import combining, own_part
from weft.tile.price.cost import block_time_us

ROUND = 256  # iterations a part is a multiple of: whole vectors, several at a time


def split_reduction(kernel: Kernel, target: Machine, choices: Choices) -> Kernel:
    """Split every outermost reduction that takes longer than waking the threads."""
    labels = Labels(kernel.body)

    def parts(stmt: For) -> Block:
        if stmt.role != "reduce" or not stmt.folds or span(stmt) is None:
            return (stmt,)
        time = block_time_us((stmt,), target)
        if isinstance(span(stmt), Size) and stmt.lo is constant(0) and stmt.step == 1:
            least = 4 * target.fork_us / max(time, 1e-3) * trips(stmt)
            return _split_at_size(stmt, int(least), target, labels)
        splits = stmt.extent and choices.decide("split", time > 8 * target.fork_us)
        return _split(stmt, target, labels) if splits else (stmt,)

    return replace(kernel, body=expand_loops(kernel.body, parts))


def _split(stmt: For, target: Machine, labels: Labels) -> Block:
    """A part for each core; what is left of them, which one thread has after all, is short."""
    unit = ROUND if trips(stmt) >= target.cores * ROUND else 1
    part = max(1, trips(stmt) // (target.cores * unit)) * unit
    parts, origin = -(-trips(stmt) // part), labels.axis("p")
    inner = replace(stmt, lo=origin, hi=upto(origin, part, stmt.hi))
    shared = For(origin, stmt.lo, stmt.hi, (), part, "free", "parallel")
    return _combined(shared, inner, apply(floordiv, origin, constant(part)), parts, labels)


def _split_at_size(stmt: For, least: int, target: Machine, labels: Labels) -> Block:
    """A part for each core, of a length that is a size; one thread has them if they are short."""
    turn, each = labels.axis("p"), apply(add, stmt.hi, constant(target.cores * ROUND - 1))
    each = apply(floordiv, each, constant(target.cores * ROUND))
    each = apply(multiply, each, constant(ROUND))
    lo = apply(multiply, turn, each)
    ends = (apply(minimum, end, stmt.hi) for end in (lo, apply(add, lo, each)))
    inner = replace(stmt, lo=next(ends), hi=next(ends))
    rows = apply(floordiv, constant(least), apply(maximum, each, constant(1)))
    cores = constant(0), constant(target.cores)
    shared = For(turn, *cores, (), 1, "free", "parallel", grain=apply(add, rows, constant(1)))
    return _combined(shared, inner, turn, target.cores, labels)


def _combined(shared: For, inner: For, at: Node, parts: int, labels: Labels) -> Block:
    """The parallel loop over so many parts, `inner` in each, and the loop that adds them up."""
    part, _ = own_part(inner, inner.folds, "p")
    accs = (acc for f in part.folds for acc in f.accs)
    lines = {a: labels.buffer("part", a.type.dtype, (parts,)) for f in inner.folds for a in f.accs}
    stores = [Store(b, (at,), acc) for b, acc in zip(lines.values(), accs, strict=True)]
    combine = replace(combining(inner.folds, lines, labels.axis("q"), parts), bind="serial")
    shared = replace(shared, body=(part, *stores))
    return (*map(Local, lines.values()), shared, combine)
