"""`weft bench cpu|cuda`: times every workload on every backend, beside the machine's limits.

results = run(Settings("cpu", backends=("eager", "weft"), only="softmax"))
results.rows[0].ratio("weft", "eager"), results.geomean("weft", BEST), results.rank_correlation
"""

import math
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from weft.cli import cuda_limits
from weft.cli.bench import Bench, Measurement
from weft.cli.clocks import CUDAClock
from weft.cli.habits import Habits
from weft.cli.hot_calls import HotCalls
from weft.cli.limits import Limits, Work, count, measure
from weft.cli.peers import NEEDS, missing
from weft.cli.program import Source, SourceSpec
from weft.cli.source import load
from weft.cli.workloads import CUDA_WORKLOADS, WORKLOADS, Workload
from weft.core.errors import SourceError, WeftError
from weft.options import Options
from weft.runtime.child import ChildError

OURS = ("weft", "weft-frozen", "weft-dynamo", "weft-dynamic")
# of sizes that are free
DYNAMIC = ("eager", "inductor", "inductor-dynamic", "weft", "weft-dynamic")
BEST = "best peer"
DISTURBED = 1.2  # median of rounds / fastest: above this, other work ran on the machine
PEER_ERROR = 1e-4  # a peer with a larger error computes in less than float32, and does not count
NOTHING = 1 << 20  # bytes by which memory may differ and still count as equal
FIRST = SourceSpec(text="torch.ones(4) + 1")  # not timed: it imports the compiler


@dataclass(frozen=True)
class Suite:
    """The workloads and backends of a device. The goal is `enough` times the best peer's speed."""

    workloads: Mapping[str, Workload]
    backends: tuple[str, ...]
    enough: float


SUITES = {
    "cpu": Suite(
        WORKLOADS,
        ("eager", "inductor", "openvino", "onnxruntime", "weft", "weft-frozen", "weft-dynamo"),
        0.9,
    ),
    "cuda": Suite(CUDA_WORKLOADS, ("eager", "inductor", "inductor-max-autotune", "weft"), 0.8),
}


@dataclass(frozen=True)
class Settings:
    """The settings of a run. After `minutes` no workload begins; the summary lists those left."""

    device: str
    backends: tuple[str, ...]
    only: str | None = None
    threads: int | None = None
    seconds: float = 0.1
    rounds: int = 5
    minutes: float | None = None

    @property
    def suite(self) -> Suite:
        return SUITES[self.device]


@dataclass(frozen=True)
class Row:
    """One workload: its work, and a measurement of each backend."""

    name: str
    workload: Workload
    work: Work | None
    measurements: Mapping[str, Measurement]

    def of(self, backend: str) -> Measurement:
        """A backend's measurement; one without figures if there is none."""
        return self.measurements.get(backend, Measurement(backend))

    def ms(self, backend: str) -> float | None:
        """The milliseconds of a backend, or of the best peer; None if it failed or is wrong."""
        if backend == BEST:
            return min(self.peers.values(), default=None)
        found = self.of(backend)
        return None if trouble(found) else found.ms

    @property
    def peers(self) -> dict[str, float]:
        times = {b: self.ms(b) for b in self.measurements if b not in OURS}
        return {backend: ms for backend, ms in times.items() if ms}

    @property
    def best_peer(self) -> str | None:
        return min(self.peers, key=lambda b: self.peers[b], default=None)

    def ratio(self, backend: str, to: str) -> float | None:
        """How many times as fast as `to` a backend is."""
        mine, other = self.ms(backend), self.ms(to)
        return other / mine if mine and other else None

    @property
    def passed(self) -> bool:
        return all(m.passed for b, m in self.measurements.items() if b in OURS)

    @property
    def disturbed(self) -> bool:
        """Whether rounds of a backend differ so much that other work ran on the machine."""
        rounds = [m.rounds_ms for m in self.measurements.values() if m.rounds_ms]
        return any(statistics.median(r) > DISTURBED * min(r) for r in rounds)


def trouble(found: Measurement) -> str | None:
    """Why a measurement does not count; None if it does. A peer may have an error of PEER_ERROR."""
    verdict = found.verdict
    if found.failure is not None or verdict is None or verdict.passed:
        return found.failure
    if verdict.reason:
        return verdict.reason
    if found.backend not in OURS and verdict.error <= PEER_ERROR:
        return None
    return f"its relative error is {verdict.error:.1e}, the limit {verdict.limit:.1e}"


