"""The search for better choices: a beam by the exact price, then measurement, kernels side by side.

search(bench, {"softmax"}, 60, print)       # {"softmax": Found({"vectors": "4"}, 9.1, 7.4, 12)}

A kernel is scheduled under some decisions, and the first choice that is still free branches: the
WIDTH cheapest schedules so far go on, each with the likeliest options of that choice. What gives a
text that was seen is dropped. Without a device the cheapest is taken (predicted.py). With one, the
LIKELY cheapest are measured, then others at random; where a target has no exact price, decisions
that differ in one choice, the likeliest first. A program is built with the next candidate of every
kernel, so that a run measures one of each, with the data and the caches that they meet in the
program. Candidates and two copies of the best so far take turns. A candidate is taken where it is
faster by more than the copies differ, in two measurements. The beam then starts from there.

The choices of a whole program, which kernels it has, are searched as if it were one kernel: a beam
of one schedule goes through them, since it has many, and each matters little for the others.
"""

import math
import random
import statistics
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from weft.core.errors import WeftError

Decisions = Mapping[str, str]
Schedule = Mapping[str, Decisions]  # by kernel
Met = Mapping[str, Sequence[Any]]  # by choice: options, cheapest first, and the one taken

BATCH = 6  # candidates of a kernel that are built and take turns together
OPTIONS = 6  # of a choice that are tried, the likeliest
WIDTH = 4  # schedules of a beam that go on
BRANCHES = 4  # options of a choice that they try, beside the one that was taken
LIKELY = 12  # schedules that are measured in the order of their prices
GAIN = 0.02  # at least
SHARE = 0.02  # of the program's time: a kernel of less is left as it is
SLOW = 3.0  # times the least price of a kernel: a candidate of more is left out
PRICING = 0.2  # of the time that is left, at most
ROUNDS, AGAIN = 3, 7  # of a first measurement, and of the one that confirms


class Built(NamedTuple):
    """A program under a schedule: `number` names it; of each kernel a digest of its text."""

    number: int
    texts: Mapping[str, str]
    met: Mapping[str, Met]


class Priced(NamedTuple):
    """What a schedule makes of each kernel: a digest of its text, the choices, the exact price."""

    texts: Mapping[str, str]
    met: Mapping[str, Met]
    prices: Mapping[str, float]  # in us; empty where there is no exact price for the target


class Bench(Protocol):
    """Builds and times the program. What cannot be built, or is wrong, is None."""

    def price(self, schedules: Sequence[Schedule]) -> list[Priced | None]:
        """Of the kernels that each schedule has decisions for, also empty ones; unmeasured."""
        ...

    def build(self, schedules: Sequence[Schedule]) -> list[Built | None]: ...
    def times(self, numbers: Sequence[int]) -> list[dict[str, float]]: ...


class Found(NamedTuple):
    """The decisions for a kernel, none where the default is best, and its microseconds."""

    decisions: Decisions
    default_us: float
    us: float
    tried: int
    small: bool = False  # takes little of the program's time, and was not searched


@dataclass(frozen=True)
class Scheduled:
    """A kernel under decisions, which differ from the likeliest options; its text and exact price.

    `options` are those of each choice that it met, the one taken first.
    """

    decisions: Decisions
    options: Mapping[str, Sequence[str]]
    text: str
    us: float
    made: Any = None  # whoever made it wants that again
    settled: frozenset[str] = frozenset()  # choices that have branched


Build = Callable[[Decisions], "Scheduled | None"]


def options_of(met: Met) -> dict[str, tuple[str, ...]]:
    """Of each choice its options, the one taken first."""
    return {n: (taken, *(o for o in options if o != taken)) for n, (options, taken) in met.items()}


def beam(build: Build, end: float, start: Decisions, width: int = WIDTH) -> list[Scheduled]:
    """The start, then the other schedules that were met until then; none without a start."""
    first = build(start)
    seen = {} if first is None else {first.text: first}
    front = list(seen.values())
    while front and time.monotonic() < end:
        front = [s for one in front for s in _branches(one, build, seen, end)]
        front = sorted(front, key=us_of)[:width]
    return list(seen.values())


def _branches(
    one: Scheduled, build: Build, seen: dict[str, Scheduled], end: float
) -> Iterator[Scheduled]:
    """The schedule with each option of its first free choice; as it is with that one taken."""
    free = (n for n, o in one.options.items() if len(o) > 1 and n not in one.settled)
    name = next(free, None)
    if name is None:
        return
    settled = one.settled | {name}
    yield replace(one, settled=settled)
    for option in one.options[name][1 : BRANCHES + 1]:
        other = build({**one.decisions, name: option}) if time.monotonic() < end else None
        if other is not None and seen.setdefault(other.text, other) is other:
            yield replace(other, settled=settled)


