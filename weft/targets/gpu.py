"""Facts about GPUs as data: threads, shared memory, rates.

GPUS["cuda:sm_90a"].warp        # 32 threads that run together
In the cost model a multiprocessor is a core, and a warp the lanes of a vector of 4-byte elements.
Sizes are from the CUDA C++ Programming Guide's table of technical specifications and AMD's CDNA
white papers; rates are those of the usual board (A100, H200, RTX 5090, MI250X, MI300X), of one
half of an MI250X, which is a device of its own. OpenCL and Metal stand for a small GPU of any make:
what it has beyond shared memory and barriers is not assumed.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.targets.machine import Machine


@dataclass(frozen=True, kw_only=True)
class GPU(Machine):
    """One GPU target: `language` is what its kernels are written in, `arch` the compiler's name."""

    language: str
    arch: str
    warp: int = 32
    exchanges: bool = True  # threads of a warp read each other's registers
    threads: int = 256  # of a block, where more work would fill more
    most: int = 256  # of a block whose warps share the work of few columns
    shared: int = 99 << 10  # most shared memory of a block
    async_copies: bool = True  # from global to shared memory, by threads
    boxes: bool = False  # a copy engine takes boxes of tensors to shared memory (TMA)
    matrix_units: bool = True  # products of 16-bit matrices, by warps
    warpgroups: bool = False  # these by four warps, from shared memory

    def is_idle(self, threads: int) -> bool:
        """Whether so many threads are too few to have enough loads under way."""
        return threads < self.cores * 4 * self.threads

    @property
    def simulated(self) -> bool:
        """Whether the simulator runs its language."""
        return self.language != "opencl"

    def lanes(self, element_bytes: int) -> int:
        """Elements of a warp: threads, whatever their size."""
        return self.warp


def _gpu(
    language: str,
    arch: str,
    cores: int,
    ghz: float,
    memory: float,
    l3: int,
    shared: int,
    warp: int = 32,
    warps_per_clock: int = 4,
) -> GPU:
    """By number of multiprocessors, clock, memory bandwidth in GB/s, and bytes of two memories."""
    return GPU(
        language=language,
        arch=arch,
        vector_bytes=4 * warp,
        vector_registers=255,
        cores=cores,
        vector_ops_per_ns=warps_per_clock * ghz,
        l2=128 << 10,
        l3=l3,
        cache_bytes_per_ns=64 * ghz,
        l3_bytes_per_ns=2.5 * memory / cores,
        memory_bytes_per_ns=memory / cores,
        sector=32,
        launch_us=2.0,
        fork_us=0.0,
        shared=shared,
        table=min(shared, 48 << 10) // 16,  # of 8 bytes, in half of what needs no request
        warp=warp,
        exchanges=language in ("cuda", "hip"),
        async_copies=language == "cuda",
        most=512 if language in ("cuda", "hip") else 256,
        boxes=language == "cuda" and arch != "sm_80",
        matrix_units=language == "cuda",
        warpgroups=arch == "sm_90a",
    )


GPUS = {
    "cuda:sm_80": _gpu("cuda", "sm_80", 108, 1.41, 2039, 40 << 20, 163 << 10),
    "cuda:sm_90a": _gpu("cuda", "sm_90a", 132, 1.83, 4800, 50 << 20, 227 << 10),
    "cuda:sm_120": _gpu("cuda", "sm_120", 170, 2.41, 1792, 96 << 20, 99 << 10),
    "hip:gfx90a": _gpu("hip", "gfx90a", 110, 1.70, 1638, 8 << 20, 64 << 10, 64, 1),
    "hip:gfx942": _gpu("hip", "gfx942", 304, 2.10, 5300, 256 << 20, 64 << 10, 64, 1),
    "opencl": _gpu("opencl", "", 8, 1.3, 68, 4 << 20, 32 << 10),
    "metal": _gpu("metal", "", 8, 1.3, 68, 4 << 20, 32 << 10),
}
