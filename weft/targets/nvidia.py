"""Facts about NVIDIA's GPUs: occupancy, and which device runs which machine code.

occupancy("sm_90a", threads=256, registers=64, shared=0)     # 0.5
runs_on("sm_80", (8, 9))                                     # True
"""

# What a multiprocessor holds at once: registers of 32 bits; threads, blocks, KB of shared memory.
REGISTERS = 1 << 16
RESIDENT = {"sm_80": (2048, 32, 164), "sm_90a": (2048, 32, 228), "sm_120": (1536, 24, 100)}
RESERVED = 1 << 10  # bytes of shared memory that each block takes in addition


def occupancy(arch: str, threads: int, registers: int, shared: int) -> float | None:
    """The share (0 to 1) of a multiprocessor's threads that blocks of this kind occupy.

    A block has `threads` threads of `registers` registers, and `shared` bytes of shared memory.
    The share is 0.0 if no block fits, and None for an unknown `arch`.
    """
    if arch not in RESIDENT:
        return None
    most, blocks, memory = RESIDENT[arch]
    warps = -(-threads // 32)
    taken = -(-registers * 32 // 256) * 256 * warps  # a warp gets registers in units of 256
    fit = (blocks, most // (32 * warps), REGISTERS // max(taken, 1))
    return min(*fit, (memory << 10) // (shared + RESERVED)) * warps * 32 / most


def runs_on(arch: str, capability: tuple[int, int]) -> bool:
    """Whether a device of this compute capability runs machine code for "sm_80", "sm_90a" ...

    Code runs on the same major and no lower minor version; with the suffix "a" only on its own.
    """
    digits = arch.removeprefix("sm_").rstrip("a")
    made_for = int(digits[:-1]), int(digits[-1])
    if arch.endswith("a"):
        return capability == made_for
    return capability[0] == made_for[0] and capability >= made_for
