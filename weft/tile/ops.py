"""The tile level: the loop level's nest, scheduled: loops split, bound, slabs staged in locals.

for b0 in 0..N by 16:  # free, parallel         binds: how a loop's iterations run
    for a0 in b0..min(b0 + 16, N):  # vector16  blocks and their tails: bounds on outer axes
"""

from __future__ import annotations

from weft.scalar.nest import PARALLEL
from weft.scalar.verify import Level

UNROLLED = ("register", r"vector\d+")  # iterations side by side in registers, or in lanes

TILE = Level("tile", binds=("", "serial", "unroll", "mma", "cache", "box", *PARALLEL, *UNROLLED))
