"""pipeline_k_outer: while one chunk is computed, the next one is on its way to shared memory.

before  for k0 in 0..512 by 16:  # reduce    after  fill(x_s0[0], 0)
            fill(x_s0[k0 // 16 % 2], k0)            for k0 in 0..512 by 16:  # reduce
            ... x_s0[k0 // 16 % 2] ...                  for k1 in k0 + 16..min(k0 + 32, 512) by 16:
                                                            fill(x_s0[k1 // 16 % 2], k1)
                                                        ... x_s0[k0 // 16 % 2] ...
"""

from __future__ import annotations

from dataclasses import replace

from weft.core.node import Node
from weft.scalar.blocks import substitute_block
from weft.scalar.nest import Block, For, Kernel, Local
from weft.scalar.ops import apply, constant
from weft.targets.gpu import GPU
from weft.tile.moves import Labels, renamed, upto
from weft.tile.peel import simplify_block
from weft.tile.tiles import Tile, on_tiles


def pipeline_k_outer(kernel: Kernel, target: GPU) -> Kernel:
    """Fill one chunk ahead, in tiles whose slabs have two halves."""
    labels = Labels(kernel.body)

    def ahead(tile: Tile) -> Tile:
        chunk = tile.chunk()[1]
        if chunk is None or any(isinstance(s, Local) for s in chunk.body):
            return tile
        fills = tuple(s for s in chunk.body if isinstance(s, For) and s.role == "free")
        if not fills:
            return tile

        def filled(start: Node) -> Block:
            return substitute_block(fills, {chunk.axis: start})

        following = labels.axis("k")
        start = apply("add", chunk.axis, constant(chunk.step))
        end = upto(chunk.axis, 2 * chunk.step, chunk.hi)
        after = For(following, start, end, filled(following), chunk.step, "free", "serial")
        rest = tuple(s for s in chunk.body if s not in fills)
        first = simplify_block(renamed(filled(chunk.lo), labels), {})
        return tile.with_chunk(replace(chunk, body=(after, *rest)), before=first)

    return on_tiles(kernel, ahead)
