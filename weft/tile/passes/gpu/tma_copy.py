"""tma_copy: fills slabs that are boxes of a tensor by TMA, from sm_90 on.

before  for m0 in b0..b0 + 64:  # free thread        after  for m0 in b0..b0 + 64:  # free box
            for c0 in k0..k0 + 32 by 4:  # free thread          for n0 in k0..k0 + 32:  # free box
                for n0 in c0..c0 + 4:  # free register              x_s0[..] = load x[m0, n0] async
                    x_s0[..] = load x[m0, n0]

One thread starts the copy; the others do nothing for it. Boxes cannot be padded, so TMA is used
where a swizzle avoids bank conflicts as well as padding would.
"""

from dataclasses import replace

from weft.scalar.nest import For, Kernel, Stmt
from weft.targets.gpu import GPU
from weft.tile.analysis.access import trips
from weft.tile.analysis.boxes import box_of
from weft.tile.analysis.tiles import Tile, accesses_of, best_pad, best_swizzle, on_chunks
from weft.tile.moves.loops import Labels

CHUNKS = 4  # fewer end before the engine has its first map


def tma_copy(kernel: Kernel, target: GPU) -> Kernel:
    """Let TMA fill the slabs of tiles that have several chunks."""

    def by_engine(tile: Tile, chunk: For, labels: Labels) -> Tile | None:
        if trips(chunk) < CHUNKS:
            return None
        found = list(accesses_of(tile))

        def one(stmt: Stmt) -> Stmt:
            box = box_of(stmt)
            if box is None or box.region() is None:
                return stmt
            slab = box.store.buffer
            pays = best_swizzle(slab, found, target)[0] <= best_pad(slab, found, target)[0]
            return box.nest() if pays else stmt

        return tile.with_chunk(replace(chunk, body=tuple(map(one, chunk.body))))

    return on_chunks(kernel, by_engine) if target.boxes else kernel
