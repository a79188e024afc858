"""double_buffer: gives slabs two buffers, one to fill while the other is read.

before  for k0 in 0..512 by 16:  # reduce       after  local x_s0: f32[2,64,16] in shared
            local x_s0: f32[64,16] in shared           for k0 in 0..512 by 16:  # reduce
            ... x_s0[m0, n0] = ..                          ... x_s0[k0 // 16 % 2, m0, n0] = ..
            ... load x_s0[a0, a2]                          ... load x_s0[k0 // 16 % 2, a0, a2]

By itself it saves the second barrier of a chunk; pipeline_k_outer fills ahead. Tensor cores finish
a chunk before the next one has arrived, so their slabs get up to four buffers.
"""

from collections.abc import Sequence
from dataclasses import replace

from weft.scalar.blocks import loops_in
from weft.scalar.nest import Buffer, For, Kernel, Local
from weft.targets.gpu import GPU
from weft.tile.analysis.access import trips
from weft.tile.analysis.tiles import Tile, on_chunks
from weft.tile.moves.pipeline import in_parts

MOST = 4  # parts of a slab


def double_buffer(kernel: Kernel, target: GPU) -> Kernel:
    """Give two or more buffers to the slabs of every tile that has several chunks."""
    return on_chunks(kernel, lambda tile, chunk, _: _doubled(tile, chunk, target))


def _parts(chunk: For, slabs: Sequence[Buffer], target: GPU) -> int:
    """How many buffers each slab gets: more than two for tensor cores, if two blocks still fit."""
    if not any(loops_in(chunk.body, "mma")) or not target.async_copies:
        return 2
    each = sum(b.bytes for b in slabs)
    several = target.shared // 2 // each
    return max(2, min(MOST, trips(chunk), several if several > 2 else target.shared // each))


def _doubled(tile: Tile, chunk: For, target: GPU) -> Tile | None:
    slabs = [s.buffer for s in chunk.body if isinstance(s, Local) and s.buffer.space == "shared"]
    if trips(chunk) < 2 or not slabs:
        return None
    parts = dict.fromkeys(slabs, _parts(chunk, slabs, target))
    body = tuple(s for s in chunk.body if not isinstance(s, Local) or s.buffer not in parts)
    held, body = in_parts(chunk, parts, body)
    return tile.with_chunk(replace(chunk, body=body), outside=tuple(map(Local, held)))
