"""Seconds to compile against the size of a program: `python -m bench.compile_time`.

python -m bench.compile_time --only siblings --json bench/results/compile-time.json
Each row is a fresh process with an empty cache: capture, every level, the C compiler, one call,
checked against eager. Where the machine is shared, CPU seconds tell more than the clock.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import weft
from bench.decoder import decoder
from bench.families import difference
from weft.cli.output import show, table, write_json
from weft.cli.suite_text import machine

COLUMNS = {
    "program": "program", "n": "n", "wall_seconds": "wall s", "cpu_seconds": "CPU s",
    "compiler_cpu_seconds": "of it the C compiler", "kernels": "kernels",
    "functions": "C functions",
}  # fmt: skip
LIMIT = 20.0  # CPU seconds of the largest size of each
ERROR = 1e-4  # the largest relative difference to eager that passes: 48 layers in float32

Made = tuple[Callable[..., Any], torch.Tensor]


def siblings(n: int) -> Made:
    return lambda x: [x + i for i in range(n)], torch.randn(1024)


def chain(n: int) -> Made:
    def run(x: torch.Tensor) -> torch.Tensor:
        for i in range(n):
            x = torch.sin(x) if i % 2 else x + 0.5
        return x

    return run, torch.randn(1024)


def layers(n: int) -> Made:
    return decoder(256, n, words=1000), torch.randint(0, 1000, (1, 64))


def lstm(n: int) -> Made:
    """Unrolled, as on a machine without oneDNN's own kernel: that would be one library call."""
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    return nn.LSTM(64, 64).eval(), torch.randn(n, 1, 64)


PROGRAMS: dict[str, tuple[Callable[[int], Made], tuple[int, ...]]] = {
    "siblings": (siblings, (10, 30, 100, 300, 1000)),
    "chain": (chain, (50, 500, 1500, 5000)),
    "decoder layers": (layers, (4, 12, 24, 48)),
    "LSTM steps": (lstm, (32, 128, 256, 512)),
}


def cpu_seconds() -> tuple[float, float]:
    """Of this process, and of the compilers that it has run."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time(), children.ru_utime + children.ru_stime


def measure(name: str, n: int) -> dict[str, Any]:
    """One compilation and call, in this process, which has made none before."""
    torch.manual_seed(0)
    run, x = PROGRAMS[name][0](n)
    own, others = cpu_seconds()
    start = time.perf_counter()
    with torch.no_grad():
        compiled = weft.compile(run)
        got = compiled(x)
        wall = time.perf_counter() - start
        own_after, others_after = cpu_seconds()
        error = difference(got, run(x))
    kernels = compiled.report.kernels
    return {
        "program": name, "n": n, "wall_seconds": round(wall, 2),
        "cpu_seconds": round(own_after - own + others_after - others, 2),
        "compiler_cpu_seconds": round(others_after - others, 2), "kernels": len(kernels),
        "functions": len({k.symbol for k in kernels}), "externs": len(compiled.report.externs),
        "stages": {stage: round(s, 2) for stage, s in compiled.report.seconds.items()},
        "error": error,
    }  # fmt: skip


def apart(name: str, n: int) -> dict[str, Any]:
    """The same in a process of its own, whose cache is empty."""
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, "-m", "bench.compile_time", "--one", name, str(n)]
        environment = {**os.environ, "WEFT_CACHE": cache}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{name} {n}: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.compile_time", description=__doc__)
    parser.add_argument("--only", choices=PROGRAMS)
    parser.add_argument("--json", help="write the rows, the machine and the commit here")
    parser.add_argument("--one", nargs=2, metavar=("PROGRAM", "N"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one[0], int(options.one[1]))))
        return 0
    facts, rows, passed = machine(on_cpu=True), list[dict[str, Any]](), True
    load = round(os.getloadavg()[0], 1)
    for name in [options.only] if options.only else PROGRAMS:
        for n in PROGRAMS[name][1]:
            print(f"{name} {n}", file=sys.stderr, flush=True)
            rows.append(apart(name, n))
        passed &= rows[-1]["cpu_seconds"] < LIMIT and rows[-1]["error"] < ERROR
    where = f"{facts['cpu']}, {facts['processors']} processors, load {load}"
    cells = [[str(row[key]) for key in COLUMNS] for row in rows]
    show(table(f"cold compile time; {where}", list(COLUMNS.values()), cells))
    if options.json:
        write_json({"machine": facts, "load": load, "rows": rows}, options.json)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
