"""parallelize_loops: runs the outermost free loop of every nest in parallel on the threads.

before  for a0 in 0..32:  # free            after  for a0 in 0..32:  # free parallel
before  for a0 in 0..s0:  # free            after  for a0 in 0..s0:  # free parallel grain 409
"""

from dataclasses import replace

from weft.core.node import Node
from weft.scalar.blocks import loops_in, map_loops
from weft.scalar.choices import Choices
from weft.scalar.intervals import Known
from weft.scalar.nest import For, Kernel, Local
from weft.scalar.ops import constant
from weft.scalar.sizes import Extent, Size, form, hint, larger
from weft.scalar.symbols import least, negative
from weft.targets.machine import Machine
from weft.tile.analysis.access import span, trips
from weft.tile.moves.join import joined
from weft.tile.moves.loops import Labels
from weft.tile.price.cost import block_time_us


def parallelize_loops(kernel: Kernel, target: Machine, choices: Choices) -> Kernel:
    """Nests worth more than waking the threads run in parallel; the others stay serial.

    Where sizes decide what a nest is worth, so they do how many threads are woken.
    """
    labels = Labels(kernel.body)

    def one(stmt: For) -> For:
        time, total = block_time_us((stmt,), target), steps(stmt)
        if isinstance(total, Size):
            grain = int(2 * target.fork_us * hint(total) / max(time, 1e-3))
            if most(total) < 2 * grain:
                return stmt  # no size is worth a second thread
            shared = _parallel(stmt, target, labels)
            serial = all(s.bind != "parallel" for s in loops_in((shared,)))
            free = stmt.role == "free" and stmt.bind in ("", "serial")
            if serial and free and isinstance(span(stmt), Size):
                shared = replace(stmt, bind="parallel")  # of one block here, but of many elsewhere
            return with_grain(shared, grain)
        shared = choices.decide("threads", time > 4 * target.fork_us)
        return _parallel(stmt, target, labels) if shared else stmt

    return replace(kernel, body=map_loops(kernel.body, one))


def most(size: Size) -> float:
    """The greatest number that a size is known to be no more than."""
    return -least(negative(form(size)), Known({}))


def steps(stmt: For, around: frozenset[Node] = frozenset()) -> Extent:
    """How often the innermost statements of a nest run, a loop over a block counted once."""
    turns = 1 if stmt.lo in around or (n := span(stmt)) is None else n
    return turns * inner_steps(stmt, around)


def inner_steps(stmt: For, around: frozenset[Node] = frozenset()) -> Extent:
    """The same in one iteration, 1 at least."""
    return larger(sum(steps(s, around | {stmt.axis}) for s in stmt.body if isinstance(s, For)), 1)


def with_grain(stmt: For, least: int) -> For:
    """Its parallel loop with a grain of so many steps at least."""
    if stmt.grain is not None:
        return stmt
    if stmt.bind != "parallel":
        return replace(stmt, body=map_loops(stmt.body, lambda s: with_grain(s, least)))
    return replace(stmt, grain=constant(least // (stmt.step * inner_steps(stmt)) + 1))


def _parallel(stmt: For, target: Machine, labels: Labels) -> For:
    if stmt.role != "free" or stmt.bind not in ("", "serial"):
        return stmt
    if trips(stmt) >= 4 * target.cores or trips(stmt) % target.cores == 0:
        return replace(stmt, bind="parallel")
    inner = stmt.body[0]
    if len(stmt.body) == 1 and stmt.step == 1 and isinstance(inner, For) and inner.role == "free":
        even = inner.extent is not None and inner.extent % inner.step == 0
        even = even or (inner.step == 1 and isinstance(span(inner), Size))
        both = joined(stmt, inner, labels) if even and inner.bind in ("", "serial") else None
        if both is not None:  # the threads share more, smaller pieces
            return _parallel(replace(both, bind="serial"), target, labels)
    return replace(stmt, bind="parallel") if trips(stmt) > 1 else _descend(stmt, target, labels)


def _descend(stmt: For, target: Machine, labels: Labels) -> For:
    """Parallelize the loops inside a loop of one iteration."""
    body = map_loops(stmt.body, lambda s: _parallel(s, target, labels))
    has_local = any(isinstance(s, Local) for s in stmt.body)
    return stmt if has_local else replace(stmt, body=body)
