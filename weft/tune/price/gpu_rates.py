"""Facts about NVIDIA's GPUs for the exact price: rates of the pipes, latencies, bandwidth.

RATES["sm_90a"].lanes["fma"]        # 128 lanes of a multiprocessor per cycle
slots(term)                         # {"fma": 1.0}: instructions of a warp that compute a term

Lanes per cycle are of the CUDA C++ Programming Guide, "Throughput of Native Arithmetic
Instructions". Products of tensor cores are the vendor's dense peak, at the clock of targets/gpu.py;
mma.sync has 0.62 of it on sm_90 (Luo et al., "Benchmarking and Dissecting the Nvidia Hopper GPU
Architecture via Microbenchmarking", 2024). Latencies in cycles are from there as well, and from Jia
et al., "Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking", 2018. No device has
confirmed the price that they add up to.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from weft.core.node import Node
from weft.core.types import DType, f64
from weft.kernel.ops import ThreadXor
from weft.scalar.ops import CASTS, Apply, value_of

SCHEDULERS = 4  # of a multiprocessor: instructions that warps start per cycle
LINE = 128  # bytes per cycle of shared memory, and of the first-level cache
STREAMS = 0.9  # of the peak bandwidth of memory, by the best copies
GLOBAL, SHARED, BARRIER, BOX = 600.0, 30.0, 30.0, 30.0  # cycles; BOX: to start the copy of one
LATENCY = {"fma": 4.0, "alu": 5.0, "sfu": 20.0, "f64": 8.0, "shuffle": 24.0}
PRODUCT = 16 * 8 * 16  # multiply-adds of mma.sync
MMA, GROUP = 33.0, 60.0  # cycles from operands to sums: of a warp, of a warpgroup beyond its rate


@dataclass(frozen=True)
class Rates:
    """What a multiprocessor does per cycle: lanes by pipe, multiply-adds of its tensor cores.

    l1      bytes of its first-level cache, of which shared memory is a part
    slices  of L2. Assumed, not measured: as many on all, each with an atomic operation on a
            sector per cycle, and one per cycle at one address
    """

    lanes: Mapping[str, float]
    l1: int
    mma: float
    wgmma: float = 0.0
    slices: float = 80


def _rates(fma: float, alu: float, f64: float, l1: int, *products: float) -> Rates:
    lanes = {"fma": fma, "alu": alu, "sfu": 16, "f64": f64, "shuffle": 32}
    return Rates(lanes, l1 << 10, *products)


RATES = {
    "sm_80": _rates(64, 64, 32, 192, 1024),
    "sm_90a": _rates(128, 64, 64, 256, 0.62 * 2048, 2048),
    "sm_120": _rates(128, 128, 2, 128, 256),
}

# Instructions of the functions of f32, as NVRTC spells them without fast math.
ALU = {"alu": 1.0}
FUNCTIONS: Mapping[str, Mapping[str, float]] = {
    "exp": {"fma": 5, "alu": 2, "sfu": 1},
    "exp2": {"fma": 2, "alu": 2, "sfu": 1},
    "divide": {"fma": 6, "alu": 2, "sfu": 1},
    "reciprocal": {"fma": 3, "alu": 3, "sfu": 1},
    "sqrt": {"fma": 5, "alu": 2, "sfu": 1},
    "rsqrt": {"fma": 1, "alu": 2, "sfu": 1},
    "sigmoid": {"fma": 11, "alu": 4, "sfu": 2},
    **dict.fromkeys(("maximum", "minimum", "where", "eq", "ne", "lt", "le", "gt", "ge"), ALU),
    **dict.fromkeys(("and", "or", "xor", "not", "relu", "negate", "absolute"), ALU),
}


def slots(term: Node) -> Mapping[str, float]:
    """The instructions by pipe that compute a term from its arguments; none for moves of lanes."""
    if isinstance(term.op, ThreadXor):
        return {"shuffle": term.type.dtype.bytes / 4 if term.type.dtype.bytes > 4 else 1.0}
    if not isinstance(term.op, Apply):
        return {}
    function, dtype = term.op.function, term.args[-1].type.dtype
    if function is CASTS.get(term.type.dtype):
        wide = f64 in (dtype, term.type.dtype) or dtype.is_float != term.type.dtype.is_float
        return {"sfu": 1.0} if wide else ALU
    if dtype is f64:
        return {"f64": function.cost}
    if dtype.is_float:
        return FUNCTIONS.get(function.name, {"fma": function.cost})
    return {"alu": _integer(term, dtype)}


def _integer(term: Node, dtype: DType) -> float:
    """Instructions of integer arithmetic: shifts where a divisor is a power of two."""
    name, by = term.op.function.name, int(value_of(term.args[-1]) or 0)  # type: ignore[attr-defined]
    words = 2.0 if dtype.bytes > 4 else 1.0
    if name in ("floordiv", "floormod", "truncdiv", "fmod"):
        return words * (1.0 if by > 0 and not by & (by - 1) else 5.0 if by else 20.0)
    return words
