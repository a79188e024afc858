"""Runs ONNX's own tests of backends: python -m tests.conformance.onnx [--how compile].

All that the wheel of onnx holds: 1,884 tests of nodes, 23 simple models, 117 that PyTorch exported
(82 and 35), 9 networks with weights that a graph makes. Each runs in a process that may be lost,
with a time limit. The table names every test that fails. Ends with 1 if the figures are below BAR.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rich.console import Console
from rich.table import Table

LIMIT = 600  # seconds of one test
BAR = {"Node": 1750, "Simple": 23, "PyTorchConverted": 82, "PyTorchOperator": 35, "Real": 9}
Row = dict[str, Any]  # of one test: "kind", "name", "state", "problem", "seconds"
STATES = ("native", "extern", "eager", "wrong", "error")


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.onnx", description=__doc__)
    add = parser.add_argument
    add("--how", choices=("eager", "compile"), default="eager", help="torch alone, or weft.compile")
    add("--kinds", default=",".join(BAR))
    add("--only", default="", help="a regular expression of names")
    add("--every", type=int, default=1, help="only each so manieth test")
    add("--jobs", type=int, default=2)
    add("--json", help="a file for one line of JSON of each test; tests in it are not run again")
    add("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def names_of(kinds: Iterable[str]) -> list[tuple[str, str]]:
    """(kind, name) of every test on the CPU."""
    cases = suite(None)
    return [
        (kind, name)
        for kind in kinds
        for name in dir(cases[kind])
        if name.startswith("test_") and name.endswith("_cpu")
    ]


def suite(backend: Any) -> dict[str, Any]:
    """The test cases of onnx by kind; a network's data go to a folder that does not stay."""
    from onnx.backend.test.runner import Runner

    os.environ["ONNX_MODELS"] = tempfile.mkdtemp(prefix="weft-onnx-")
    cases = Runner(backend or Cpu, __name__).test_cases
    return {n.removeprefix("OnnxBackend").removesuffix("ModelTest"): c for n, c in cases.items()}


class Cpu:
    @staticmethod
    def supports_device(device: str) -> bool:
        return device == "CPU"


def backend_of(how: str, made: list[Any]) -> Any:
    """A backend that keeps what it has prepared in `made`."""
    from weft.onnx.backend import Backend

    class Kept(Backend):
        @classmethod
        def prepare(cls, model: Any, device: str = "CPU", **words: Any) -> Any:
            made.append(Backend.prepare(model, device, compile=how == "compile"))
            return made[-1]

    return Kept


def state_of(made: list[Any], how: str) -> tuple[str, str]:
    """Whether kernels alone computed what was right, or ATen's, or parts of it eager torch."""
    import weft

    if how == "eager":
        return "eager", ""
    report = weft.report(made[-1].call)
    externs = sorted({name for name, _, _ in report.externs})
    if report.reasons:
        return "eager", str(report.reasons[0])[:200]
    return ("extern", " ".join(externs)) if externs else ("native", "")


def run(case: Any, name: str, how: str, made: list[Any]) -> Row:
    start = time.perf_counter()
    made.clear()
    try:
        getattr(case(name), name)()
        state, problem = state_of(made, how)
    except AssertionError as error:
        state, problem = "wrong", " ".join(str(error).split())[:300]
    except Exception as error:
        state, problem = "error", " ".join(f"{type(error).__name__}: {error}".split())[:300]
    return {"state": state, "problem": problem, "seconds": round(time.perf_counter() - start, 2)}


def work(how: str) -> None:
    """One process: reads "KIND NAME" lines, and writes a line of JSON for each."""
    warnings.simplefilter("ignore")
    made: list[Any] = []
    cases = suite(backend_of(how, made))
    out, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        kind, name = line.split()
        row = {"kind": kind, "name": name, **run(cases[kind], name, how, made)}
        print(json.dumps(row), file=out, flush=True)


def run_all(
    tests: Iterable[tuple[str, str]], how: str, jobs: int, keep: Callable[[Row], None]
) -> None:
    queue, lock = iter(list(tests)), threading.Lock()

    def take() -> tuple[str, str] | None:
        with lock:
            return next(queue, None)

    def drive() -> None:
        worker: Any = None
        while (test := take()) is not None:
            if worker is None or worker.poll() is not None:
                command = [sys.executable, "-m", "tests.conformance.onnx", "--worker", "--how", how]
                pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
                worker = subprocess.Popen(
                    command, stdin=pipe, stdout=pipe, stderr=nothing, text=True
                )
            timer = threading.Timer(LIMIT, worker.kill)
            timer.start()
            worker.stdin.write(" ".join(test) + "\n")
            worker.stdin.flush()
            line = worker.stdout.readline()
            timer.cancel()
            lost = {
                "state": "error",
                "problem": f"died, or took longer than {LIMIT} s",
                "seconds": 0,
            }
            keep(json.loads(line) if line else {"kind": test[0], "name": test[1], **lost})
            if not line:
                worker.wait()
        if worker is not None:
            worker.stdin.close()

    with ThreadPoolExecutor(jobs) as pool:
        for done in [pool.submit(drive) for _ in range(jobs)]:
            done.result()


def main() -> int:
    given = options()
    if given.worker:
        work(given.how)
        return 0
    rows: list[Row] = []
    if given.json and os.path.exists(given.json):
        with open(given.json) as lines:
            rows = [json.loads(line) for line in lines]
    known = {(row["kind"], row["name"]) for row in rows}
    tests = [t for t in names_of(given.kinds.split(",")) if re.search(given.only, t[1])]
    tests.sort(key=lambda test: zlib.crc32(test[1].encode()))  # what is done so far is a sample
    waiting = [test for test in tests[:: given.every] if test not in known]
    with open(given.json or os.devnull, "a") as out:

        def keep(row: Row) -> None:
            rows.append(row)
            print(json.dumps(row), file=out, flush=True)

        run_all(waiting, given.how, given.jobs, keep)
    return report(rows, Console(), whole=given.every == 1 and not given.only)


def report(rows: list[Row], console: Console, whole: bool) -> int:
    """A table by kind, and every test that fails; 1 if a kind is below its bar."""
    table = Table("kind", "tests", "right", *STATES, "bar", box=None)
    below = False
    for kind in dict.fromkeys(row["kind"] for row in rows):
        counts = Counter(row["state"] for row in rows if row["kind"] == kind)
        right = counts["native"] + counts["extern"] + counts["eager"]
        below = below or right < BAR[kind]
        cells = [counts.total(), right, *(counts[state] for state in STATES), BAR[kind]]
        table.add_row(kind, *map(str, cells))
    console.print(table)
    for row in sorted(rows, key=lambda row: row["name"]):
        if row["state"] in ("wrong", "error"):
            line = f"{row['kind']} {row['name']}: {row['problem'][:160]}"
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    return int(below and whole)


if __name__ == "__main__":
    sys.exit(main())
