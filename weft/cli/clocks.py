"""Measures the time and the memory of a call on a CPU or a CUDA device.

CPUClock().median(call, seconds=0.1)                            # seconds, wall clock
CUDAClock(torch.device("cuda", 0)).median(call, seconds=0.1)    # seconds, CUDA events, cold caches
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from weft.cli import habits
from weft.runtime.cuda_timing import flush_of, times

SAMPLE_SECONDS = 1e-3  # a sample times several shorter calls
FEWEST, MOST = 5, 200  # samples of a round on a CUDA device


class CPUClock:
    arena_stays = True  # between calls, so that peak_bytes does not include it
    peak_bytes = staticmethod(habits.peak_bytes)

    def median(self, call: Callable[[], Any], seconds: float) -> float:
        repeats = max(1, int(SAMPLE_SECONDS / max(habits.seconds(call, 1), 1e-7)))
        end = time.perf_counter() + seconds
        samples: list[float] = []
        while len(samples) < 3 or time.perf_counter() < end:
            samples.append(habits.seconds(call, repeats))
        return statistics.median(samples)

    def wait(self) -> None:
        """Does nothing: no work is pending when a call returns."""


class CUDAClock:
    """It turns TF32 off, so that every backend multiplies f32 in f32."""

    arena_stays = False

    def __init__(self, place: torch.device) -> None:
        self.place, self.flush = place, flush_of(place)
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False

    def median(self, call: Callable[[], Any], seconds: float) -> float:
        first = time.perf_counter()
        times(call, self.flush, 1)
        spent = time.perf_counter() - first
        samples = min(MOST, max(FEWEST, int(seconds / spent)))
        return statistics.median(times(call, self.flush, samples)) * 1e-6

    def peak_bytes(self, call: Callable[[], Any]) -> int | None:
        torch.cuda.reset_peak_memory_stats(self.place)
        before = torch.cuda.memory_allocated(self.place)
        call()
        return torch.cuda.max_memory_allocated(self.place) - before

    def wait(self) -> None:
        torch.cuda.synchronize(self.place)
