"""The loop level: a list of kernels, each a nest of plain loops over whole buffers.

for a0 in 0..16:  # free            statements: For, Update, Store, Local
    for a1 in 0..64:  # reduce      terms: axes, literals, functions, loads, accumulators
"""

from __future__ import annotations

from weft.scalar.nest import Acc, For, Load, Local, Running, Store, Update
from weft.scalar.ops import Apply, Axis, Constant
from weft.scalar.verify import LOADS, STORES, Level

LOOP = Level(
    "loop",
    statements=(For, Update, Store, Local),
    terms=(Axis, Constant, Apply, Load, Acc, Running),
    roles=("free", "reduce", "scan"),
    binds=("",),
    loads=LOADS,
    stores=STORES,
)
