"""tensorize_mma: computes tiles of 16-bit products on tensor cores, by mma.sync of 16x8x16.

before  for a0 in b0..b0 + 64:  # thread     after  for w0 in b0..b0 + 64 by 32:  # thread
            for a1 in b1..b1 + 64:  # thread            for w1 in b1..b1 + 64 by 32:  # thread
                for a2 in k0..k0 + 32:  # reduce            for g0 in w0..w0 + 8:  # thread
                    acc0 <- add(acc0, x * w)                    for q0 in w1..w1 + 8 by 2:  # thread
                                                                    ... a0, a1 in registers
                                                                    for a2 in ..:  # reduce mma

Threads and registers get the layout of mma.sync's fragments (tile/analysis/fragments.py). The loop
bound to `mma` is an ordinary sum; lowering turns each 16x8 of its results into an instruction.
"""

from weft.scalar.nest import Kernel
from weft.targets.gpu import GPU
from weft.tile.analysis.tiles import on_chunks
from weft.tile.moves.bind import on_units


def tensorize_mma(kernel: Kernel, target: GPU) -> Kernel:
    """Lay out every tile of 16-bit products whose slabs mma.sync can read."""
    return on_chunks(kernel, on_units) if target.matrix_units else kernel
