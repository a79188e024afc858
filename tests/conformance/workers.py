"""Processes that run operators, given out one by one: an operator may crash, or never end."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch

from tests.conformance.cases import DTYPES, operators, run_case

LIMIT = 1800  # seconds of one operator in one dtype
OPERATORS = 50  # of one process: what it loads stays mapped

Row = dict[str, Any]  # of one operator and dtype: "op", "dtype", "counts", "bad", "seconds"


@dataclass(frozen=True)
class Plan:
    """What is run of each operator; `samples` is how many of each dtype, 0 for all."""

    dtypes: Sequence[str]
    entries: Sequence[str]
    samples: int = 0


def run_operator(op: Any, dtype: str, plan: Plan) -> Row:
    start = time.perf_counter()
    try:
        runs = [*run_case(op, DTYPES[dtype], plan.entries, plan.samples)]
    except Exception as error:  # torch could not make the samples
        runs = [(-1, "", f"skip: {type(error).__name__} while sampling")]
    counts = Counter(problem.split(":")[0] or "right" for _, _, problem in runs)
    bad = [run for run in runs if run[2].startswith(("wrong", "error"))]
    seconds = round(time.perf_counter() - start, 1)
    return {"op": "", "dtype": dtype, "counts": counts, "bad": bad, "seconds": seconds}


def work(plan: Plan) -> None:
    """One process: reads names of operators, writes a line of JSON for each dtype, then "done"."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    table = operators()
    for line in sys.stdin:
        name = line.strip()
        for dtype in plan.dtypes:
            row = run_operator(table[name], dtype, plan) | {"op": name}
            print(json.dumps(row), flush=True)
        print("done", flush=True)


def run_all(names: Iterable[str], plan: Plan, jobs: int, keep: Callable[[Row], None]) -> None:
    """Every operator, in `jobs` processes; `keep` gets each row as it comes."""
    queue, lock = iter(list(names)), threading.Lock()

    def take() -> str | None:
        with lock:
            return next(queue, None)

    def drive() -> None:
        worker: Any = None
        for number in itertools.count():
            name = take()
            if name is None:
                break
            if number % OPERATORS == 0 and worker is not None:
                worker.stdin.close()
                worker.wait()
            worker = worker if worker is not None and worker.poll() is None else start(plan)
            finished = False
            for row in rows_of(worker, name):
                finished = row is None
                if row is not None:
                    keep(row)
            if not finished:
                worker.kill()
                worker.wait()  # else it may be taken for alive
                bad = [(-1, "", f"error: the process died, or took longer than {LIMIT} s")]
                counts = {"error": 1}
                keep({"op": name, "dtype": "all", "counts": counts, "bad": bad, "seconds": 0})
        if worker is not None:
            worker.stdin.close()

    with ThreadPoolExecutor(jobs) as pool:
        for done in [pool.submit(drive) for _ in range(jobs)]:
            done.result()


def start(plan: Plan) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.conformance", "--worker"]
    command += ["--dtypes", ",".join(plan.dtypes), "--entries", ",".join(plan.entries)]
    command += ["--samples", str(plan.samples)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "WEFT_DEBUG": "1"}
    pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
    return subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=nothing, text=True, env=environment
    )


def _limit(worker: subprocess.Popen[str]) -> threading.Timer:
    timer = threading.Timer(LIMIT, worker.kill)
    timer.start()
    return timer


def rows_of(worker: subprocess.Popen[str], name: str) -> Iterable[Row | None]:
    """What the worker says of an operator; None at its end, unless it dies or takes too long."""
    assert worker.stdin is not None and worker.stdout is not None
    timer = _limit(worker)
    try:
        worker.stdin.write(f"{name}\n")
        worker.stdin.flush()
        for line in iter(worker.stdout.readline, ""):
            if line == "done\n":
                yield None
                return
            if line.startswith("{"):
                timer.cancel()
                timer = _limit(worker)
                yield json.loads(line)
    except BrokenPipeError:  # it has died meanwhile
        return
    finally:
        timer.cancel()
