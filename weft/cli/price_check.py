"""`weft bench cpu --model`: exact prices beside measured times, of kernels and of candidates.

study = check_prices({"softmax": workload}, rounds=5, say=print)
study.correlation, study.median_within
"""

import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from weft.cli.check import call
from weft.cli.compiling import compile_source
from weft.cli.output import microseconds, number, table
from weft.cli.program import Source, SourceSpec
from weft.cli.source import load
from weft.cli.suite import spearman
from weft.cli.suite_text import machine
from weft.cli.workloads import Workload
from weft.core.errors import WeftError
from weft.options import Options
from weft.tune.search import SLOW, Bench, Built, Decisions, Met
from weft.tune.tuner import SETTINGS, Settings

CANDIDATES = 16  # of a kernel, its default included
DRAWN = 60  # decisions that are priced to find so many texts
SHARE = 0.1  # of a program's time: of kernels with less, no candidates are measured
SECONDS = 5.0  # after which no round of a kernel's candidates begins
FLAT = 0.03  # prices or times that differ by less have no order: a second run has another one


@dataclass(frozen=True)
class Candidate:
    """A kernel under some decisions: its exact price, and its least time, in us."""

    decisions: Decisions
    predicted_us: float
    measured_us: float


@dataclass(frozen=True)
class KernelPrices:
    """A kernel of a workload, by default and with other decisions."""

    workload: str
    kernel: str
    predicted_us: float
    measured_us: float
    candidates: tuple[Candidate, ...] = ()
    noise: float = 0.0  # by which part two copies of the default differ

    @property
    def even(self) -> float:
        """Times that differ by less than this part have no order."""
        return max(FLAT, self.noise)

    @property
    def flat(self) -> bool:
        """Whether all candidates take the same time."""
        times = [c.measured_us for c in self.candidates]
        return not times or max(times) <= min(times) * (1 + self.even)

    @property
    def spread(self) -> float:
        """The slowest candidate's time over the fastest one's."""
        times = [c.measured_us for c in self.candidates]
        return max(times) / min(times)

    @property
    def loss(self) -> float:
        """The time of the candidate of the least price, over the fastest one's."""
        best = min(self.candidates, key=lambda c: c.predicted_us)
        return best.measured_us / min(c.measured_us for c in self.candidates)

    @property
    def fast(self) -> float:
        """Up to which time a candidate is as fast as any."""
        return min(c.measured_us for c in self.candidates) * (1 + self.even)

    @property
    def needed(self) -> tuple[int, float]:
        """How many candidates it takes until one is as fast as any: by price, in any order."""
        by_price = sorted(self.candidates, key=lambda c: c.predicted_us)
        fast = [c.measured_us <= self.fast for c in by_price]
        return fast.index(True) + 1, (len(fast) + 1) / (sum(fast) + 1)

    @property
    def left_out(self) -> list[Candidate]:
        """Those that the tuner leaves out by their price."""
        least = min(c.predicted_us for c in self.candidates)
        return [c for c in self.candidates if c.predicted_us > SLOW * least]

    @property
    def spared(self) -> float:
        """The part of the time of all candidates that those take."""
        left, every = (sum(c.measured_us for c in cs) for cs in (self.left_out, self.candidates))
        return left / every

    @property
    def correlation(self) -> float | None:
        """Spearman's over its candidates, of which those that take as long share a rank.

        None where there are few candidates, or all take as long.
        """
        return self.ranked(FLAT, self.even)

    def ranked(self, prices: float, times: float) -> float | None:
        """The same where prices and times that differ by less than such parts share a rank."""
        found = (
            steps([c.predicted_us for c in self.candidates], prices),
            steps([c.measured_us for c in self.candidates], times),
        )
        return None if self.flat else spearman(*found) or 0.0


def steps(values: Sequence[float], part: float) -> list[int]:
    """The number of each value's step, in ascending order: within one they differ by that part."""
    found: dict[float, int] = {}
    start, number = 0.0, 0
    for value in sorted(values):
        if value > start * (1 + part):
            start, number = value, number + 1
        found[value] = number
    return [found[value] for value in values]


