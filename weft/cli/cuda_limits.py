"""Measures the limits of a CUDA device: FLOP/s of cuBLAS products, and the bandwidth of copies.

limits = measure(torch.device("cuda", 0))    # .gflops, .bf16_gflops, .copy_gb_per_s
"""

import torch

from weft.cli.limits import Limits
from weft.runtime.cuda_timing import flush_of, times

SIZES = tuple(1 << k for k in (20, 23, 26, 28, 30))  # bytes moved, half of them read
SIDE = 8192  # rows and columns of a product's matrices
SAMPLES = 10


def measure(place: torch.device) -> Limits:
    """The best of SAMPLES trials. A GPU counts as one thread."""
    f32, bf16 = (product(place, dtype) for dtype in (torch.float32, torch.bfloat16))
    return Limits(1, f32, f32, bf16, bf16, {size: copy(place, size) for size in SIZES})


def product(place: torch.device, dtype: torch.dtype) -> float:
    """GFLOP/s of a large matrix product; of f32 without TF32."""
    a, b = (torch.randn(SIDE, SIDE, dtype=dtype, device=place) for _ in range(2))
    best = min(times(lambda: a @ b, flush_of(place), SAMPLES))
    return 2 * SIDE**3 / best * 1e-3


def copy(place: torch.device, size: int) -> float:
    """GB/s of a copy that moves `size` bytes, half of them reads."""
    source = torch.ones(size // 2, dtype=torch.uint8, device=place)
    target = torch.empty_like(source)
    return size / min(times(lambda: target.copy_(source), flush_of(place), SAMPLES)) * 1e-3
