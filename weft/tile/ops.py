"""The tile level: the loop level's nest, scheduled: loops split, bound, slabs staged in locals.

for b0 in 0..N by 16:  # free, parallel         binds: how a loop's iterations run
    for a0 in b0..min(b0 + 16, N):  # vector16  blocks and their tails: bounds on outer axes
"""

from weft.scalar.nest import ORDERED, PARALLEL, PIPELINE

UNROLLED = ("register", r"vector\d+")  # iterations side by side in registers, or in lanes

UNITS = ("mma", "warpgroup", "box")  # matrix units, and the copy engine
BINDS = (*ORDERED, "cache", *UNITS, *PIPELINE, *PARALLEL, *UNROLLED)
