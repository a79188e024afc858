"""The search for better choices: from the default one decision at a time, all kernels at once.

search(bench, {"softmax"}, 60, print)       # {"softmax": Found({"vectors": "4"}, 9.1, 7.4, 12)}

Every kernel goes through the options that its choices had, the likeliest first, from the best
decisions so far; a program is built with the next candidate of every kernel, so that a run measures
one of each, with the data and the caches that they meet in the program. Candidates and two copies
of the best so far take turns. A candidate is taken where it is faster by more than the copies
differ, in two measurements.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from weft.core.errors import WeftError

Decisions = Mapping[str, str]
Schedule = Mapping[str, Decisions]  # by kernel
Met = Mapping[str, Sequence[Any]]  # by choice: options, cheapest first, and the one taken

BATCH = 6  # candidates of a kernel that are built and take turns together
OPTIONS = 6  # of a choice that are tried, the likeliest
GAIN = 0.02  # at least
SHARE = 0.02  # of the program's time: a kernel of less is left as it is
ROUNDS, AGAIN = 3, 7  # of a first measurement, and of the one that confirms


class Built(NamedTuple):
    """A program under a schedule: `number` names it; of each kernel a digest of its text."""

    number: int
    texts: Mapping[str, str]
    met: Mapping[str, Met]


class Bench(Protocol):
    """Builds and times the program. What cannot be built, or is wrong, is None."""

    def build(self, schedules: Sequence[Schedule]) -> list[Built | None]: ...
    def times(self, numbers: Sequence[int]) -> list[dict[str, float]]: ...


class Found(NamedTuple):
    """The decisions for a kernel, none where the default is best, and its microseconds."""

    decisions: Decisions
    default_us: float
    us: float
    tried: int


@dataclass
class _Kernel:
    """The search of one kernel: the best so far, and what was tried."""

    name: str
    best: Decisions = field(default_factory=dict[str, str])
    gain: float = 1.0  # the time with `best`, over the default's
    texts: set[str] = field(default_factory=set[str])
    tried: int = 0
    queue: Iterator[Decisions] = field(default_factory=lambda: iter(()))

    def follow(self, met: Met) -> None:
        """Go through the options of choices that were met under the best decisions."""
        self.queue = neighbours(self.best, met)


def neighbours(best: Decisions, met: Met) -> Iterator[Decisions]:
    """Decisions that differ in one choice: the second option of each, then the third, ..."""
    for rank in range(OPTIONS):
        for name, (options, taken) in met.items():
            others = [o for o in options if o != taken]
            if rank < len(others):
                yield {**best, name: others[rank]}


def search(
    bench: Bench, wanted: Collection[str], seconds: float, tell: Callable[[str], None]
) -> dict[str, Found]:
    """The best decisions for the wanted kernels that were found within so many seconds.

    Those of kernels that take little of the time are not searched. WeftError without a default.
    """
    end = time.monotonic() + seconds
    first = bench.build([{}])[0]
    if first is None:
        raise WeftError("the default cannot be built")
    default = _medians(bench.times([first.number] * AGAIN))
    total = sum(default.values())
    large = {k for k in first.texts if k in wanted and default[k] >= SHARE * total}
    small = {k: Found({}, default[k], default[k], 0) for k in wanted if k not in large}
    kernels = [_Kernel(k) for k in first.texts if k in large]
    for kernel in kernels:
        kernel.follow(first.met[kernel.name])
        kernel.texts.add(first.texts[kernel.name])
    base = first
    while time.monotonic() < end:
        batch = list(_batch(kernels))
        if not batch:
            break
        base = _round(bench, kernels, base, batch, tell)
    rows = bench.times([first.number, base.number] * AGAIN)
    start, final = _medians(rows[::2]), _medians(rows[1::2])
    if sum(final.values()) >= sum(start.values()):  # what one kernel gains others may lose
        kernels = [_Kernel(k.name, tried=k.tried) for k in kernels]
    for k in kernels:
        tell(f"{k.name}: {k.tried} candidates, {'a better one' if k.best else 'none better'}")
    after = {k.name: (final if k.best else start)[k.name] for k in kernels}
    found = {k.name: Found(k.best, start[k.name], after[k.name], k.tried) for k in kernels}
    return small | found


def _batch(kernels: Sequence[_Kernel]) -> Iterator[dict[str, Decisions]]:
    """The next candidates, by kernel; a kernel that has none any more keeps its best."""
    for _ in range(BATCH):
        taken = {k.name: d for k in kernels if (d := next(k.queue, None)) is not None}
        if taken:
            yield taken


def _round(
    bench: Bench,
    kernels: Sequence[_Kernel],
    base: Built,
    batch: Sequence[dict[str, Decisions]],
    tell: Callable[[str], None],
) -> Built:
    """Measure a batch of candidates; returns the program with what was better."""
    known = {k.name: k.best for k in kernels}
    made = bench.build([{**known, **taken} for taken in batch])
    fresh: list[tuple[Built, dict[str, Decisions]]] = []
    for built, taken in zip(made, batch, strict=True):
        if built is None:
            continue
        new = {k.name: taken[k.name] for k in kernels if k.name in taken and _is_new(k, built)}
        if new:
            fresh.append((built, new))
    if not fresh:
        return base
    better = _better(bench, base, fresh, ROUNDS)
    if not better:
        return base
    again = bench.build([{**known, **{name: d for name, (d, _) in better.items()}}])[0]
    if again is None:
        return base
    sure = _better(bench, base, [(again, {name: d for name, (d, _) in better.items()})], AGAIN)
    for kernel in kernels:
        if kernel.name in sure:
            kernel.best, ratio = sure[kernel.name]
            kernel.gain *= ratio
            tell(f"{kernel.name}: {kernel.gain:.2f} of its time after {kernel.tried} candidates")
    if not sure:
        return base
    best = bench.build([{k.name: k.best for k in kernels}])[0] or base
    for kernel in kernels:
        if kernel.name in sure:
            kernel.follow(best.met[kernel.name])
    return best


def _is_new(kernel: _Kernel, built: Built) -> bool:
    text = built.texts[kernel.name]
    new = text not in kernel.texts
    kernel.texts.add(text)
    kernel.tried += new
    return new


def _better(
    bench: Bench, base: Built, made: Sequence[tuple[Built, dict[str, Decisions]]], rounds: int
) -> dict[str, tuple[Decisions, float]]:
    """By kernel the fastest candidate, and its time over the base's, where that is clear."""
    numbers = [base.number, *(built.number for built, _ in made), base.number]
    rows = bench.times(numbers * rounds)
    times = [_medians(rows[i :: len(numbers)]) for i in range(len(numbers))]
    found: dict[str, tuple[Decisions, float]] = {}
    for name in times[0]:
        copies = times[0][name], times[-1][name]
        least = min(copies)
        limit = least * (1 - max(GAIN, (max(copies) - least) / least if least else 0.0))
        tried = (
            (t[name], new[name])
            for t, (_, new) in zip(times[1:-1], made, strict=True)
            if name in new
        )
        us, decisions = min(tried, key=lambda pair: pair[0], default=(limit, {}))
        if us < limit:
            found[name] = decisions, us / least
    return found


def _medians(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: statistics.median(row[name] for row in rows) for name in rows[0]}
