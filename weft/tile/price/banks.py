"""Bank conflicts of a warp's accesses to shared memory.

wavefronts(address, loops, slab, lanes=32, width=4)       # 4: no conflicts, of 16 bytes
The model is of the CUDA C++ Programming Guide: 32 banks of 4 bytes; accesses of 8 bytes go by half
warps, those of 16 by quarters; threads that touch the same word share it.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.core.node import Node
from weft.scalar.nest import Buffer, For, free_variables
from weft.scalar.ops import evaluate_term
from weft.tile.analysis.access import trips

BANKS, BYTES = 32, 4


def offsets(address: Node, loops: Sequence[For], lanes: int) -> list[int]:
    """The position of each thread of the first warp along loops over threads, the last fastest.

    All other axes are 0: an address need not be linear in a thread's number.
    """
    turns, inner = np.arange(lanes), 1
    known: dict[Node, Any] = dict.fromkeys(free_variables(address), 0)
    for loop in reversed(loops):
        known[loop.axis] = turns // inner % trips(loop) * loop.step
        inner *= trips(loop)
    return np.broadcast_to(evaluate_term(address, known), lanes).tolist()


def bank(word: int, slab: Buffer) -> int:
    """The bank of a word of a slab, after its swizzle."""
    if slab.swizzle:
        line = slab.type.shape[-1] * slab.type.dtype.bytes
        row, at = divmod(word * BYTES, line)
        place = row * slab.swizzle + at % slab.swizzle
        word = (place ^ place >> 3 & slab.swizzle - 16) // BYTES
    return word % BANKS


def wavefronts(address: Node, loops: Sequence[For], slab: Buffer, lanes: int, width: int) -> int:
    """The wavefronts of one access of `width` elements per thread of a slab."""
    size = slab.type.dtype.bytes
    words = max(1, width * size // BYTES)
    starts = [at * size // BYTES for at in offsets(address, loops, lanes)]
    group = max(1, lanes // words)
    total = 0
    for first in range(0, lanes, group):
        touched = {start + i for start in starts[first : first + group] for i in range(words)}
        banks = [bank(word, slab) for word in touched]
        total += max(map(banks.count, set(banks)))
    return total