def us_of(schedule: Scheduled) -> float:
    return schedule.us


@dataclass
class _Kernel:
    """The search of one kernel: the best so far, and what was tried."""

    name: str
    width: int = WIDTH
    best: Decisions = field(default_factory=dict[str, str])
    gain: float = 1.0  # the time with `best`, over the default's
    texts: set[str] = field(default_factory=set[str])
    tried: int = 0
    queue: Iterator[Decisions] = field(default_factory=lambda: iter(()))


def follow(bench: Bench, kernel: _Kernel, met: Met, seconds: float) -> None:
    """Let a kernel go on from its best decisions, for so many seconds of pricing.

    What is priced as SLOW is left out. What has no price comes last, in its order.
    """

    priced: list[Decisions] = []

    def build(decisions: Decisions) -> Scheduled | None:
        (row,) = bench.price([{kernel.name: decisions}])
        if row is None or row.prices:
            priced.append(decisions)
        if row is None:
            return None
        met, us = options_of(row.met[kernel.name]), row.prices.get(kernel.name, math.nan)
        return Scheduled(decisions, met if row.prices else {}, row.texts[kernel.name], us)

    found = beam(build, time.monotonic() + seconds, kernel.best, kernel.width)
    limit = SLOW * min(map(us_of, found), default=0.0)
    fast = sorted((s for s in found[1:] if s.us <= limit), key=_rank)
    rest = [s.decisions for s in fast[LIKELY:]]
    random.Random(0).shuffle(rest)
    others = (d for d in neighbours(kernel.best, met) if d not in priced)
    kernel.queue = iter([*(s.decisions for s in fast[:LIKELY]), *rest, *others])


def _rank(schedule: Scheduled) -> tuple[int, int, float]:
    """By price; of prices that differ by less than GAIN, fewer decisions first."""
    step = round(math.log(max(schedule.us, 1e-9)) / GAIN)
    return step, len(schedule.decisions), schedule.us


def neighbours(best: Decisions, met: Met) -> Iterator[Decisions]:
    """Decisions that differ in one choice: the second option of each, then the third, ..."""
    for rank in range(OPTIONS):
        for name, (options, taken) in met.items():
            others = [o for o in options if o != taken]
            if rank < len(others):
                yield {**best, name: others[rank]}


def search(
    bench: Bench,
    wanted: Collection[str],
    seconds: float,
    tell: Callable[[str], None],
    width: int = WIDTH,
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
    small = {k: Found({}, default[k], default[k], 0, small=True) for k in wanted if k not in large}
    kernels = [_Kernel(k, width) for k in first.texts if k in large]

    def pricing() -> float:
        return PRICING * (end - time.monotonic()) / len(kernels)

    for kernel in kernels:
        follow(bench, kernel, first.met[kernel.name], pricing())
        kernel.texts.add(first.texts[kernel.name])
    base = first
    while time.monotonic() < end:
        batch = list(_batch(kernels))
        if not batch:
            break
        base, better = _round(bench, kernels, base, batch, tell)
        for kernel in better:
            follow(bench, kernel, base.met[kernel.name], pricing())
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
) -> tuple[Built, list[_Kernel]]:
    """Measure a batch of candidates; the program with what was better, and kernels that have it."""
    known = {k.name: k.best for k in kernels}
    made = bench.build([{**known, **taken} for taken in batch])
    fresh: list[tuple[Built, dict[str, Decisions]]] = []
    for built, taken in zip(made, batch, strict=True):
        if built is None:
            continue
        new = {k.name: taken[k.name] for k in kernels if k.name in taken and _is_new(k, built)}
        if new:
            fresh.append((built, new))
    better = _better(bench, base, fresh, ROUNDS) if fresh else {}
    if not better:
        return base, []
    again = bench.build([{**known, **{name: d for name, (d, _) in better.items()}}])[0]
    if again is None:
        return base, []
    sure = _better(bench, base, [(again, {name: d for name, (d, _) in better.items()})], AGAIN)
    gained = [k for k in kernels if k.name in sure]
    for kernel in gained:
        kernel.best, ratio = sure[kernel.name]
        kernel.gain *= ratio
        tell(f"{kernel.name}: {kernel.gain:.2f} of its time after {kernel.tried} candidates")
    if not sure:
        return base, []
    best = bench.build([{k.name: k.best for k in kernels}])[0]
    return (base, []) if best is None else (best, gained)


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
