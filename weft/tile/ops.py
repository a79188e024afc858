"""The tile level: the loop level's nest, scheduled: loops split, bound, slabs staged in locals.

for b0 in 0..N by 16:  # free, parallel         binds: how a loop's iterations run
    for a0 in b0..min(b0 + 16, N):  # vector16  blocks and their tails: bounds on outer axes
"""

from __future__ import annotations

from weft.scalar.nest import Acc, For, Load, Local, Running, Store, Update
from weft.scalar.ops import Apply, Axis, Constant
from weft.scalar.verify import LOADS, STORES, Level

PARALLEL = ("parallel", "grid", "block", "warp", "thread")  # iterations at the same time
UNROLLED = ("register", r"vector\d+")  # iterations side by side in registers, or in lanes

TILE = Level(
    "tile",
    statements=(For, Update, Store, Local),
    terms=(Axis, Constant, Apply, Load, Acc, Running),
    roles=("free", "reduce", "scan"),
    binds=("", "serial", "cache", *PARALLEL, *UNROLLED),
    loads=LOADS,
    stores=STORES,
)
