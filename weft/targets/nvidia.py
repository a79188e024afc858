"""Facts about NVIDIA's generations: what a multiprocessor holds, whose machine code runs where.

occupancy("sm_90a", threads=256, registers=64, shared=0)     # 0.5
runs_on("sm_80", (8, 9))                                     # True
"""

from __future__ import annotations

# What a multiprocessor holds at once, beside its registers: threads, blocks, shared memory.
REGISTERS = 1 << 16
RESIDENT = {"sm_80": (2048, 32, 164), "sm_90a": (2048, 32, 228), "sm_120": (1536, 24, 100)}  # KB
RESERVED = 1 << 10  # bytes of shared memory that a block takes beside its own


def occupancy(arch: str, threads: int, registers: int, shared: int) -> float | None:
    """The share of a multiprocessor's threads that blocks like this fill; None where unknown."""
    if arch not in RESIDENT:
        return None
    most, blocks, memory = RESIDENT[arch]
    warps = -(-threads // 32)
    taken = -(-registers * 32 // 256) * 256 * warps  # registers are given out by 256 to a warp
    fit = (blocks, most // (32 * warps), REGISTERS // max(taken, 1))
    return min(*fit, (memory << 10) // (shared + RESERVED)) * warps * 32 / most


def runs_on(arch: str, capability: tuple[int, int]) -> bool:
    """Whether a device of that compute capability runs machine code for "sm_80", "sm_90a" ..."""
    digits = arch.removeprefix("sm_").rstrip("a")
    made_for = int(digits[:-1]), int(digits[-1])
    if arch.endswith("a"):
        return capability == made_for
    return capability[0] == made_for[0] and capability >= made_for
