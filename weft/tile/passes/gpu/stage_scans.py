"""stage_scans: stages what tiles inside a scan read, before it or a chunk ahead.

before  for a6 in 0..4096 by 64:  # scan    after  local x_s0: f32[64,128] in shared
            ... s = sum of x[a0, a2]               local y_s0: f32[2,64,128] in shared
                         * y[a6 + a1, a2]          x_s0[m0, n0] = x[b0 + m0, n0]
                                                   for k1 in 0..64 by 64:  # prologue
                                                       y_s0[k1 // 64 % 2, ..] = y[k1 + m1, n1]
                                                   for a6 in 0..4096 by 64:  # scan
                                                       for k0 in a6 + 64..min(..):  # ahead
                                                           y_s0[k0 // 64 % 2, ..] = y[k0 + m2, n2]
                                                       ... s = sum of x_s0[a0, a2]
                                                                    * y_s0[a6 // 64 % 2, a1, a2]

So attention loads a block of queries once, and the next keys and values while it computes with
these. At its end an iteration waits for them, and for all threads (kernel/place_barriers.py).
"""

from collections.abc import Iterator
from dataclasses import replace

from weft.scalar.blocks import loads, stored_in, substitute_block
from weft.scalar.divisors import Divisors, of_axis
from weft.scalar.nest import Block, Buffer, For, Kernel, Local, Stmt, free_variables
from weft.targets.gpu import GPU
from weft.tile.analysis.access import ranges_in
from weft.tile.analysis.tiles import is_frame, tiles_of
from weft.tile.moves.loops import Labels, full
from weft.tile.moves.pipeline import pipelined
from weft.tile.moves.stage import Slab, room, slabs

PARTS = 2  # of a slab that is filled ahead


def stage_scans(kernel: Kernel, target: GPU) -> Kernel:
    """Stage the sides of all tiles in scans, on targets that copy asynchronously."""
    if not target.async_copies:
        return kernel
    scans = _Scans(Labels(kernel.body), room(kernel, target))
    return replace(kernel, body=tuple(scans.block(kernel.body, {})))


class _Scans:
    """A walk over frames, with what is left of shared memory."""

    def __init__(self, labels: Labels, left: int) -> None:
        self.labels, self.left = labels, left

    def block(self, stmts: Block, known: Divisors) -> Iterator[Stmt]:
        """The statements; `known`: of the axes around them."""
        for stmt in stmts:
            if not is_frame(stmt):
                yield stmt
                continue
            inside = {**known, stmt.axis: of_axis(stmt, known)}
            if stmt.role == "scan":
                yield from self.scan(stmt, inside)
            else:
                yield replace(stmt, body=tuple(self.block(stmt.body, inside)))

    def scan(self, scan: For, known: Divisors) -> Iterator[Stmt]:
        """The scan, after the slabs that it reads: those that move with it have several parts."""
        found = list(self.slabs(scan, known))
        parts = [PARTS if scan.axis in free_variables(s.term) else 1 for s in found]
        needed = sum(s.bytes * n for s, n in zip(found, parts, strict=True))
        if needed > self.left:
            yield scan
            return
        self.left -= needed
        fills, moving = list[Stmt](), dict[Buffer, int]()
        for slab, several in zip(found, parts, strict=True):
            (local, *fill), read = slab.filled(known, ranges_in((scan,)), self.labels)
            assert isinstance(local, Local)
            scan = replace(scan, body=substitute_block(scan.body, {slab.term: read}))
            if several == 1:
                yield from (local, *fill)
            else:
                moving[local.buffer] = several
                fills += fill
        yield from pipelined(scan, moving, tuple(fills), self.labels) if moving else (scan,)

    def slabs(self, scan: For, known: Divisors) -> Iterator[Slab]:
        """The sides of tiles that only the scan and the axes around it move, and their own."""
        for tile in tiles_of(scan.body):
            found = tile.product()
            if found is None or not full(replace(found.chunk, step=1), found.chunk.step)[1]:
                continue
            whole = replace(found.inner, lo=found.chunk.lo, hi=found.chunk.hi)
            for slab in slabs(found.update, tile.threads, whole):
                own = {*known, slab.across.axis, slab.inner.axis}
                read = {b for b in loads(slab.term) if b.space == "global"}
                still = read == {*loads(slab.term)} and read.isdisjoint(stored_in((scan,)))
                if still and own.issuperset(free_variables(slab.term)):
                    yield slab
