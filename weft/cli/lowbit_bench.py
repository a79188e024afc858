"""`weft bench cpu --quantized`: a decoder layer with weights of few bits, beside other systems.

results = run(Settings(("eager", "weft")), tell)
show(*tables(results))

Each backend and row has a process of its own, and the rounds of backends take turns. The weights
of a round are more than caches hold, so they come from memory: `percent` is of the read bandwidth
that a loop in C reaches in the same run, in prefill of the peak of int8 products (of bf16 or f32
products where nothing is rounded to int8).
"""

from __future__ import annotations

import importlib
import re
import statistics
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from weft.cli import lowbit_peers as peers
from weft.cli.bench import StillChild
from weft.cli.clocks import CPUClock
from weft.cli.habits import status
from weft.cli.limits import Limits, measure, read_and_dot
from weft.cli.lowbit_layer import F32, PHASES, ROWS, Row, dense_layer, flops, given
from weft.cli.output import milliseconds, number, table
from weft.cli.suite_text import machine
from weft.core.errors import SourceError, choice
from weft.runtime.child import ChildError, answer

BACKENDS = tuple(peers.BUILD)
OURS = "weft"
PREFILL_LAYERS = 2
LIMIT = 900.0  # seconds that building the layers of a row may take
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    """`layers` is how many layers a round goes over; None: as many as caches do not hold."""

    backends: tuple[str, ...] = BACKENDS
    only: str | None = None
    threads: int | None = None
    seconds: float = 0.3
    rounds: int = 5
    llama: str | None = None
    layers: int | None = None


@dataclass(frozen=True)
class Cell:
    """One backend in one row and phase: milliseconds of a layer, the relative error of its output
    to that of f32 weights, and bytes of memory that building each layer took."""

    ms: float | None = None
    rounds_ms: tuple[float, ...] = ()
    error: float | None = None
    resident: float | None = None
    failure: str | None = None


@dataclass(frozen=True)
class Results:
    threads: int
    read: float  # GB/s
    dots: float  # GOP/s of int8 products; 0 where a CPU has none
    limits: Limits
    cells: Mapping[tuple[str, str], Mapping[str, Cell]]  # by row and phase, then by backend
    absent: Mapping[str, str]

    def best_peer(self, row: str, phase: str) -> str | None:
        found = {b: c.ms for b, c in self.cells[row, phase].items() if b != OURS and c.ms}
        return min(found, key=lambda b: found[b], default=None)

    def ratio(self, row: str, phase: str) -> float | None:
        """How many times as fast as the best peer weft is."""
        best, cells = self.best_peer(row, phase), self.cells[row, phase]
        mine = cells.get(OURS, Cell()).ms
        other = cells[best].ms if best else None
        return other / mine if mine and other else None

    def percent(self, row: str, phase: str, ms: float | None) -> float | None:
        """Of the read bandwidth in decode, of the peak of products in prefill."""
        if not ms:
            return None
        if phase == "decode":
            return ROWS[row].bytes / ms * 1e-6 / self.read * 100
        peak = self.peak(ROWS[row])
        return flops(PHASES[phase]) / ms * 1e-6 / peak * 100 if peak else None

    def peak(self, row: Row) -> float:
        """G operations a second: int8 where activations are rounded, else bf16, else f32."""
        return self.dots if row.rounds else self.limits.bf16_gflops or self.limits.gflops


class Session:
    """A process of one backend (runtime/child.py). Each method is a request."""

    def __init__(self) -> None:
        self.calls: peers.Calls = []
        self.layers = 1

    def load(
        self, backend: str, row: str, phase: str, layers: int, threads: int, out: str
    ) -> dict[str, Any]:
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        dynamo: Any = importlib.import_module("torch._dynamo.config")
        dynamo.recompile_limit = layers + 8  # of one forward, for many modules
        before, self.layers = status("VmRSS"), layers
        self.calls = peers.BUILD[backend](row, PHASES[phase], layers)
        found, *_ = [peers.first_output(call) for call in self.calls]
        if found is not None:
            torch.save(found, out)
        return {"resident": (status("VmRSS") - before) / layers, "saved": found is not None}

    def round(self, seconds: float) -> dict[str, float]:
        def once() -> None:
            for call in self.calls:
                call()

        return {"ms": CPUClock().median(once, seconds) * 1e3 / self.layers}


def run(settings: Settings, tell: Tell) -> Results:
    """Measures all rows; SourceError where an option names what is not there."""
    chosen = [choice("backend", b, BACKENDS) for b in settings.backends]
    absent = {b: why for b in chosen if (why := peers.absent(b, settings.llama))}
    threads = settings.threads or torch.get_num_threads()
    todo = selected(settings.only)
    read, dots = read_and_dot(threads)
    limits, cells = measure(threads), dict[tuple[str, str], Mapping[str, Cell]]()
    left = [b for b in chosen if b not in absent]
    for row, phase in todo:
        tell(f"{row}: {phase}")
        wanted = dense_output(phase)
        cells[row, phase] = compared(settings, row, phase, left, threads, wanted)
    later = read_and_dot(threads)  # other work can only lower a figure
    return Results(threads, max(read, later[0]), max(dots, later[1]), limits, cells, absent)