@dataclass
class Study:
    """The kernels of all workloads; why there are none of some."""

    kernels: list[KernelPrices] = field(default_factory=list[KernelPrices])
    failures: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def correlation(self) -> float | None:
        """Spearman's over kernels."""
        pairs = [(k.predicted_us, k.measured_us) for k in self.kernels]
        return spearman([p for p, _ in pairs], [m for _, m in pairs])

    @property
    def ordered(self) -> list[KernelPrices]:
        """The kernels whose candidates have an order."""
        return [k for k in self.kernels if k.correlation is not None]

    @property
    def median_within(self) -> float | None:
        """The median of the correlations within kernels."""
        return median([k.correlation for k in self.ordered])

    @property
    def plain_median(self) -> float | None:
        """The same where no ranks are shared."""
        return median([k.ranked(0.0, 0.0) for k in self.ordered])


def median(found: Sequence[float | None]) -> float | None:
    return statistics.median(n for n in found if n is not None) if found else None


def check_prices(
    workloads: Mapping[str, Workload],
    rounds: int,
    say: Callable[[str], None],
    minutes: float | None = None,
) -> Study:
    """Price and measure every kernel of the workloads, and candidates of those that take long.

    No workload is begun after so many minutes; the study tells which were not.
    """
    study, start = Study(), time.monotonic()
    for i, (name, workload) in enumerate(workloads.items(), 1):
        if minutes is not None and time.monotonic() - start > 60 * minutes:
            study.failures[name] = "not begun"
            continue
        say(f"{i}/{len(workloads)} {name}")

        def record(bench: Bench, kernels: Sequence[str], name: str = name) -> None:
            study.kernels += [*prices_within(name, bench, kernels, rounds)]

        try:
            run(workload, record)
        except (WeftError, RuntimeError) as error:
            study.failures[name] = str(error).strip().split("\n")[0]
            say(f"{name}: {study.failures[name]}")
    return study


def run(workload: Workload, record: Callable[[Bench, Sequence[str]], None]) -> None:
    """Hand every graph of a program to `record`, in the process that builds and times it."""
    program = load(SourceSpec(text=workload.text))
    assert isinstance(program, Source)
    token = SETTINGS.set(Settings(study=record))
    try:
        compiled = compile_source(program, replace(Options("cpu"), tune="now"))
        call(replace(program, callable=compiled), compiled)
    finally:
        SETTINGS.reset(token)


def prices_within(
    workload: str, bench: Bench, kernels: Sequence[str], rounds: int
) -> Iterator[KernelPrices]:
    """The kernels of one program, but for those that a call leaves out as restatements."""
    (priced,) = bench.price([{kernel: {} for kernel in kernels}])
    (first,) = bench.build([{}])
    if priced is None or first is None:
        raise WeftError("the default cannot be built")
    times = fastest(bench.times([first.number] * (rounds + 2)))
    total = sum(times.values())
    for kernel in filter(times.get, kernels):
        found = KernelPrices(workload, kernel, priced.prices[kernel], times[kernel])
        if times[kernel] >= SHARE * total:
            made = [*candidates(bench, kernel, priced.met[kernel], first)]
            found = replace(found, **tried(bench, kernel, made, rounds))
        yield found


def tried(
    bench: Bench, kernel: str, made: Sequence[tuple[Built, Decisions, float]], rounds: int
) -> dict[str, Any]:
    """Candidates measured in turn, the default, which is the first, once more at the end."""
    numbers = [built.number for built, *_ in made]
    rows = in_turn(bench, [*numbers, numbers[0]], rounds)
    *times, again = (fastest([row[i] for row in rows])[kernel] for i in range(len(made) + 1))
    both = zip(made, times, strict=True)
    found = tuple(Candidate(decisions, us, spent) for (_, decisions, us), spent in both)
    return {"candidates": found, "noise": max(times[0], again) / min(times[0], again) - 1}


