"""`weft bench cpu --quantized`: a decoder layer with weights of few bits, beside other systems.

results = run(Settings(("eager", "weft")), tell)
results.ratio("int8", "decode", BEST)       # how many times as fast as the best peer weft is

Each backend and row has a process of its own, and the rounds of backends take turns. A round goes
over copies of the layer that exceed the last cache, so that weights come from memory. An output is
compared with that of eager: a peer that is wrong has no figure, and is never the best.
"""

from __future__ import annotations

import importlib
import math
import re
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

from weft.cli import habits
from weft.cli import lowbit_peers as peers
from weft.cli.bench import StillChild
from weft.cli.limits import Peaks
from weft.cli.limits import peaks as measure
from weft.cli.lowbit_layer import BF16, F32, PHASES, ROWS, arguments, dense_layer, operations
from weft.core.errors import SourceError, choice
from weft.runtime.child import ChildError, answer
from weft.targets.cpu import host

EVERY = tuple(peers.BUILD)
BACKENDS = tuple(b for b in EVERY if b != "eager")  # which is slow, and judges in any case
OURS = "weft"
BASE = "weft bf16"  # dense: it takes turns with every row
ONE = "weft 1 thread"
BEST = "best peer"
NOT_PEERS = (OURS, BASE, ONE, "llama.cpp")  # llama.cpp rounds activations, asked or not
ROTATION = 1.25  # of the last cache, that the weights of a round are at least
HELD = 3  # times its bytes, that a layer needs in a process
PREFILL_COPIES = 2
OFF = 0.02  # relative error of weft to eager on the same codes, in bf16
LEAST_ERROR = 1e-3  # that a peer may have
WRONG = "wrong"
LOAD_SECONDS, ROUND_SECONDS = 300.0, 120.0  # a backend that takes longer hangs
PATIENCE = 6.0  # seconds of rounds, after which a slow backend is timed no more
Tell = Callable[[str], None]
Key = tuple[str, str, int]  # a process: backend, row, threads


@dataclass(frozen=True)
class Settings:
    """`copies` of a layer in a round, None: as many as exceed the last cache."""

    backends: tuple[str, ...] = BACKENDS
    only: str | None = None
    threads: int | None = None
    seconds: float | None = None  # 0.3
    rounds: int = 5
    minutes: float | None = None
    llama: str | None = None
    copies: int | None = None


@dataclass(frozen=True)
class Cell:
    """One backend in one row and phase: milliseconds of a layer, the relative error of its output
    to that of f32 weights, of weft also to that of eager (`off`), the seconds until it was ready,
    and the resident bytes of a copy."""

    ms: float | None = None
    rounds_ms: tuple[float, ...] = ()
    error: float | None = None
    off: float | None = None
    load_seconds: float | None = None
    resident: float | None = None
    failure: str | None = None


@dataclass(frozen=True)
class Results:
    settings: Settings
    threads: int
    last_cache: int  # bytes
    peaks: Peaks
    copies: Mapping[str, int]  # by row, in decode
    cells: Mapping[tuple[str, str], Mapping[str, Cell]]  # by row and phase, then by backend
    absent: Mapping[str, str]
    not_begun: Sequence[str] = ()

    def ms(self, row: str, phase: str, backend: str) -> float | None:
        """Milliseconds of a layer; in the row of dense bf16, weft is the base."""
        name = OURS if (row, backend) == ("bf16", BASE) else backend
        return self.cells.get((row, phase), {}).get(name, Cell()).ms

    def best_peer(self, row: str, phase: str) -> str | None:
        cells = self.cells.get((row, phase), {})
        found = {b: c.ms for b, c in cells.items() if b not in NOT_PEERS and c.ms}
        return min(found, key=lambda b: found[b], default=None)

    def ratio(self, row: str, phase: str, to: str) -> float | None:
        """How many times as fast as a backend, or the best peer, weft is."""
        other = self.best_peer(row, phase) if to == BEST else to
        mine, theirs = self.ms(row, phase, OURS), other and self.ms(row, phase, other)
        return theirs / mine if mine and theirs else None

    def percent(self, row: str, phase: str, backend: str = OURS) -> float | None:
        """Of the read bandwidth in decode, of the peak of products in prefill."""
        ms, peaks = self.ms(row, phase, backend), self.peaks
        chosen = ROWS[row]
        if phase == "decode":
            work, peak = chosen.bytes, peaks.read
        else:
            work = operations(PHASES[phase])
            peak = (peaks.bf16 or peaks.f32) if chosen.dtype == BF16 else peaks.f32
            if chosen.activations:
                peak = peaks.int8_one_thread if backend == ONE else peaks.int8
        return work / ms * 1e-6 / peak * 100 if ms and peak else None

    @property
    def passed(self) -> bool:
        return not any(c.failure for row in self.cells.values() for b, c in row.items()
                       if b in (OURS, BASE, ONE))  # fmt: skip


