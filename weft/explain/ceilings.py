"""The ceilings of a target, which a roofline has: most operations and most bytes a second.

ceilings(CPUS["avx2"])["compute"]       # [("multiply-adds of f32", 218.5)]: GFLOP/s of all cores
Of a CPU they are the rates of the exact price, as `weft doctor --calibrate` measured them here or
the default ones; of a GPU those of its row, and of its tensor cores where they are known.
"""

from weft.targets.cpu import CPU
from weft.targets.gpu import GPU
from weft.tune.price.gpu_rates import RATES
from weft.tune.price.rates import default_rates, rates_of

Rows = list[tuple[str, float]]


def ceilings(target: CPU | GPU) -> dict[str, Rows | str]:
    """GFLOP/s of arithmetic, GB/s of caches and memory, and where these figures are from."""
    return _of_gpu(target) if isinstance(target, GPU) else _of_cpu(target)


def _of_cpu(target: CPU) -> dict[str, Rows | str]:
    rates = rates_of(target)
    peak = 2 * target.lanes(4) * target.cores / rates.fma
    compute = [("multiply-adds of f32", peak)]
    if target.pairs:
        compute.append(("products of bf16 pairs", 2 * peak))
    memory = [
        ("memory", rates.memory_all),
        ("last cache", rates.l3 * target.cores),
        ("second cache", rates.l2 * target.cores),
    ]
    measured = rates != default_rates(target)
    how = "measured here by weft doctor --calibrate" if measured else (
        "default rates of such a CPU; weft doctor --calibrate measures this one's"
    )  # fmt: skip
    return {"compute": compute, "memory": memory, "from": how}


def _of_gpu(target: GPU) -> dict[str, Rows | str]:
    issued = target.vector_ops_per_ns * target.cores  # instructions of warps, each ns
    compute = [("multiply-adds of f32", 2 * target.warp * issued)]
    known = RATES.get(target.arch)
    if known is not None:
        ghz = target.vector_ops_per_ns / 4
        products = 2 * max(known.mma, known.wgmma) * target.cores * ghz
        compute.append(("tensor cores, 16-bit products", products))
    memory = [
        ("memory", target.memory_bytes_per_ns * target.cores),
        ("last cache", target.l3_bytes_per_ns * target.cores),
        ("nearest cache", target.cache_bytes_per_ns * target.cores),
    ]
    return {"compute": compute, "memory": memory, "from": "the target's row in targets/gpu.py"}
