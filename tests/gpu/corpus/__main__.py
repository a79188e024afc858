"""`make corpus`: every program of the corpus, on every core, and a table of what was found.

python -m tests.gpu.corpus --only "softmax" --jobs 2
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed

import torch

from tests.gpu.corpus.checks import Row
from tests.gpu.corpus.table import GROUPS, examined
from weft.cli.output import show, table

COUNTS = ("kernels", "schedules", "partly", "left", "spills", "faults", "misses", "errors")


def run(names: list[tuple[str, str]], jobs: int) -> Iterable[Row]:
    """The rows as they come; the longest programs, those of real sizes, begin first."""
    names = sorted(names, key=lambda n: not GROUPS[n[0]][n[1]].real)
    if jobs == 1:
        yield from (examined(*name) for name in names)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, context, torch.set_num_threads, (1,)) as pool:
        for done in as_completed([pool.submit(examined, *name) for name in names]):
            yield done.result()


def told(row: Row) -> str:
    lines = [f"{row.name} ({row.group}): {failure}" for failure in row.failures[:4]]
    more = len(row.failures) - len(lines)
    lines += [f"{row.name}: {more} more like these"] * (more > 0)
    again = f"python -m tests.gpu.corpus --only '^{re.escape(row.name)}$' runs it alone"
    return "\n".join([*lines, f"    {again}"])


def summary(rows: list[Row], seconds: float) -> None:
    cells = [
        [group, str(len(of)), *(str(sum(getattr(r, c) for r in of)) for c in COUNTS),
         f"{sum(r.seconds for r in of):.0f}"]
        for group in GROUPS
        if (of := [r for r in rows if r.group == group])
    ]  # fmt: skip
    totals = [sum(int(row[i]) for row in cells) for i in range(1, len(COUNTS) + 3)]
    cells.append(["all", *map(str, totals)])
    show(table("GPU corpus", ["group", "programs", *COUNTS, "CPU s"], cells))
    slowest = sorted(rows, key=lambda r: -r.seconds)[:5]
    show("slowest: " + ", ".join(f"{r.name} {r.seconds:.0f} s" for r in slowest))
    failed = sum(bool(r.failures) for r in rows)
    show(f"{len(rows)} programs in {seconds:.0f} s: {f'{failed} FAILED' if failed else 'passed'}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.corpus")
    parser.add_argument("--only", default="", help="a pattern that names or groups match")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found = [
        (group, name)
        for group, programs in GROUPS.items()
        for name in programs
        if re.search(arguments.only, name) or re.search(arguments.only, group)
    ]
    started, rows = time.perf_counter(), list[Row]()
    for row in run(found, arguments.jobs):
        rows.append(row)
        if row.failures:
            print(told(row), flush=True)
        if len(rows) % 50 == 0:
            spent = time.perf_counter() - started
            print(f"{len(rows)} of {len(found)}, {spent:.0f} s", file=sys.stderr, flush=True)
    summary(rows, time.perf_counter() - started)
    return int(any(row.failures for row in rows))


if __name__ == "__main__":
    sys.exit(main())
