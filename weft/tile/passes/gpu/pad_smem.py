"""pad_smem: pads the lines of a slab, so that reads across them have no bank conflicts.

before  local x_s0: f32[64,16] in shared        after  local x_s0: f32[64,16]{20,1} in shared
"""

from dataclasses import replace

from weft.scalar.blocks import locals_in
from weft.scalar.nest import Kernel
from weft.scalar.structure import substituted
from weft.targets.gpu import GPU
from weft.tile.analysis.boxes import boxed
from weft.tile.analysis.tiles import accesses_of_block, best_pad, padded


def pad_smem(kernel: Kernel, target: GPU) -> Kernel:
    """Pad slabs and intermediates by the least wavefronts of their reads and writes."""
    held = (b for b in locals_in(kernel.body) if b.space == "shared" and b.type.rank > 1)
    own = {*held} - boxed(kernel.body)
    found = list(accesses_of_block(kernel)) if own else []
    pads = {b: padded(b, best_pad(b, found, target)[1]) for b in own}
    return replace(kernel, body=substituted(kernel.body, pads))
