"""Tunes a compiled program: its kernels' choices are searched by measuring, and kept.

tune(levels, inputs, "cpu")                     # rows of the database, which then has them
decisions_of(kernel, target)                    # what it has for a kernel, in any program
"""

import logging
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

import torch

from weft.config import config
from weft.core.errors import WeftError
from weft.core.node import Graph
from weft.options import Options, find_target
from weft.runtime.child import Child, ChildError
from weft.scalar.nest import Kernel
from weft.targets.cpu import CPU
from weft.targets.gpu import GPU
from weft.text import print_program
from weft.tune.database import Database, Row, kernel_key, now, program_key
from weft.tune.search import SHARE, Bench, Built, Found, Priced, Schedule, search
from weft.tune.text import write_schedule

Run = Callable[[Sequence[Any]], Sequence[Any]]

logger = logging.getLogger(__name__)

BUSY = 0.7  # of the cores: more that others run makes threads look slow
FUSING = 0.3  # of the time: to search which kernels a program has
LIMIT = 120  # seconds of a request to the child


@dataclass
class Settings:
    """How long a program is tuned, who is told what was found, and all rows so far.

    With a `study` nothing is tuned: it is handed each program's bench and its kernels' names.
    """

    seconds: float = 60.0
    tell: Callable[[str], None] = lambda line: None
    rows: list[Row] = field(default_factory=list[Row])
    study: Callable[[Bench, Sequence[str]], None] | None = None


SETTINGS = ContextVar[Settings]("tuning")


def database() -> Database:
    """That of the cache; `weft cache --clear` and the cache's limit leave it."""
    return _opened(config.cache / "tuned.jsonl")


@cache
def _opened(path: Path) -> Database:
    return Database(path)


def decisions_of(kernel: Kernel | Graph, target: CPU | GPU) -> Mapping[str, str]:
    """What was found for a kernel of the loop level, or a program of the tensor level."""
    if not database().rows():
        return {}
    key = program_key(kernel, target) if isinstance(kernel, Graph) else kernel_key(kernel, target)
    row = database().find(key)
    return row.decisions if row else {}


def digest(options: Options) -> str:
    """Of what the database decides; programs compiled with other decisions are compiled again."""
    return "" if options.tune == "off" or not database().rows() else database().digest()


class Tuned:
    """What runs a program: tuned in the first call, then as `again` makes it."""

    def __init__(self, run: Run, tune: Callable[[Sequence[Any]], Any], again: Callable[[], Any]):
        self.run, self.tune, self.again = run, tune, again
        self.artifact, self.lock, self.done = run.artifact, Lock(), False  # type: ignore[attr-defined]

    def __call__(self, inputs: Sequence[Any]) -> Sequence[Any]:
        if not self.done:
            with self.lock:
                if not self.done:
                    self.tune(inputs)
                    self.run, _ = self.again()
                    made: Any = self.run.artifact  # type: ignore[attr-defined]
                    self.artifact.report, self.artifact.levels = made.report, made.levels
                    self.done = True
        return self.run(inputs)


def tune(
    levels: Any, inputs: Sequence[Any], target: str, again: Callable[[], Any] | None = None
) -> list[Row]:
    """Search the choices of a program for these inputs, in another process.

    First which kernels it has, where `again` makes its levels anew; then those of its kernels. Of
    kernels with one structure one is searched; what the database has is left as it is.
    """
    settings, machine, rows = SETTINGS.get(None) or Settings(), find_target(target), list[Row]()
    if again is not None and settings.study is None:
        rows = _fused(levels, inputs, target, settings)
        levels = again() if any(row.decisions for row in rows) else levels
    first: Sequence[Kernel] = levels.unique.program.kernels
    keys = {k.name: kernel_key(k, machine) for k in first}
    wanted = _untried({name: database().find(key) for name, key in keys.items()})
    if not wanted and not settings.study:
        return rows
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > BUSY * cores:
        settings.tell(f"load {load:.1f} on {cores} cores: a quiet machine may choose otherwise")

    def found(bench: Bench) -> dict[str, Found]:
        if settings.study is None:
            share = 1 - FUSING if rows else 1.0
            return search(bench, wanted, share * settings.seconds, settings.tell)
        settings.study(bench, [*keys])
        return {}

    made = _searched(levels, inputs, {"target": target}, settings, found)
    return rows + _kept(made, keys, target, settings)


def _fused(levels: Any, inputs: Sequence[Any], target: str, settings: Settings) -> list[Row]:
    """Search which kernels a program has: all of it is as one kernel."""
    graph, name = levels.made.get("tensor"), levels.chooser.name
    choices = levels.chooser.program
    if graph is None or not (choices.met or choices.declined):
        return []
    key = program_key(graph, find_target(target))
    row = database().find(key)
    if row is not None and not row.predicted:
        return []
    request = {
        "target": target,
        "constants": [*levels.known.constants],
        "ordered": levels.known.ordered,
        "tune": "cached" if row is None else "off",
    }
    seconds = FUSING * settings.seconds
    found = _searched(
        levels,
        inputs,
        request,
        settings,
        lambda bench: search(bench, [name], seconds, settings.tell, width=1),
        print_program(graph),
    )
    return _kept(found, {name: key}, target, settings, whole=True)


