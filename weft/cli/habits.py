"""Measures what compiled programs cost their process: per call, by their threads, in memory.

habits = measure(threads=2)
habits.call_us - habits.native_us     # the overhead beyond a call of an empty C function
peak_bytes(call)                      # the most memory that a call takes
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import weft
from weft.cli.limits import library

ROUNDS = 15
SMALL, LARGE, ELEMENTS = 16, 768, 1 << 21
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_PEAK = "5"  # what to write to clear_refs, see proc(5)


@dataclass(frozen=True)
class Habits:
    """Microseconds (us) of calls, and milliseconds (ms) of larger work.

    native            an empty C function
    call              a compiled addition of 16x16
    one_thread        a compiled product of 768x768 on one thread
    threads           the same on all threads
    eager             eager's exp of 2 M elements, alone
    eager_between     the same, between compiled products
    """

    native_us: float
    call_us: float
    one_thread_ms: float
    threads_ms: float
    eager_ms: float
    eager_between_ms: float


def measure(threads: int) -> Habits:
    """Call this in a new process: pools of threads that other work has started would stay."""
    a, b = torch.randn(SMALL, SMALL), torch.randn(SMALL, SMALL)
    x, y = torch.randn(LARGE, LARGE), torch.randn(LARGE, LARGE)
    many = torch.randn(ELEMENTS)
    add, product = weft.compile(torch.add), weft.compile(torch.mm)
    product(x, y)
    with torch.inference_mode():
        call_us = fastest(lambda: add(a, b), 2000) * 1e6
        torch.set_num_threads(1)
        one = fastest(lambda: product(x, y), 1)
        torch.set_num_threads(threads)
        several = fastest(lambda: product(x, y), 1)
        alone = statistics.median(seconds(lambda: torch.exp(many), 1) for _ in range(ROUNDS))
        between: list[float] = []
        for _ in range(ROUNDS):
            product(x, y)
            between.append(seconds(lambda: torch.exp(many), 1))
    return Habits(
        native_us=fastest(library().limits_nothing, 2000) * 1e6,
        call_us=call_us,
        one_thread_ms=one * 1e3,
        threads_ms=several * 1e3,
        eager_ms=alone * 1e3,
        eager_between_ms=statistics.median(between) * 1e3,
    )


def fastest(function: Callable[[], Any], repeats: int) -> float:
    return min(seconds(function, repeats) for _ in range(ROUNDS))


def seconds(function: Callable[[], Any], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        function()
    return (time.perf_counter() - start) / repeats


def peak_bytes(call: Callable[[], Any]) -> int | None:
    """Bytes by which resident memory grows in a call at most; None except on Linux."""
    try:
        CLEAR.write_text(RESET_PEAK)
        before = status("VmRSS")
    except OSError:
        return None
    call()
    return max(0, status("VmHWM") - before)


def status(name: str) -> int:
    """A figure of /proc/self/status, in bytes."""
    lines = (line.partition(":") for line in STATUS.read_text().splitlines())
    found = {key: value.split() for key, _, value in lines}
    return int(found[name][0]) << 10
