"""double_buffer: slabs in shared memory have two halves, one filled while the other is read.

before  for k0 in 0..512 by 16:  # reduce       after  local x_s0: f32[2,64,16] in shared
            local x_s0: f32[64,16] in shared           for k0 in 0..512 by 16:  # reduce
            ... x_s0[m0, n0] = ..                          ... x_s0[k0 // 16 % 2, m0, n0] = ..
            ... load x_s0[a0, a2]                          ... load x_s0[k0 // 16 % 2, a0, a2]

By itself it saves the second barrier of a chunk; pipeline_k_outer fills ahead.
"""

from __future__ import annotations

from dataclasses import replace

from weft.core.node import Node
from weft.core.types import TensorType
from weft.scalar.blocks import redirect
from weft.scalar.nest import For, Kernel, Local
from weft.scalar.ops import apply, constant
from weft.targets.gpu import GPU
from weft.tile.access import trips
from weft.tile.tiles import Tile, on_tiles


def double_buffer(kernel: Kernel, target: GPU) -> Kernel:
    """Double the slabs of every tile that has several chunks."""
    return on_tiles(kernel, _doubled)


def half_of(chunk: For, axis: Node) -> Node:
    """Which half the chunk that starts at an axis is in."""
    number = apply("floordiv", axis, constant(chunk.step))
    return apply("floormod", number, constant(2))


def _doubled(tile: Tile) -> Tile:
    chunk = tile.chunk()[1]
    if chunk is None or trips(chunk) < 2:
        return tile
    slabs = [s.buffer for s in chunk.body if isinstance(s, Local) and s.buffer.space == "shared"]
    if not slabs:
        return tile
    halves = {b: replace(b, type=TensorType(b.type.dtype, (2, *b.type.shape))) for b in slabs}
    body = tuple(s for s in chunk.body if not isinstance(s, Local) or s.buffer not in halves)
    half = half_of(chunk, chunk.axis)
    body = redirect(body, halves, lambda _, index: (half, *index))
    outside = tuple(map(Local, halves.values()))
    return tile.with_chunk(replace(chunk, body=body), outside=outside)
