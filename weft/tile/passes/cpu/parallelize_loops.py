"""parallelize_loops: runs the outermost free loop of every nest in parallel on the threads.

before  for a0 in 0..32:  # free            after  for a0 in 0..32:  # free parallel
"""

from __future__ import annotations

from dataclasses import replace

from weft.scalar.nest import For, Kernel, Local
from weft.targets.machine import Machine
from weft.tile.analysis.access import trips
from weft.tile.moves.loops import Labels
from weft.tile.passes.both.collapse_loops import joined
from weft.tile.price.cost import block_time_us


def parallelize_loops(kernel: Kernel, target: Machine) -> Kernel:
    """Nests worth more than waking the threads run in parallel; the others stay serial."""
    labels = Labels(kernel.body)
    body = tuple(
        _parallel(s, target, labels) if isinstance(s, For) and _worth(s, target) else s
        for s in kernel.body
    )
    return replace(kernel, body=body)


def _worth(stmt: For, target: Machine) -> bool:
    return block_time_us((stmt,), target) > 4 * target.fork_us


def _parallel(stmt: For, target: Machine, labels: Labels) -> For:
    if stmt.role != "free" or stmt.bind not in ("", "serial"):
        return stmt
    if trips(stmt) >= 4 * target.cores or trips(stmt) % target.cores == 0:
        return replace(stmt, bind="parallel")
    inner = stmt.body[0]
    if len(stmt.body) == 1 and stmt.step == 1 and isinstance(inner, For) and inner.role == "free":
        even = inner.extent is not None and inner.extent % inner.step == 0
        if even and inner.bind in ("", "serial"):
            # the threads share more, smaller pieces
            both = replace(joined(stmt, inner, labels), bind="serial")
            return _parallel(both, target, labels)
    return replace(stmt, bind="parallel") if trips(stmt) > 1 else _descend(stmt, target, labels)


def _descend(stmt: For, target: Machine, labels: Labels) -> For:
    """Parallelize the loops inside a loop of one iteration."""
    body = tuple(_parallel(s, target, labels) if isinstance(s, For) else s for s in stmt.body)
    has_local = any(isinstance(s, Local) for s in stmt.body)
    return stmt if has_local else replace(stmt, body=body)
