"""The device's own time of a call: CUDA events around it, caches cold, launches hidden.

flush = flush_of(torch.device("cuda", 0))
times(lambda: f(x), flush, samples=20)          # microseconds, one for each call
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

LEAST_FLUSH = 256 << 20  # bytes


@cache
def flush_of(place: torch.device) -> torch.Tensor:
    """Memory whose writing leaves nothing else in the caches, and takes longer than a launch."""
    size = 2 * torch.cuda.get_device_properties(place).L2_cache_size
    return torch.empty(max(size, LEAST_FLUSH), dtype=torch.uint8, device=place)


def times(call: Callable[[], Any], flush: torch.Tensor, samples: int) -> list[float]:
    """Microseconds of each of some calls, which the host enqueues as fast as it can."""
    with torch.cuda.device(flush.device):
        pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(samples)]
        for start, end in pairs:
            flush.zero_()
            start.record()
            call()
            end.record()
        torch.cuda.synchronize()
    return [start.elapsed_time(end) * 1e3 for start, end in pairs]
