"""The operator weft::philox: random bits that a seed and coordinates alone decide.

bits = torch.ops.weft.philox(seed, 3, [16, 64])     # i64[16,64], of stream 3 of the seed i64[]

Element i of stream s has the low 64 bits that Philox4x32-10 gives for the counter s 2^40 + i and
the key `seed` (Salmon, Moraes, Dror, Shaw 2011: Parallel random numbers, as easy as 1, 2, 3).
Nothing is drawn: the same arguments give the same bits, wherever and how often it is computed.
"""

import math
from collections.abc import Sequence

import torch

STREAM = 40  # log2 of the elements of a stream
MULTIPLIERS, STEPS = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)
ROUNDS, WORD = 10, 0xFFFFFFFF


@torch.library.custom_op("weft::philox", mutates_args=())
def philox(seed: torch.Tensor, stream: int, size: Sequence[int]) -> torch.Tensor:
    """In torch's own operators, for what runs in eager; i64 arithmetic wraps."""
    count = math.prod(size)
    counter = torch.arange(count, device=seed.device) + (stream << STREAM)
    c0, c1 = counter & WORD, counter >> 32 & WORD
    c2, c3 = torch.zeros_like(c0), torch.zeros_like(c0)
    k0, k1 = seed & WORD, seed >> 32 & WORD
    for _ in range(ROUNDS):
        first, second = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        c0, c1 = (second >> 32 & WORD) ^ c1 ^ k0, second & WORD
        c2, c3 = (first >> 32 & WORD) ^ c3 ^ k1, first & WORD
        k0, k1 = (k0 + STEPS[0]) & WORD, (k1 + STEPS[1]) & WORD
    return (c0 | c1 << 32).reshape(tuple(size))


@philox.register_fake
def _(seed: torch.Tensor, stream: int, size: Sequence[int]) -> torch.Tensor:
    return seed.new_empty(tuple(size))