class Session:
    """A process of one backend (runtime/child.py). Each method is a request."""

    def __init__(self) -> None:
        self.build: peers.Build | None = None
        self.calls: dict[str, tuple[peers.Calls, int]] = {}

    def load(
        self, backend: str, row: str, phase: str, copies: int, threads: int, out: str
    ) -> dict[str, Any]:
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        dynamo: Any = importlib.import_module("torch._dynamo.config")
        dynamo.recompile_limit = 2 * copies + 8  # of one forward, for many modules
        before = habits.status("VmRSS")
        self.build = self.build or peers.BUILD[backend](row)
        calls = self.build(PHASES[phase], copies)
        found, *_ = [peers.first_output(call) for call in calls]
        if found is not None:
            torch.save(found, out)
        self.calls[phase] = calls, copies
        resident = (habits.status("VmRSS") - before) / copies
        return {"resident": resident, "saved": found is not None}

    def round(self, phase: str, seconds: float) -> dict[str, float]:
        calls, copies = self.calls[phase]

        def once() -> None:
            for call in calls:
                call()

        end, samples = time.perf_counter() + seconds, [habits.seconds(once, 1)]
        if samples[0] < seconds:  # else what it found in caches of others is a small part
            samples.clear()
        while not samples or time.perf_counter() < end:
            samples.append(habits.seconds(once, 1))
        return {"ms": statistics.median(samples) * 1e3 / copies, "seconds": sum(samples)}


@dataclass
class Processes:
    """The children of a run; that of dense bf16 stays for all rows."""

    settings: Settings
    threads: int
    folder: Path
    copies: dict[str, int] = field(default_factory=dict[str, int])
    children: dict[Key, StillChild] = field(default_factory=dict[Key, StillChild])
    loaded: dict[tuple[Key, str], Cell] = field(default_factory=dict[tuple[Key, str], Cell])

    def load(self, key: Key, phase: str) -> Cell:
        """A cell without times; its failure says what went wrong."""
        if (key, phase) in self.loaded:
            return self.loaded[key, phase]
        backend, row, threads = key
        child = self.children.get(key)
        if child is None or not child.usable:
            child = self.children[key] = self.start(key)
        out = self.folder / f"{'-'.join(map(str, key))}-{phase}.pt"
        count = self.copies[row] if phase == "decode" else PREFILL_COPIES
        facts = {"backend": backend, "row": row, "phase": phase, "threads": threads}
        child.limit, start = LOAD_SECONDS, time.monotonic()
        try:
            reply = child.ask(do="load", **facts, copies=self.settings.copies or count,
                              out=str(out))  # fmt: skip
        except ChildError as error:
            return Cell(failure=error.message)
        cell = judged(backend, row, phase, torch.load(out)) if reply["saved"] else Cell()
        seconds = time.monotonic() - start
        cell = replace(cell, load_seconds=seconds, resident=reply["resident"])
        self.loaded[key, phase] = cell
        return cell

    def start(self, key: Key) -> StillChild:
        environment = {
            peers.LLAMA_FOLDER: self.settings.llama or "",
            "OMP_NUM_THREADS": str(key[2]),
            "TORCHINDUCTOR_COMPILE_THREADS": "1",  # no processes of its own
        }
        log = self.folder / f"{'-'.join(map(str, key))}.log"
        child = StillChild("weft.cli.lowbit_bench", log, environment)
        child.title = "its worker"
        return child

    def round(self, key: Key, phase: str) -> dict[str, float]:
        child = self.children[key]
        child.limit = ROUND_SECONDS
        return child.ask(do="round", phase=phase, seconds=self.settings.seconds or 0.3)

    def close(self, but: Key | None = None) -> None:
        """Ends all processes but one."""
        for key in [key for key in self.children if key != but]:
            child = self.children.pop(key)
            if not child.log.closed:
                child.close()
            self.loaded = {k: cell for k, cell in self.loaded.items() if k[0] != key}


