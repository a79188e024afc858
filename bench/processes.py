"""Programs of two processes on eager, Inductor and weft: `python -m bench.processes [--json PATH]`.

Each backend's call is timed in all processes together, in turns, with one thread each; a time is
the median of what the slowest process took. With --trace FILE, one call of weft goes to torch's
profiler, and what ran between the start of a collective and its wait is told.
"""

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.profiler import ProfilerActivity, profile

import weft
from weft.cli.output import show, table, write_json
from weft.cli.suite_text import machine

BACKENDS: dict[str, Callable[[Any], Any]] = {
    "eager": lambda f: f,
    "inductor": torch.compile,
    "weft": weft.compile,
    "weft joined": partial(weft.compile, passes="+join_collectives"),
}
ROUNDS = 15


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def world() -> dist.ProcessGroup:
    group = dist.group.WORLD
    assert group is not None
    return group


def blocks() -> nn.Module:
    """Four blocks of a feed-forward network, by DTensor: columns, then rows, of the weights."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    made = [parallelize_module(Block(256), mesh, plan) for _ in range(4)]
    return nn.Sequential(*made)


def tensor_parallel(compiled: Callable[[Any], Any]) -> Callable[[], Any]:
    model, x = compiled(blocks()), torch.randn(256, 256)

    def call() -> Tensor:
        with torch.no_grad():
            return model(x)

    return call


def tensor_parallel_step(compiled: Callable[[Any], Any]) -> Callable[[], Any]:
    model = blocks()
    run, x = compiled(model), torch.randn(256, 256)

    def call() -> Tensor:
        model.zero_grad()
        y = run(x)
        y.square().mean().backward()
        return y.detach()

    return call


def overlapped(compiled: Callable[[Any], Any]) -> Callable[[], Any]:
    """Products that a sum over processes does not need, written behind it."""
    x, w, group = torch.randn(512, 512), torch.randn(512, 512) / 512**0.5, world()

    def program(x: Tensor, w: Tensor) -> Tensor:
        total = collectives.all_reduce(x * 2, "sum", group)
        own = torch.tanh(torch.tanh(x @ w) @ w) @ w
        return total + own

    f = compiled(program)
    return lambda: f(x, w)


def many_sums(compiled: Callable[[Any], Any]) -> Callable[[], Any]:
    """The sums of 24 small gradients over processes."""
    given, group = [torch.randn(64, 16 + n) for n in range(24)], world()

    def program(given: list[Tensor]) -> list[Tensor]:
        return [collectives.all_reduce(g * 0.7, "sum", group) - g for g in given]

    f = compiled(program)
    return lambda: f(given)[-1]


def expert_parallel(compiled: Callable[[Any], Any]) -> Callable[[], Any]:
    """A router, an expert in each process, and what both exchange."""
    count, group = dist.get_world_size(), world()
    router, expert, x = nn.Linear(128, count), Block(128), torch.randn(1024, 128)

    def program(x: Tensor) -> Tensor:
        weight, at = router(x).softmax(-1).topk(x.shape[0] // count, dim=0)
        at, weight = at.T.reshape(-1), weight.T.reshape(-1, 1)
        given = collectives.all_to_all_single(x[at], None, None, group)
        back = collectives.all_to_all_single(expert(given), None, None, group)
        return x.index_add(0, at, back * weight)

    f = compiled(program)

    def call() -> Tensor:
        with torch.no_grad():
            return f(x)

    return call


PROGRAMS = (tensor_parallel, tensor_parallel_step, overlapped, many_sums, expert_parallel)


def timed(program: Callable[..., Any]) -> dict[str, float]:
    """Milliseconds of each backend, and how far the results of weft and eager are apart."""
    calls: dict[str, Callable[[], Any]] = {}
    results: dict[str, Tensor] = {}
    for name, compiled in BACKENDS.items():
        torch.compiler.reset()
        torch.manual_seed(0)
        calls[name] = program(compiled)
        results[name] = [calls[name]() for _ in range(3)][-1]
    spent: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            dist.barrier()
            start = time.perf_counter()
            call()
            took = torch.tensor(time.perf_counter() - start)
            dist.all_reduce(took, dist.ReduceOp.MAX)
            spent[name].append(took.item() * 1e3)
    own = [results[name] for name in calls if name.startswith("weft")]
    apart = max(((y - results["eager"]).norm() / results["eager"].norm()).item() for y in own)
    return {**{name: median(ms) for name, ms in spent.items()}, "apart": apart}


def between(path: str) -> str:
    """What ran between the starts of collectives and the waits, of a trace of one call of weft."""
    torch.compiler.reset()
    call = overlapped(weft.compile)
    for _ in range(3):
        call()
    dist.barrier()
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        call()
    seen.export_chrome_trace(path)
    events = sorted(seen.events() or [], key=lambda e: e.time_range.start)
    names = [(e.name, e.time_range.start, e.time_range.end) for e in events]
    begun = next(end for n, _, end in names if n == "_c10d_functional::all_reduce")
    waited = next(start for n, start, _ in names if n == "_c10d_functional::wait_tensor")
    kernels = [(n, b - a) for n, a, b in names if n.startswith("weft::") and begun <= a < waited]
    told = ", ".join(f"{n} {us:.0f} us" for n, us in kernels)
    return f"between start and wait: {told}; {waited - begun:.0f} us in all"


def process(path: str, trace: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=120))
    rows = {program.__name__: timed(program) for program in PROGRAMS}
    told = between(f"{trace}.{dist.get_rank()}" if dist.get_rank() else trace) if trace else ""
    if dist.get_rank() == 0:
        Path(path).write_text(json.dumps({"rows": rows, "told": told}))
    dist.destroy_process_group()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json")
    parser.add_argument("--trace", default="")
    parser.add_argument("--processes", type=int, default=2)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/found.json"
        count = f"--nproc-per-node={chosen.processes}"
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", count]
        command = [*torchrun, "-m", "bench.processes", "--process", path, chosen.trace]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run(command, check=True, timeout=900, env=environment)
        found = json.loads(Path(path).read_text())
    columns = ["program", *BACKENDS, "eager / weft", "inductor / weft", "apart"]
    lines = [
        [
            *(name, *(f"{row[b]:.2f}" for b in BACKENDS)),
            *(f"{row[b] / row['weft']:.2f}" for b in ("eager", "inductor")),
            f"{row['apart']:.0e}",
        ]
        for name, row in found["rows"].items()
    ]
    show(table(f"milliseconds of {chosen.processes} processes", columns, lines))
    if found["told"]:
        print(found["told"])
    if chosen.json is not None:
        told = {"machine": machine(True), "processes": chosen.processes, **found}
        write_json(told, chosen.json)
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--process"]:
        process(*sys.argv[2:])
    else:
        sys.exit(main())
