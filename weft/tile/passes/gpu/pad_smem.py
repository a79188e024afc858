"""pad_smem: pads the lines of a slab, so that reads across them have no bank conflicts.

before  local x_s0: f32[64,16] in shared        after  local x_s0: f32[64,16]{20,1} in shared
"""

from dataclasses import replace

from weft.scalar.blocks import locals_in
from weft.scalar.nest import Kernel
from weft.scalar.substitution import substituted
from weft.targets.gpu import GPU
from weft.tile.analysis.boxes import boxed
from weft.tile.analysis.intermediates import accesses_of_block, intermediates
from weft.tile.analysis.slabs import accesses_of, best_pad, padded
from weft.tile.analysis.tiles import Tile, on_tiles


def pad_smem(kernel: Kernel, target: GPU) -> Kernel:
    """Pad slabs and intermediates by the least wavefronts of their reads and writes."""
    passed = intermediates(kernel)
    if passed:
        found = list(accesses_of_block(kernel))
        pads = {b: padded(b, best_pad(b, found, target)[1]) for b in passed}
        kernel = replace(kernel, body=substituted(kernel.body, pads))

    def apart(tile: Tile, _: object) -> Tile:
        found = list(accesses_of(tile))
        slabs = {*locals_in(tile.body)} - boxed(tile.body)
        pads = {b: padded(b, best_pad(b, found, target)[1]) for b in slabs}
        return replace(tile, body=substituted(tile.body, pads))

    return on_tiles(kernel, apart)
