"""The loop level: a list of kernels, each a nest of plain loops over whole buffers.

for a0 in 0..16:  # free            statements: For, Update, Store, Local
    for a1 in 0..64:  # reduce      terms: axes, literals, functions, loads, accumulators
"""

from weft.scalar.verify import Level

LOOP = Level("loop", binds=("",))