def run(settings: Settings, tell: Tell) -> Results:
    """Measures all rows; SourceError where an option names what is not there."""
    chosen = [choice("backend", b, EVERY) for b in settings.backends]
    absent = {b: why for b in chosen if (why := peers.absent(b, settings.llama))}
    for backend, why in absent.items():
        tell(f"{backend} is left out: {why}")
    backends = [b for b in chosen if b not in absent]
    threads, todo = settings.threads or torch.get_num_threads(), selected(settings.only)
    start, last = time.monotonic(), host().l3
    found, cells = measure(threads, last), dict[tuple[str, str], Mapping[str, Cell]]()
    not_begun: list[str] = []
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as folder:
        processes = Processes(settings, threads, Path(folder))
        try:
            for row, phases in todo.items():
                passed = time.monotonic() - start
                if settings.minutes is not None and passed > 60 * settings.minutes:
                    not_begun.append(row)
                    continue
                tell(f"{row}: {', '.join(phases)} ({passed:.0f} s)")
                processes.copies |= copies_of((row, "bf16"), last, len(backends), processes.copies)
                cells |= {(row, p): compared(processes, row, p, backends) for p in phases}
                processes.close(but=(OURS, "bf16", threads))
                found = found.best_of(measure(threads, last))  # other work can only lower a figure
        finally:
            processes.close()
    return Results(settings, threads, last, found, processes.copies, cells, absent, not_begun)


def settings_of(backends: str | None, *more: Any) -> Settings:
    """The settings of options in the order of Settings; `backends` are separated by commas."""
    names = BACKENDS if backends is None else tuple(backends.split(","))
    return Settings(names, *more)


def selected(only: str | None) -> dict[str, list[str]]:
    """The phases of rows whose `row: phase` the regular expression finds."""
    every = [f"{row}: {phase}" for row in ROWS for phase in PHASES]
    try:
        found = [pair for pair in every if re.search(only or "", pair)]
    except re.error as error:
        raise SourceError(f"--only {only!r} is no regular expression: {error}") from None
    if not found:
        raise SourceError(f"--only {only!r} finds none of: {'; '.join(every)}")
    pairs = {row: [p for p in PHASES if f"{row}: {p}" in found] for row in ROWS}
    return {row: phases for row, phases in pairs.items() if phases}


def copies_of(
    rows: Sequence[str], last: int, backends: int, known: Mapping[str, int]
) -> dict[str, int]:
    """How many layers exceed the last cache, or as many as half of the free memory holds."""
    free = available_bytes() / 2 / HELD / max(backends, 1)
    return {
        row: known.get(row)
        or max(1, min(math.ceil(ROTATION * last / ROWS[row].bytes), int(free / ROWS[row].bytes)))
        for row in rows
    }


def available_bytes() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(x.split()[1]) << 10 for x in lines if x.startswith("MemAvailable"))


def compared(
    processes: Processes, row: str, phase: str, backends: Sequence[str]
) -> dict[str, Cell]:
    """The backends of a row, loaded one after another, then timed in turn."""
    keys = {b: (b, row, processes.threads) for b in backends if peers.has(b, row)}
    if OURS in keys and row != "bf16":
        keys[BASE] = OURS, "bf16", processes.threads
    if OURS in keys and phase == "prefill" and ROWS[row].activations:
        keys[ONE] = OURS, row, 1
    cells = {b: processes.load(key, phase) for b, key in keys.items()}
    times: dict[str, list[float]] = {b: [] for b in keys}
    spent = dict.fromkeys(keys, 0.0)
    for backend in [*keys] * processes.settings.rounds:
        if cells[backend].failure is None and spent[backend] < PATIENCE:
            try:
                found = processes.round(keys[backend], phase)
                times[backend].append(found["ms"])
                spent[backend] += found["seconds"]
            except ChildError as error:
                cells[backend] = replace(cells[backend], failure=error.message)
    return {
        b: replace(cell, ms=statistics.median(times[b]), rounds_ms=tuple(times[b]))
        if cell.failure is None
        else cell
        for b, cell in cells.items()
    }


@cache
def expected(row: str) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """By phase, what f32 weights give, and what eager gives on the row's codes."""
    with torch.no_grad():
        return {
            name: (dense_layer()(*arguments(phase, F32)), layer(*arguments(phase, dtype)).float())
            for layer, dtype in [(ROWS[row].layer(), ROWS[row].dtype)]
            for name, phase in PHASES.items()
        }


def judged(backend: str, row: str, phase: str, found: torch.Tensor) -> Cell:
    """Compares an output with that of f32 weights, of which a peer may be twice as far off as eager
    is, since it rounds weights in a way of its own; and weft's with that of eager."""
    dense, eager = expected(row)[phase]
    error, limit = apart(found, dense), 2 * apart(eager, dense) + LEAST_ERROR
    off = apart(found, eager) if backend == OURS else None
    if backend != OURS and ROWS[row].kind and error < apart(eager, dense) / 8:
        why = f"{WRONG}: its error is {error:.1e}, so its weights are not of few bits"
    elif not error <= limit:
        why = f"{WRONG}: its error is {error:.1e}, the limit {limit:.1e}"
    elif off is not None and not off <= OFF:
        why = f"{WRONG}: it is {off:.1e} off eager, the limit {OFF:.1e}"
    else:
        why = None
    return Cell(error=error, off=off, failure=why)


def apart(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm())


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    answer(Session())
