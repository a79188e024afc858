"""pad_smem: pads the lines of a slab, so that reads across them have no bank conflicts.

before  local x_s0: f32[64,16] in shared        after  local x_s0: f32[64,16]{20,1} in shared
"""

from dataclasses import replace

from weft.scalar.blocks import locals_in
from weft.scalar.nest import Kernel
from weft.targets.gpu import GPU
from weft.tile.analysis import slabs
from weft.tile.analysis.boxes import boxed
from weft.tile.analysis.tiles import Tile, on_tiles


def pad_smem(kernel: Kernel, target: GPU) -> Kernel:
    """Pad slabs and intermediates by the least wavefronts of their reads and writes."""
    passed, found = slabs.intermediates(kernel), slabs.accesses_of_block(kernel)
    body = slabs.with_best_pads(kernel.body, passed, found, target)

    def apart(tile: Tile, _: object) -> Tile:
        own = {*locals_in(tile.body)} - boxed(tile.body)
        found = slabs.accesses_of(tile)
        return replace(tile, body=slabs.with_best_pads(tile.body, own, found, target))

    return on_tiles(replace(kernel, body=body), apart)
