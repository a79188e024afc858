"""Steps of optimisers alone: `python -m bench.optimisers [--json FILE]`, of torch's fused AdamW.

Gradients are given. Each backend has a process of its own and one thread; rounds take turns, and
times are of the CPU. `kernels` are those of weft's program.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import weft
from bench.train import in_turns, mean_ms
from weft.cli.bench_worker import first_line
from weft.cli.output import milliseconds, show, table, write_json
from weft.cli.suite_text import machine
from weft.runtime.child import Child, answer

BACKENDS = ("fused", "inductor", "weft")
ROLE = "WEFT_OPTIMISER_BACKEND"  # of a child
STEPS: dict[str, tuple[type[torch.optim.Optimizer], list[tuple[int, ...]]]] = {
    "AdamW, 7 million in 13": (torch.optim.AdamW, [(1024, 1024), (1024,)] * 6 + [(708, 1000)]),
    "AdamW, 200 of 64": (torch.optim.AdamW, [(64,)] * 200),
    "AdamW, 200 of 64 to 263": (torch.optim.AdamW, [(64 + i,) for i in range(200)]),
    "SGD, 200 of 64": (torch.optim.SGD, [(64,)] * 200),
}


class Session:
    """An optimiser whose steps are timed (runtime/child.py)."""

    def __init__(self, backend: str) -> None:
        torch.set_num_threads(1)
        self.backend = backend
        self.step: Callable[[], Any] = list

    def begin(self, name: str) -> dict[str, Any]:
        torch.compiler.reset()
        torch.manual_seed(0)
        kind, sizes = STEPS[name]
        params = [torch.nn.Parameter(torch.randn(s)) for s in sizes]
        for p in params:
            p.grad = torch.randn(p.shape)
        made = kind(params, lr=1e-3, fused=self.backend == "fused" or None)  # type: ignore[call-arg]
        step: Any = made.step
        if self.backend == "inductor":
            step = torch.compile(made.step)
        elif self.backend == "weft":
            step = weft.compile(made.step)
        for _ in range(3):
            step()
        self.step = step
        kernels = len(step.report.kernels) if self.backend == "weft" else None
        return {"sum": sum(p.double().sum().item() for p in params), "kernels": kernels}

    def round(self) -> dict[str, float]:
        return {"ms": mean_ms(self.step, time.process_time)}


def measured(children: dict[str, Child], name: str) -> dict[str, Any]:
    rows = {backend: child.ask(do="begin", name=name) for backend, child in children.items()}
    in_turns(children, rows)
    return rows


def shown(name: str, rows: dict[str, Any]) -> list[str]:
    times = [rows[b]["ms"] for b in BACKENDS]
    apart = max(abs(rows[b]["sum"] / rows["fused"]["sum"] - 1) for b in BACKENDS)
    ratios = (f"{t / times[-1]:.2f}" for t in times[:-1])
    return [name, *map(milliseconds, times), *ratios, str(rows["weft"]["kernels"]), f"{apart:.0e}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as logs:
        children = {
            b: Child("bench.optimisers", Path(logs) / b, {ROLE: b}, 600.0) for b in BACKENDS
        }
        found = {name: measured(children, name) for name in STEPS}
        for child in children.values():
            child.close()
    columns = ["step", *BACKENDS, "fused / weft", "inductor / weft", "kernels", "sums apart"]
    show(table("milliseconds of one thread", columns, [shown(n, r) for n, r in found.items()]))
    if chosen.json is not None:
        write_json({"machine": machine(True), "rows": found}, chosen.json)
    return 0


if __name__ == "__main__":
    if ROLE in os.environ:
        answer(Session(os.environ[ROLE]), first_line)
    else:
        sys.exit(main())
