"""collapse_loops: joins two nested loops into one where memory is contiguous across both.

before  for a0 in 0..28:  # free            after  for a0 in 0..14336:  # free
            for a1 in 0..512:  # free                  y[a0 // 512, a0 % 512] = relu(x[...])
                y[a0, a1] = relu(x[a0, a1])
"""

from dataclasses import replace

from weft.scalar.nest import Kernel
from weft.tile.moves.join import collapse


def collapse_loops(kernel: Kernel, target: object) -> Kernel:
    """Collapse wherever every access keeps an even stride along the joint axis."""
    return replace(kernel, body=collapse(kernel.body))
