"""cooperative_reduce: splits one reduction among the threads of a block.

before  for a0 in 0..32:  # free            after  for a0 in 0..32:  # free
            for a1 in 0..2048:  # reduce               for a1 in 0..2048:  # reduce thread
                acc0 <- add(acc0, x[a0, a1])               acc0 <- add(acc0, x[a0, a1])

Each thread folds a strided part; lowering combines the parts, by shuffles in a warp and through
shared memory between warps, for any monoid.
"""

from dataclasses import replace

from weft.scalar.nest import Kernel
from weft.targets.gpu import GPU
from weft.tile.passes.gpu.tileify import bound


def cooperative_reduce(kernel: Kernel, target: GPU) -> Kernel:
    """Bind the reductions whose accesses are cheapest side by side."""
    return replace(kernel, body=bound(kernel.body, target, "reduce"))