def selected(only: str | None) -> list[tuple[str, str]]:
    every = [(row, phase) for row in ROWS for phase in PHASES]
    found = [pair for pair in every if only is None or re.search(only, ": ".join(pair))]
    if not found:
        raise SourceError(f"--only {only} finds none of: {', '.join(map(': '.join, every))}")
    return found


def dense_output(phase: str) -> torch.Tensor:
    with torch.no_grad():
        return dense_layer(0)(*given(PHASES[phase], F32))


def compared(
    settings: Settings, row: str, phase: str, backends: Sequence[str], threads: int,
    wanted: torch.Tensor,
) -> dict[str, Cell]:  # fmt: skip
    """The backends of a row, loaded one after another, then timed in turn."""
    layers = settings.layers or (ROWS[row].layers if phase == "decode" else PREFILL_LAYERS)
    environment = {peers.LLAMA_FOLDER: settings.llama or "", "OMP_NUM_THREADS": str(threads)}
    cells, times = dict[str, Cell](), dict[str, list[float]]()
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as folder:
        children = dict[str, StillChild]()
        for backend in (b for b in backends if peers.has(b, row)):
            log, out = Path(folder) / f"{backend}.log", Path(folder) / f"{backend}.pt"
            child = StillChild("weft.cli.lowbit_bench", log, environment, LIMIT)
            facts = {"backend": backend, "row": row, "phase": phase, "out": str(out)}
            try:
                reply = child.ask(do="load", **facts, layers=layers, threads=threads)
            except ChildError as error:
                cells[backend] = Cell(failure=error.message)
                child.close()
                continue
            children[backend], times[backend] = child, []
            error = apart(torch.load(out), wanted) if reply["saved"] else None
            cells[backend] = Cell(error=error, resident=reply["resident"])
        for backend, child in [*children.items()] * settings.rounds:
            times[backend].append(child.ask(do="round", seconds=settings.seconds)["ms"])
        for backend, child in children.items():
            child.close()
            found, known = times[backend], cells[backend]
            cells[backend] = Cell(
                statistics.median(found), tuple(found), known.error, known.resident
            )
    return cells


def apart(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm())


def tables(results: Results) -> list[Any]:
    """A table for each phase, and a line for each backend or cell that has no figure."""
    shown: list[Any] = []
    for phase, unit in (("decode", "of read"), ("prefill", "of peak")):
        rows = [(row, cells) for (row, at), cells in results.cells.items() if at == phase]
        if rows:
            used = [b for b in BACKENDS if any(b in cells for _, cells in rows)]
            columns = ["weights", *(f"{b} ms" for b in used), "best peer", "x best", "GB/s",
                       f"% {unit}", "error", "weft's MB"]  # fmt: skip
            lines = [line(results, row, phase, used) for row, _ in rows]
            one = PHASES[phase]
            title = f"{phase}: {one.rows} rows, {one.cached} cached; ms of a layer"
            shown.append(table(f"{title}, {results.threads} threads", columns, lines))
    shown.append(f"read {results.read:.1f} GB/s, int8 products {results.dots:.0f} GOP/s")
    shown += [f"{backend} is left out: {why}" for backend, why in results.absent.items()]
    shown += [
        f"{row}, {phase}: {backend} failed: {cell.failure}"
        for (row, phase), cells in results.cells.items()
        for backend, cell in cells.items()
        if cell.failure
    ]
    return shown


def line(results: Results, row: str, phase: str, used: Sequence[str]) -> list[str]:
    cells = results.cells[row, phase]
    mine = cells.get(OURS, Cell())
    rate = ROWS[row].bytes / mine.ms * 1e-6 if mine.ms else None
    return [
        row,
        *(milliseconds(cells.get(b, Cell()).ms) for b in used),
        results.best_peer(row, phase) or "-",
        number(results.ratio(row, phase), ".2f"),
        number(rate, ".1f"),
        number(results.percent(row, phase, mine.ms), ".0f"),
        number(mine.error, ".1e"),
        number(mine.resident and mine.resident / 1e6, ".0f"),
    ]


def as_json(results: Results) -> dict[str, Any]:
    rows = [
        {"weights": row, "phase": phase, "bytes": ROWS[row].bytes,
         "x_best_peer": results.ratio(row, phase), "best_peer": results.best_peer(row, phase),
         "backends": {b: {**asdict(c), "percent": results.percent(row, phase, c.ms)}
                      for b, c in cells.items()}}
        for (row, phase), cells in results.cells.items()
    ]  # fmt: skip
    facts = {"machine": machine(on_cpu=True), "threads": results.threads}
    limits = {"read_gb_per_s": results.read, "int8_gops": results.dots, **asdict(results.limits)}
    return {**facts, "limits": limits, "absent": dict(results.absent), "rows": rows}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    answer(Session())
