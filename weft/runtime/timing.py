"""Timing callables side by side: rounds are interleaved, so a slow moment hits all of them.

times = measure({"eager": f, "weft": g}, rounds=20, min_time=0.5)
times["weft"].median / times["eager"].median        # milliseconds over milliseconds
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median, quantiles


@dataclass(frozen=True)
class Timing:
    """Milliseconds per call over all rounds: the median, the fastest, and the quartiles."""

    median: float
    best: float
    low: float
    high: float
    rounds: int

    @property
    def spread(self) -> float:
        """The distance between the quartiles, relative to the median."""
        return (self.high - self.low) / self.median if self.median else 0.0

    def __str__(self) -> str:
        return f"{self.median:.4g} ms ±{50 * self.spread:.0f}%"


def measure(
    calls: Mapping[str, Callable[[], object]], rounds: int = 15, min_time: float = 0.3
) -> dict[str, Timing]:
    """Time each callable in `rounds` interleaved rounds that take `min_time` seconds each in all.

    The order turns by one from round to round, so no callable always follows the same other.
    """
    names = list(calls)
    samples: dict[str, list[float]] = {name: [] for name in names}
    with collector_off():
        counts = {name: repeats(calls[name], min_time / rounds) for name in names}
        for turn in range(rounds):
            first = turn % len(names) if names else 0
            for name in names[first:] + names[:first]:
                samples[name].append(clock(calls[name], counts[name]) / counts[name] * 1e3)
    return {name: summarise(samples[name]) for name in names}


def summarise(samples: list[float]) -> Timing:
    """The figures of one callable's rounds."""
    if len(samples) == 1:
        return Timing(samples[0], samples[0], samples[0], samples[0], 1)
    low, _, high = quantiles(samples, n=4, method="inclusive")
    return Timing(median(samples), min(samples), low, high, len(samples))


def repeats(call: Callable[[], object], seconds: float) -> int:
    """How many calls fill `seconds`, found by doubling; the calls made here are the warm-up."""
    call()
    count = 1
    while True:
        spent = clock(call, count)
        if spent >= seconds / 2 or count >= 1 << 24:
            return max(1, round(count * seconds / max(spent, 1e-9)))
        count *= 2


def clock(call: Callable[[], object], count: int) -> float:
    """Seconds that `count` calls take."""
    start = time.perf_counter()
    for _ in range(count):
        call()
    return time.perf_counter() - start


@contextmanager
def collector_off() -> Generator[None, None, None]:
    """Keep Python's garbage collector out of the figures."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
