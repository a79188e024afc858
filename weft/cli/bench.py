"""Compares backends on one program: each has its own process, and their rounds take turns.

with Bench(["eager", "inductor", "weft"]) as bench:
    bench.compare(SourceSpec(text="torch.randn(4) + 1")).measurements["weft"].ms
"""

from __future__ import annotations

import signal
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from weft.cli.bench_worker import BACKENDS
from weft.cli.check import Verdict, call, check, check_text, run_eager, run_reference, worst
from weft.cli.compiling import compile_ir, text_as_source
from weft.cli.peers import PEERS, restored
from weft.cli.program import IrText, Source, SourceSpec
from weft.cli.source import load
from weft.core.errors import SourceError, choice
from weft.options import Options
from weft.runtime.child import Child, ChildError

Judge = Callable[[str, Any], list[Verdict]]  # from a backend and its outputs

ROUNDS = 5
ROUND_SECONDS = 0.2


@dataclass(frozen=True)
class Measurement:
    """One backend on one program; `failure` says why there are no figures.

    `ms` is the median of `rounds_ms`; `compile_seconds` include the first call.
    """

    backend: str
    ms: float | None = None
    compile_seconds: float | None = None
    verdict: Verdict | None = None
    kernels: int | None = None
    externs: tuple[str, ...] = ()
    predicted_us: float | None = None
    rounds_ms: tuple[float, ...] = ()
    peak_bytes: int | None = None
    failure: str | None = None

    @property
    def passed(self) -> bool:
        return self.failure is None and (self.verdict is None or self.verdict.passed)


@dataclass(frozen=True)
class Comparison:
    title: str
    measurements: Mapping[str, Measurement]

    def ratio(self, backend: str, to: str = "eager") -> float | None:
        """How many times as fast as `to` a backend is; None if either has no time."""
        mine, other = self.measurements[backend].ms, self.measurements.get(to)
        return other.ms / mine if mine and other is not None and other.ms else None


class StillChild(Child):
    """Between requests the process stands still: its thread pools would spin on."""

    def ask(self, **request: Any) -> dict[str, Any]:
        self.process.send_signal(signal.SIGCONT)
        try:
            return super().ask(**request)
        finally:
            self.process.send_signal(signal.SIGSTOP)


class Worker(StillChild):
    """A process that holds one backend."""

    def __init__(
        self, backend: str, folder: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        super().__init__("weft.cli.bench_worker", folder / f"{backend}.log", environment)
        self.title = self.backend = backend
        self.outputs = folder / f"{backend}.pt"


class Bench:
    """One worker per backend, which stays while several programs are compared."""

    def __init__(
        self,
        backends: Sequence[str],
        options: Options | None = None,
        environment: Callable[[str], Mapping[str, str]] | None = None,
    ) -> None:
        self.backends = [choice("backend", b, BACKENDS) for b in backends]
        self.environment = environment or (lambda backend: {})
        self.options = replace(options or Options(), verbose=0, profile=False)

    def __enter__(self) -> Bench:
        self.folder = tempfile.TemporaryDirectory(prefix="weft-bench-")
        self.workers = [self.worker(backend) for backend in self.backends]
        return self

    def worker(self, backend: str) -> Worker:
        return Worker(backend, Path(self.folder.name), self.environment(backend))

    def replace_broken(self) -> None:
        """Replaces workers whose process has ended, or has lost its device."""
        for i, worker in enumerate(self.workers):
            if not worker.usable:
                worker.close()
                self.workers[i] = self.worker(worker.backend)

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.close()
        self.folder.cleanup()

    def compare(
        self, spec: SourceSpec, rounds: int = ROUNDS, seconds: float = ROUND_SECONDS
    ) -> Comparison:
        """Loads the program in every worker, checks the results, then times the workers in turn.

        There are `rounds` rounds of `seconds` each. IR text runs on weft alone, and is checked
        against its interpreter. SourceError if the program is on stdin.
        """
        if spec.path == "-":
            raise SourceError("several processes cannot read stdin: --bench needs a file")
        self.replace_broken()
        program = load(spec)
        if isinstance(program, IrText):
            compiled = compile_ir(program, self.options)
            source = text_as_source(program, compiled, spec.seed)
            workers = [w for w in self.workers if w.backend == "weft"]
            judge = partial(judge_text, truth=call(source, compiled.interpret))
        else:
            workers, judge = self.workers, partial(judge_program, truth=expected(program))
        rows = {worker.backend: self.load(worker, spec, judge) for worker in workers}
        times: dict[str, list[float]] = {backend: [] for backend in rows}

        def ask(worker: Worker, **request: Any) -> dict[str, Any]:
            row = rows[worker.backend]
            try:
                return worker.ask(**request) if row.failure is None else {}
            except ChildError as error:
                rows[worker.backend] = replace(row, failure=error.message)
                return {}

        for worker in workers * rounds:
            times[worker.backend] += ask(worker, do="round", seconds=seconds).values()
        for worker in workers:
            peak = ask(worker, do="memory").get("peak_bytes")
            row, found = rows[worker.backend], times[worker.backend]
            if row.failure is None:
                row = replace(row, ms=statistics.median(found), rounds_ms=tuple(found))
                rows[worker.backend] = replace(row, peak_bytes=peak)
        return Comparison(program.title, rows)

    def load(self, worker: Worker, spec: SourceSpec, judge: Judge) -> Measurement:
        try:
            facts = worker.ask(
                do="load",
                backend=worker.backend,
                source=asdict(spec),
                outputs=str(worker.outputs),
                options=asdict(self.options),
            )
        except ChildError as error:
            place = f" at {error.where}" if error.where else ""
            return Measurement(worker.backend, failure=error.message + place)
        out = torch.load(worker.outputs, weights_only=False)
        verdict = worst(judge(worker.backend, out))
        facts["externs"] = tuple(facts.get("externs", ()))
        return Measurement(worker.backend, verdict=verdict, **facts)


def judge_text(backend: str, out: Any, truth: Any) -> list[Verdict]:
    return check_text(out, truth)


def judge_program(backend: str, out: Any, truth: tuple[Any, Any]) -> list[Verdict]:
    """Checks outputs. Those of peers (not PyTorch) may have other strides and structure."""
    eager, reference = truth
    return check(restored(out, eager) if backend in PEERS else out, eager, reference)


def expected(source: Source) -> tuple[Any, Any]:
    """The outputs of eager, and of eager in float64."""
    return run_eager(source), run_reference(source)
