"""mark_unroll: unrolls short loops inside a chunk, and widens loads along the sum.

before  for a2 in k0..k0 + 16:  # reduce    after  for u0 in k0..k0 + 16 by 4:  # reduce unroll
            ... load x_s0[a0, a2 - k0]                 for a2 in u0..u0 + 4:  # scan register
                                                           ... load x_s0[a0, a2 - k0]

A piece stands there in full where a slab is contiguous along the sum, so that its reads are one;
the compiler of the source unrolls the rest.
"""

from __future__ import annotations

from dataclasses import replace

from weft.core.node import Node, substitute
from weft.scalar.blocks import address, map_loops, nodes
from weft.scalar.nest import For, Kernel, Load
from weft.targets.gpu import GPU
from weft.tile.analysis.access import stride_along, trips
from weft.tile.analysis.strips import WIDEST
from weft.tile.analysis.tiles import Tile, in_strips, on_chunks
from weft.tile.moves.loops import Labels

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
        if isinstance(term.op, Load) and term.op.buffer.space == "shared":
            where = address(term.op.buffer, term.args[: term.op.buffer.type.rank], {})
            if stride_along(where, stmt.axis) == 1:
                width = max(width, WIDEST // term.op.buffer.type.dtype.bytes)
                held += _results(where, tile)
    while width * held > HELD:
        width //= 2
    if width == 1 or trips(stmt) % width:
        return replace(stmt, bind="unroll")
    return replace(in_strips(stmt, labels.axis("u"), width), bind="unroll")


def _results(where: Node, tile: Tile) -> int:
    """Elements at an address that differ between a thread's results."""
    count = 1
    for loop in reversed(tile.registers):
        count *= trips(loop) if stride_along(where, loop.axis) else 1
        where = substitute((where,), {loop.axis: loop.lo})[0]
    return count