@dataclass(frozen=True)
class Results:
    settings: Settings
    threads: int
    missing: Mapping[str, str]  # backends left out, and why
    limits: Limits
    rows: Sequence[Row]
    habits: Habits | None = None
    not_begun: Sequence[str] = ()
    hot_calls: Mapping[str, HotCalls] = field(default_factory=dict[str, HotCalls])  # by backend

    @property
    def on_cpu(self) -> bool:
        return self.settings.device == "cpu"

    @property
    def backends(self) -> list[str]:
        return [b for b in self.settings.backends if b not in self.missing]

    @property
    def ours(self) -> list[str]:
        return [b for b in OURS if b in self.backends]

    @property
    def peers(self) -> list[str]:
        return [b for b in self.backends if b not in OURS]

    def percent(self, row: Row, backend: str) -> float | None:
        return self.limits.percent(row.work, row.ms(backend)) if row.work is not None else None

    def geomean(self, backend: str, to: str) -> float | None:
        """The geometric mean of the ratios, over the workloads that both ran."""
        ratios = [r for row in self.rows if (r := row.ratio(backend, to)) is not None]
        return statistics.geometric_mean(ratios) if ratios else None

    def behind(self, backend: str, to: str, least: float) -> list[str]:
        """The workloads where `backend` is less than `least` times as fast as `to`."""
        return [r.name for r in self.rows if (x := r.ratio(backend, to)) is not None and x < least]

    def compile_seconds(self, backend: str) -> float | None:
        """The median seconds to compile and call once, over the workloads."""
        found = [s for row in self.rows if (s := row.of(backend).compile_seconds) is not None]
        return statistics.median(found) if found else None

    def slow_to_compile(self, backend: str, to: str, most: float) -> list[str]:
        """The workloads that take `backend` more than `most` times as long to compile as `to`."""
        pairs = [(r, r.of(backend).compile_seconds, r.of(to).compile_seconds) for r in self.rows]
        return [r.name for r, mine, other in pairs if mine and other and mine > most * other]

    def hungry(self, backend: str, to: str) -> list[str]:
        """The workloads whose call needs clearly more memory on `backend` than on `to`."""
        pairs = [(r.name, r.of(backend).peak_bytes, r.of(to).peak_bytes) for r in self.rows]
        return [
            name for name, mine, other in pairs
            if mine is not None and other is not None and mine > other + NOTHING
        ]  # fmt: skip

    @property
    def disturbed(self) -> list[str]:
        return [row.name for row in self.rows if row.disturbed]

    @cached_property
    def rank_correlation(self) -> float | None:
        """Spearman's, of weft's predicted and measured times, over workloads without externs."""
        pairs = [
            (found.predicted_us, found.ms)
            for row in self.rows
            if (found := row.of("weft")).ms and found.predicted_us and not found.externs
        ]  # fmt: skip
        return spearman([p for p, _ in pairs], [m for _, m in pairs])

    @property
    def passed(self) -> bool:
        return all(row.passed for row in self.rows)


def spearman(left: Sequence[float], right: Sequence[float]) -> float | None:
    """Spearman's rank correlation; None for fewer than three pairs, or if one side is constant."""
    a, b = ranks(left), ranks(right)
    if len(a) < 3 or not a.std() or not b.std():
        return None
    return float(np.corrcoef(a, b)[0, 1])


def ranks(values: Sequence[float]) -> np.ndarray:
    """The ranks of values, from 1; equal values share the mean of their ranks."""
    _, place, repeats = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    return (np.cumsum(repeats) - (repeats - 1) / 2)[place]


def chosen(only: str | None, device: str = "cpu") -> dict[str, Workload]:
    """The workloads whose name or group the regular expression `only` finds."""
    workloads = SUITES[device].workloads
    try:
        pattern = re.compile(only or "", re.IGNORECASE)
    except re.error as error:
        raise SourceError(f"--only {only!r} is no regular expression: {error}") from None
    found = {
        name: w for name, w in workloads.items() if pattern.search(name) or pattern.search(w.group)
    }
    if not found:
        raise SourceError(f"--only {only!r} finds none of: {', '.join(workloads)}")
    return found


def left_out(backends: Sequence[str]) -> dict[str, str]:
    """Backends whose modules are not installed, and why they are left out."""
    return {
        backend: f"{' and '.join(names)} not installed (pip install 'weft[bench]')"
        for backend in backends
        if (names := missing(backend))
    }


