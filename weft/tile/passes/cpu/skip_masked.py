"""skip_masked: shortens loops over columns that a mask rules out for all rows of a block.

before  for a0 in 0..8:  # free                     after  for a0 in 0..8:  # free
            local s: f32[64,512]                               local s: f32[64,512]
            for b0 in 0..512 by 32:                            for b0 in 0..a0 * 64 + 64 by 32:
                ... s[a1, a2] = acc0                               ... s[a1, a2] = acc0
            for b1 in 0..512 by 64:                            for b1 in 0..a0 * 64 + 64 by 64:
                v0 = ge(a0 * 64 + a3, a4)                          v0 = ge(a0 * 64 + a3, a4)
                ... s[a3, a4] = exp(where(v0, s, -inf))            ...
            for b2 in 0..512 by 64:                            for b2 in 0..a0 * 64 + 64 by 64:
                ... acc1 <- add(acc1, s[a5, a6] * v)               ...

An example is causal attention: a block of rows needs no later keys. What makes it right is in
tile/moves/skip.py.
"""

from dataclasses import replace

from weft.scalar.nest import Kernel
from weft.tile.moves.skip import skipped


def skip_masked(kernel: Kernel, target: object) -> Kernel:
    """Shorten the loops of every block that has local buffers, where its conditions allow it."""
    return replace(kernel, body=skipped(kernel.body))
