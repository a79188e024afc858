"""Facts about GPUs as data: threads, shared memory, rates.

GPUS["cuda:sm_90a"].warp        # 32 threads
In the cost model a multiprocessor is a core, and a warp is a vector of 4-byte elements.
Sizes are from the CUDA C++ Programming Guide's table of technical specifications and AMD's CDNA
white papers. Rates are those of the usual board (A100, H200, RTX 5090, MI250X, MI300X); an MI250X
is two devices, and its rates are those of one. OpenCL and Metal stand for a small GPU of any make,
of which only shared memory and barriers are assumed.
"""

from dataclasses import dataclass
from typing import Any

from weft.targets.machine import Machine

_INTEGERS = [(f"atomic_{f}", d) for f in ("add", "maximum", "minimum") for d in ("i32", "i64")]
# Their products and maxima of floats a table folds one by one.
_FOLDS = "scatter_reduce.two", "scatter.reduce", "scatter.value_reduce", "index_reduce.default"
# One thread sorts a row, where ATen's kernels share long ones.
_SORTS = """sort.default sort.stable topk.default kthvalue.default mode.default
median.default median.dim nanmedian.default nanmedian.dim""".split()
LIBRARY = tuple(f"aten.{name}" for name in (*_FOLDS, *_SORTS))
ATOMICS = (*_INTEGERS, ("atomic_add", "f32"), ("atomic_add", "f64"))
# 4 KB of addresses; OpenCL 1.2 has room for 1 KB, with one for faults; Metal's table has 31 places.
OPERANDS = {"cuda": 511, "hip": 511, "opencl": 127, "metal": 30}
STATIC = 48 << 10  # bytes of shared memory that need no request at the launch


@dataclass(frozen=True, kw_only=True)
class GPU(Machine):
    """One GPU target: the language of its kernels, and its name for the compiler (`arch`)."""

    language: str
    arch: str
    warp: int = 32
    exchanges: bool = True  # shuffles: threads of a warp read each other's registers
    threads: int = 256  # most threads of a block
    shared_threads: int = 256  # most threads of a block whose warps share the work of few columns
    shared: int = 99 << 10  # bytes of shared memory that a block can have
    async_copies: bool = True  # threads copy from global to shared memory asynchronously
    boxes: bool = False  # TMA: a copy engine fills shared memory with boxes of tensors
    matrix_units: bool = True  # tensor cores: warps multiply 16-bit matrices (mma)
    warpgroups: bool = False  # wgmma: four warps multiply matrices in shared memory

    @property
    def fewest_threads(self) -> int:
        """So many threads hide the latency of their loads."""
        return self.cores * 4 * self.threads

    @property
    def simulated(self) -> bool:
        """Whether the simulator runs kernels in this language."""
        return self.language != "opencl"

    def lanes(self, element_bytes: int) -> int:
        """Elements that a warp computes at once: one per thread, of any size."""
        return self.warp


def _gpu(language: str, arch: str, cores: int, ghz: float, memory: float, **facts: Any) -> GPU:
    """A GPU of `cores` multiprocessors, and `memory` GB/s of bandwidth.

    The `facts` of its row are those that the others do not tell.
    """
    return GPU(
        language=language,
        arch=arch,
        vector_bytes=4 * facts.get("warp", 32),
        vector_registers=255,
        cores=cores,
        vector_ops_per_ns=(1 if language == "hip" else 4) * ghz,  # instructions of warps
        l2=128 << 10,
        cache_bytes_per_ns=64 * ghz,
        l3_bytes_per_ns=2.5 * memory / cores,
        memory_bytes_per_ns=memory / cores,
        sector=32,
        launch_us=2.0,
        fork_us=0.0,
        # of 8 bytes, in half of what needs no request
        table_elements=min(facts["shared"], STATIC) // 16,
        atomics=ATOMICS if language in ("cuda", "hip") else (),
        library=LIBRARY,
        tabled=("aten.index_put.default", "aten._embedding_bag_backward.default"),
        exchanges=language in ("cuda", "hip"),
        operands=OPERANDS[language],
        async_copies=language == "cuda",
        shared_threads=512 if language in ("cuda", "hip") else 256,
        boxes=language == "cuda" and arch != "sm_80",
        matrix_units=language == "cuda",
        warpgroups=arch == "sm_90a",
        **facts,
    )


GPUS = {
    "cuda:sm_80": _gpu("cuda", "sm_80", 108, 1.41, 2039, l3=40 << 20, shared=163 << 10),
    "cuda:sm_90a": _gpu("cuda", "sm_90a", 132, 1.83, 4800, l3=50 << 20, shared=227 << 10),
    "cuda:sm_120": _gpu("cuda", "sm_120", 170, 2.41, 1792, l3=96 << 20, shared=99 << 10),
    "hip:gfx90a": _gpu("hip", "gfx90a", 110, 1.70, 1638, l3=8 << 20, shared=64 << 10, warp=64),
    "hip:gfx942": _gpu("hip", "gfx942", 304, 2.10, 5300, l3=256 << 20, shared=64 << 10, warp=64),
    "opencl": _gpu("opencl", "", 8, 1.3, 68, l3=4 << 20, shared=32 << 10),
    "metal": _gpu("metal", "", 8, 1.3, 68, l3=4 << 20, shared=32 << 10),
}