@dataclass(frozen=True)
class Caches:
    """The caches of a run, which are separate from the user's so that programs are compiled.

    Programs are removed from weft's before each workload; Inductor's is empty at the start, since
    what it holds of one workload is of no use to another. Both keep what they build of headers.
    """

    folder: Path
    threads: int

    def environment(self, backend: str) -> dict[str, str]:
        return {
            "OMP_NUM_THREADS": str(self.threads),
            "WEFT_CACHE": str(self.folder / backend / "weft"),
            "TORCHINDUCTOR_CACHE_DIR": str(self.folder / backend / "inductor"),
            "TRITON_CACHE_DIR": str(self.folder / backend / "triton"),
        }

    def empty(self) -> None:
        for backend in OURS:
            for kind in ("programs", "objects", "graphs", "launches", "cubins"):
                shutil.rmtree(self.folder / backend / "weft" / kind, ignore_errors=True)


def run(settings: Settings, say: Callable[[str], None] = lambda line: None) -> Results:
    """Measures the machine, then the workloads one after the other, then the machine again."""
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise SourceError("weft bench cuda needs a CUDA device, and PyTorch finds none here")
    workloads = chosen(settings.only, settings.device)
    absent = left_out(settings.backends)
    for backend, reason in absent.items():
        say(f"{backend} is left out: {reason}")
    backends = [b for b in settings.backends if b not in absent]
    if not backends:
        raise SourceError("no backend is left to measure")
    threads = settings.threads or torch.get_num_threads()
    limits = limits_of(settings.device, threads, say)
    end = math.inf if settings.minutes is None else time.monotonic() + 60 * settings.minutes
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="weft-bench-cache-") as folder:
        caches = Caches(Path(folder), threads)
        options = Options("auto" if settings.device == "cpu" else settings.device)
        with Bench(backends, options, caches.environment) as bench:
            say(f"starting {', '.join(backends)}")
            bench.compare(replace(FIRST, device=settings.device), rounds=1, seconds=0.0)
            for number, (name, workload) in enumerate(workloads.items(), 1):
                if time.monotonic() < end:
                    say(f"{number}/{len(workloads)} {name}")
                    caches.empty()
                    rows.append(measured(bench, name, workload, settings))
        habits, calls = None, dict[str, HotCalls]()
        if settings.device == "cpu":
            calls = hot_calls_of(caches, [b for b in backends if b not in NEEDS], options, say)
        if settings.device == "cpu" and "weft" in backends:
            say("calls, threads and eager's own ops")
            habits = habits_of(caches, threads)
    limits = limits.best_of(limits_of(settings.device, threads, say))
    begun = {row.name for row in rows}
    rest = [name for name in workloads if name not in begun]
    return Results(settings, threads, absent, limits, rows, habits, rest, calls)


def limits_of(device: str, threads: int, say: Callable[[str], None]) -> Limits:
    if device == "cpu":
        say(f"measuring the machine on 1 and {threads} threads")
        return measure(threads)
    say("measuring the device")
    place = torch.device(device, torch.cuda.current_device())
    CUDAClock(place)  # turns TF32 off in this process as well
    return cuda_limits.measure(place)


def habits_of(caches: Caches, threads: int) -> Habits:
    """Measures habits in a process of its own."""
    with Bench(["weft"], environment=caches.environment) as bench:
        return Habits(**bench.workers[0].ask(do="habits", threads=threads))


def hot_calls_of(
    caches: Caches, backends: Sequence[str], options: Options, say: Callable[[str], None]
) -> dict[str, HotCalls]:
    """Measures hot calls of each backend in a process of its own; `backends` are without peers."""
    found: dict[str, HotCalls] = {}
    for backend in backends:
        say(f"hot calls of {backend}")
        with Bench([backend], options, caches.environment) as bench:
            try:
                request = {"do": "hot_calls", "backend": backend, "options": asdict(bench.options)}
                found[backend] = HotCalls(**bench.workers[0].ask(**request))
            except ChildError as error:
                say(f"hot calls of {backend}: {error.message}")
    return found


def measured(bench: Bench, name: str, workload: Workload, settings: Settings) -> Row:
    """Measures one workload. If its program does not load, each backend has a failure."""
    spec = SourceSpec(text=workload.text, device=settings.device)
    try:
        source = load(spec)
        assert isinstance(source, Source)
        work = count(source)
        comparison = bench.compare(spec, settings.rounds, settings.seconds)
    except (WeftError, RuntimeError) as error:  # torch's, if a device is out of memory
        told = str(error).strip().split("\n")[0]
        failures = {b: Measurement(b, failure=told) for b in bench.backends}
        return Row(name, workload, None, failures)
    return Row(name, workload, work, comparison.measurements)
