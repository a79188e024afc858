"""`make corpus`: every program of the corpus, on every core, and a table of what was found.

python -m tests.gpu.corpus --only "softmax" --jobs 2
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from typing import Any

import torch

from tests.gpu.corpus.compilers import hip_checked
from tests.gpu.corpus.row import Row
from tests.gpu.corpus.table import GROUPS, examined
from weft.cli.output import show, table

COUNTS = ("kernels", "schedules", "partly", "left", "spills", "faults", "misses", "errors")
HIP_KERNELS = 48  # that hipcc gets as one text
EVERY = 30  # seconds between two lines of progress
GUESS = 2.0  # seconds of a program of a group that has shown none


def run(names: list[tuple[str, str]], jobs: int) -> Iterable[Row]:
    """The rows as they come, the longest programs first; then what hipcc says of many at a time."""
    context = multiprocessing.get_context("spawn")
    names = sorted(names, key=lambda n: not GROUPS[n[0]][n[1]].real)
    asked, checked = list[Row](), list[tuple[Future[list[Row]], list[Row]]]()
    with ProcessPoolExecutor(jobs, context, torch.set_num_threads, (1,)) as pool:

        def ask_hip() -> None:
            try:
                checked.append((pool.submit(hip_checked, asked[:]), asked[:]))
            except BrokenProcessPool as error:
                checked.append((broken(error), asked[:]))
            asked.clear()

        found = {pool.submit(examined, *name): name for name in names}
        for done in as_completed(found):
            group, name = found[done]
            yield (row := answer(done, Row(name, group)))
            asked.append(row)
            if sum(len(row.hip) for row in asked) >= HIP_KERNELS:
                ask_hip()
        ask_hip()
        for future, rows in checked:
            unknown = [Row(row.name, row.group, spent={"hipcc": 0.0}) for row in rows if row.hip]
            yield from answer(future, unknown)


def answer(future: Future[Any], unknown: Any) -> Any:
    """What a process found, or the rows of `unknown` as errors where processes have ended."""
    try:
        return future.result()
    except BrokenProcessPool:
        for row in unknown if isinstance(unknown, list) else [unknown]:
            row.fail("errors", "no answer: it, or what ran beside or before it, ended the process")
        return unknown


def broken(error: BrokenProcessPool) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(error)
    return future


@dataclass
class Progress:
    """The lines while it runs: what is done, and how long the rest may take."""

    groups: Counter[str]  # programs to come
    jobs: int
    started: float = field(default_factory=time.perf_counter)
    told: float = 0.0
    spent: dict[str, list[float]] = field(default_factory=dict[str, list[float]])

    def add(self, row: Row) -> None:
        self.spent.setdefault(row.group, []).append(row.seconds)
        passed = time.perf_counter() - self.started
        if passed - self.told < EVERY:
            return
        self.told, done = passed, sum(map(len, self.spent.values()))
        used = sum(map(sum, self.spent.values()))
        left = sum(
            (n - len(own)) * (sum(own) / len(own) if own else GUESS)
            for group, n in self.groups.items()
            for own in [self.spent.get(group, [])]
        )
        minutes = left / self.jobs * max(1.0, passed * self.jobs / max(used, 1.0)) / 60
        line = f"{done} of {self.groups.total()} programs, {used:.0f} CPU s in {passed:.0f} s"
        print(f"{line}; about {minutes:.0f} minutes more", file=sys.stderr, flush=True)


def told(row: Row) -> str:
    lines = [f"{row.name} ({row.group}): {failure}" for failure in row.failures[:4]]
    more = len(row.failures) - len(lines)
    lines += [f"{row.name}: {more} more like these"] * (more > 0)
    again = f"python -m tests.gpu.corpus --only '^{re.escape(row.name)}$' runs it alone"
    return "\n".join([*lines, f"    {again}"])


def summary(rows: list[Row], seconds: float) -> None:
    cells = [
        [group, str(len({r.name for r in of})),
         *(str(sum(getattr(r, c) for r in of)) for c in COUNTS),
         f"{sum(r.seconds for r in of):.0f}"]
        for group in GROUPS
        if (of := [r for r in rows if r.group == group])
    ]  # fmt: skip
    totals = [sum(int(row[i]) for row in cells) for i in range(1, len(COUNTS) + 3)]
    cells.append(["all", *map(str, totals)])
    show(table("GPU corpus", ["group", "programs", *COUNTS, "CPU s"], cells))
    phases = Counter[str]()
    for row in rows:
        phases.update(row.spent)
    show("CPU s of " + ", ".join(f"{name} {spent:.0f}" for name, spent in phases.most_common()))
    slowest = sorted(rows, key=lambda r: -r.seconds)[:5]
    show("slowest: " + ", ".join(f"{r.name} {r.seconds:.0f} s" for r in slowest))
    failed = sorted({row.name for row in rows if row.failures})
    count = len({(row.group, row.name) for row in rows if row.group})
    show(f"{count} programs in {seconds:.0f} s: {f'{len(failed)} FAILED' if failed else 'passed'}")
    for name in failed:
        show(f"    {name}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.corpus")
    parser.add_argument("--only", default="", help="a pattern that names or groups match")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    arguments = parser.parse_args()
    found = [
        (group, name)
        for group, programs in GROUPS.items()
        for name in programs
        if re.search(arguments.only, name) or re.search(arguments.only, group)
    ]
    started, rows = time.perf_counter(), list[Row]()
    progress = Progress(Counter(group for group, _ in found), arguments.jobs)
    for row in run(found, arguments.jobs):
        rows.append(row)
        if row.spent.keys() - {"hipcc"}:
            progress.add(row)
        if row.failures:
            print(told(row), flush=True)
    summary(rows, time.perf_counter() - started)
    return int(any(row.failures for row in rows))


if __name__ == "__main__":
    sys.exit(main())