def candidates(
    bench: Bench, kernel: str, met: Met, first: Built
) -> Iterator[tuple[Built, Decisions, float]]:
    """The default and others whose texts differ, built; each with its price."""
    drawn = [{}, *draw(met, random.Random(0))]
    texts: dict[str, tuple[Decisions, float]] = {}
    for decisions, row in zip(drawn, bench.price([{kernel: d} for d in drawn]), strict=True):
        if row is not None and len(texts) < CANDIDATES:
            texts.setdefault(row.texts[kernel], (decisions, row.prices[kernel]))
    (_, default), *others = texts.values()
    yield first, {}, default
    built = bench.build([{kernel: decisions} for decisions, _ in others])
    for made, (decisions, us) in zip(built, others, strict=True):
        if made is not None:
            yield made, decisions, us


def draw(met: Met, random: random.Random) -> list[dict[str, str]]:
    """Decisions that differ from what was taken in one choice or in two."""
    single = [{name: o} for name, (options, taken) in met.items() for o in options if o != taken]
    found = {tuple(one.items()): one for one in random.sample(single, min(len(single), DRAWN // 2))}
    for _ in range(DRAWN):
        if len(single) > 1 and len(found) < DRAWN:
            one, two = random.sample(single, 2)
            both = {**one, **two}
            found.setdefault(tuple(sorted(both.items())), both)
    return list(found.values())


def in_turn(bench: Bench, numbers: Sequence[int], rounds: int) -> list[list[dict[str, float]]]:
    """Rounds of all programs; fewer, and one at least, where they take long."""
    end, found = time.monotonic() + SECONDS, [bench.times(numbers)]
    while len(found) < rounds and time.monotonic() < end:
        found.append(bench.times(numbers))
    return found


def fastest(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """By kernel the least time: what else runs on the machine only adds to it."""
    return {name: min(row[name] for row in rows) for name in rows[0]}


def study_tables(study: Study) -> list[Any]:
    """Kernels by price and time; and how well candidates of each are ordered."""
    columns = ["workload", "kernel", "predicted us", "measured us", "ratio"]
    rows = [
        [k.workload, k.kernel, microseconds(k.predicted_us), microseconds(k.measured_us),
         f"{k.predicted_us / k.measured_us:.2f}"]
        for k in study.kernels
    ]  # fmt: skip
    found = [table("kernels", columns, rows)]
    tried = [k for k in study.kernels if len(k.candidates) > 1]
    columns = ["workload", "kernel", "candidates", "slowest / fastest", "best by price", "rank"]
    rows = [
        [k.workload, k.kernel, str(len(k.candidates)), f"{k.spread:.2f}", f"{k.loss:.2f}",
         "flat" if k.flat else number(k.correlation, ".2f")]
        for k in tried
    ]  # fmt: skip
    return [*found, table("candidates of a kernel", columns, rows)] if tried else found


def study_lines(study: Study) -> list[str]:
    """The rank correlations in words."""
    ordered = study.ordered
    flat = sum(len(k.candidates) > 1 and k.flat for k in study.kernels)
    lines = [
        f"rank correlation over {len(study.kernels)} kernels: {number(study.correlation, '.3f')}",
        f"within a kernel's candidates: {number(study.median_within, '.2f')}, the median over "
        f"{len(ordered)} kernels ({number(study.plain_median, '.2f')} where differences of less "
        f"than {FLAT:.0%}, or than two copies of one differ by, count); of {flat} more all "
        "candidates take the same time",
    ]
    if ordered:
        by_price, any_order = (statistics.mean(k.needed[i] for k in ordered) for i in (0, 1))
        spared = statistics.mean(k.spared for k in ordered)
        lines.append(
            f"one as fast as any is number {by_price:.1f} by price, {any_order:.1f} in any order; "
            f"leaving out what is priced as too slow spares {spared:.0%} of the time of all"
        )
    begun = {name: why for name, why in study.failures.items() if why != "not begun"}
    if begun != study.failures:
        lines.append(f"{len(study.failures) - len(begun)} workloads were not begun in that time")
    return lines + [f"{name}: {why}" for name, why in begun.items()]


def study_json(study: Study) -> dict[str, Any]:
    """All figures, with the machine."""
    found = [
        {**asdict(k), "flat": k.flat, "correlation": k.correlation, "plain": k.ranked(0.0, 0.0)}
        for k in study.kernels
    ]
    names = ("correlation", "median_within", "plain_median", "failures")
    facts = {"machine": machine(on_cpu=True), **{name: getattr(study, name) for name in names}}
    return {**facts, "kernels": found}
