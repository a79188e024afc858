"""mark_unroll: unrolls short loops inside a chunk, and widens loads along the sum.

before  for a2 in k0..k0 + 16:  # reduce    after  for u0 in k0..k0 + 16 by 4:  # reduce unroll
            ... load x_s0[a0, a2 - k0]                 for a2 in u0..u0 + 4:  # scan register
                                                           ... load x_s0[a0, a2 - k0]

A piece stands there in full where a slab is contiguous along the sum, so that its reads are one;
the compiler of the source unrolls the rest.
"""

from dataclasses import replace

from weft.scalar.blocks import map_loops, nodes
from weft.scalar.nest import For, Kernel, Load
from weft.targets.gpu import GPU
from weft.tile.analysis.access import WIDEST, stride_of, trips
from weft.tile.analysis.tiles import Tile, on_chunks, strip
from weft.tile.moves.loops import Labels, in_strips

LONGEST = 32
HELD = 64  # registers for what is read along the sum


def mark_unroll(kernel: Kernel, target: GPU) -> Kernel:
    """Unroll the innermost sums of tiles."""

    def unrolled(tile: Tile, chunk: For, labels: Labels) -> Tile:
        body = map_loops(chunk.body, lambda s: _unrolled(s, tile, labels))
        return tile.with_chunk(replace(chunk, body=body))

    return on_chunks(kernel, unrolled)


def _unrolled(stmt: For, tile: Tile, labels: Labels) -> For:
    if stmt.role != "reduce" or trips(stmt) > LONGEST or any(isinstance(s, For) for s in stmt.body):
        return stmt
    width, held = 1, 0  # of a piece; values of it that a thread holds at a time
    for term in nodes(stmt.body):
        slab = term.op.buffer if isinstance(term.op, Load) else None
        if slab and slab.space == "shared" and stride_of(term, stmt.axis, {}) == 1:
            wide, _, count = strip(slab, term.args[: slab.type.rank], tile.registers)
            width = max(width, WIDEST // slab.type.dtype.bytes)
            held += round(wide * count)  # elements that differ between a thread's results
    while width > 1 and width * held > HELD:
        width //= 2
    if width == 1 or trips(stmt) % width:
        return replace(stmt, bind="unroll")
    return replace(in_strips(stmt, labels.axis("u"), width), bind="unroll")