def _searched(
    levels: Any,
    inputs: Sequence[Any],
    request: Mapping[str, Any],
    settings: Settings,
    search: Callable[[Bench], dict[str, Found]],
    graph: str = "",
) -> dict[str, Found]:
    """What a search finds with a bench of its own; nothing, and a warning, where that fails."""
    text, known = print_program(levels.made["loop"]), levels.known
    request = {**request, "narrows": known.narrows}
    with tempfile.TemporaryDirectory(prefix="weft-tune-") as folder:
        if graph:
            request["graph"] = str(Path(folder, "graph.txt"))
            Path(folder, "graph.txt").write_text(graph)
        try:
            with closing(_Bench(Path(folder), text, inputs, request, settings.tell)) as bench:
                return search(bench)
        except WeftError as error:  # the program runs as it is
            if settings.study is not None:
                raise
            logger.warning("%s is not tuned: %s", levels.made["loop"].name, error)
            settings.tell(f"not tuned: {error}")
            return {}


def _kept(
    found: Mapping[str, Found],
    keys: Mapping[str, str],
    target: str,
    settings: Settings,
    whole: bool = False,
) -> list[Row]:
    rows = [
        Row(keys[name], name, target, dict(f.decisions), f.default_us, f.us, f.tried, now(),
            small=f.small, whole=whole)
        for name, f in found.items()
    ]  # fmt: skip
    database().add(rows)
    settings.rows += rows
    return rows


def _untried(rows: Mapping[str, Row | None]) -> list[str]:
    """Kernels that were never measured, or that took little of another program and much of this."""
    known = {name: None if row and row.predicted else row for name, row in rows.items()}
    total = sum(row.default_us for row in known.values() if row)
    return [
        name
        for name, row in known.items()
        if row is None or (row.small and row.default_us >= SHARE * total)
    ]


class _Bench:
    """Builds and times candidates in a child process; one that ends it, or hangs, is left out."""

    def __init__(
        self,
        folder: Path,
        text: str,
        inputs: Sequence[Any],
        request: Mapping[str, Any],
        tell: Callable[[str], None],
    ) -> None:
        self.folder, self.tell = folder, tell
        (folder / "program.txt").write_text(text)
        given = [t.detach() if isinstance(t, torch.Tensor) else t for t in inputs]
        torch.save(given, folder / "inputs.pt")
        files = {"program": str(folder / "program.txt"), "inputs": str(folder / "inputs.pt")}
        self.request = {**files, **request}
        self.schedules: list[Schedule] = []  # of each number
        self.child = self.started()

    def started(self) -> Child:
        child = Child("weft.tune.worker", self.folder / "log", limit=LIMIT)
        child.ask(do="load", **self.request)
        self.now: dict[int, int] = {}  # what a number is in this child
        return child

    def close(self) -> None:
        if self.child.usable:
            self.child.close()

    def price(self, schedules: Sequence[Schedule]) -> list[Priced | None]:
        texts, kernels = [*map(write_schedule, schedules)], [[*s] for s in schedules]
        try:
            reply = self.child.ask(do="price", schedules=texts, kernels=kernels)
        except ChildError as error:
            self.tell(f"no price, and please report it: {error}, by\n{''.join(texts)}")
            if not self.child.usable:
                self.restart()
            return [None] * len(schedules)
        fields = Priced._fields
        return [Priced(*map(row.get, fields)) if "prices" in row else None for row in reply["rows"]]

    def build(self, schedules: Sequence[Schedule]) -> list[Built | None]:
        try:
            return self.built(schedules)
        except ChildError:
            if len(schedules) == 1:
                self.restart()
                return [None]
            self.restart()
            return [self.build([one])[0] for one in schedules]

    def restart(self) -> None:
        """Another child, which has the default: all results are compared with that."""
        self.close()
        self.child = self.started()
        if self.schedules:
            self.renew([0])

    def built(self, schedules: Sequence[Schedule]) -> list[Built | None]:
        reply = self.child.ask(do="build", schedules=[*map(write_schedule, schedules)])
        found: list[Built | None] = []
        for row, schedule in zip(reply["rows"], schedules, strict=True):
            if "number" not in row:
                if "wrong" in row:
                    lines = write_schedule(schedule)
                    self.tell(f"left out, and please report it: {row['wrong']}, by\n{lines}")
                found.append(None)
                continue
            self.schedules.append(schedule)
            self.now[len(self.schedules) - 1] = row["number"]
            found.append(Built(len(self.schedules) - 1, row["texts"], row["met"]))
        return found

    def renew(self, numbers: Sequence[int]) -> None:
        """Build again what a child before this one had."""
        for number in dict.fromkeys(n for n in numbers if n not in self.now):
            text = write_schedule(self.schedules[number])
            (row,) = self.child.ask(do="build", schedules=[text])["rows"]
            self.now[number] = row["number"]

    def times(self, numbers: Sequence[int]) -> list[dict[str, float]]:
        self.renew(numbers)
        reply = self.child.ask(do="times", numbers=[self.now[n] for n in numbers])
        return reply["rows"]
