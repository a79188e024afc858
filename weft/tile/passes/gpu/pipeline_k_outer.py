"""pipeline_k_outer: loads the next chunks into shared memory while one is computed.

before  for k0 in 0..512 by 16:  # reduce    after  for k2 in 0..16 by 16:  # prologue
            fill(x_s0[k0 // 16 % 2], k0)                fill(x_s0[k2 // 16 % 2], k2)
            ... x_s0[k0 // 16 % 2] ...              for k0 in 0..512 by 16:  # reduce
                                                        for k1 in k0 + 16..min(..) by 16:  # ahead
                                                            fill(x_s0[k1 // 16 % 2], k1)
                                                        ... x_s0[k0 // 16 % 2] ...

Slabs with n buffers are filled n - 1 chunks ahead. At its end an iteration waits for the chunk of
the next one, and for all threads (kernel/place_barriers.py).
"""

from dataclasses import replace

from weft.scalar.nest import For, Kernel, Local, Store, walk
from weft.targets.gpu import GPU
from weft.tile.analysis.tiles import Tile, on_chunks
from weft.tile.moves.loops import Labels
from weft.tile.moves.pipeline import filled_ahead


def pipeline_k_outer(kernel: Kernel, target: GPU) -> Kernel:
    """Fill chunks ahead, in tiles whose slabs have several parts."""

    def ahead(tile: Tile, chunk: For, labels: Labels) -> Tile | None:
        fills = tuple(s for s in chunk.body if isinstance(s, For) and s.role == "free")
        if not fills or any(isinstance(s, Local) for s in chunk.body):
            return None
        stored = next(s.buffer for s in walk(fills) if isinstance(s, Store))
        far = (stored.type.shape[0] - 1) * chunk.step
        before, after = filled_ahead(chunk, fills, far, labels)
        rest = tuple(s for s in chunk.body if s not in fills)
        return tile.with_chunk(replace(chunk, body=(after, *rest)), before=(before,))

    return on_chunks(kernel, ahead)
