"""What test_processes.py runs under torchrun: `worker.py FOLDER CHECK...`, a report each to FOLDER.

A report is {check: error or ""}, of this process. A check that fails in one process may leave
others in a collective: the group's timeout ends them.
"""

from __future__ import annotations

import datetime
import json
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor

import weft
from tests.processes.graphs import COLUMNS, ROWS, random_program
from tests.processes.programs import ALIKE, PROGRAMS, WIDTH

DOORS: dict[str, Callable[[Any], Any]] = {
    "eager": lambda f: f,
    "backend": lambda f: torch.compile(f, backend="weft"),
    "compile": weft.compile,
}
LATE = 0.5  # seconds that one process comes late, while the other goes on


def local(tensor: Any) -> Any:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def results(name: str, door: str, mesh: DeviceMesh) -> list[torch.Tensor | None]:
    """Results of two calls, and the gradients of both together."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    f, parameters = PROGRAMS[name](DOORS[door], mesh)
    torch.manual_seed(1 if name in ALIKE else 1 + dist.get_rank())
    x = torch.randn(2, 4, WIDTH, requires_grad=True)
    found: list[torch.Tensor | None] = []
    for _ in range(2):
        y = local(f(x))
        y.square().sum().backward()
        found.append(y.detach())
    return [*found, x.grad, *(local(p.grad) for p in parameters)]


def close(ours: Any, eager: Any) -> None:
    """None where eager has none; else the error in all is that of sums in another order."""
    assert len(ours) == len(eager)
    for a, b in zip(ours, eager, strict=True):
        assert (a is None) == (b is None)
        if b is not None:
            assert (a.shape, a.dtype, a.stride()) == (b.shape, b.dtype, b.stride())
            error = (a - b).norm() / b.norm().clamp(min=1e-3)
            assert error <= 5e-6, f"relative error {error}"


def check_program(name: str, door: str, mesh: DeviceMesh) -> None:
    close(results(name, door, mesh), results(name, "eager", mesh))


def check_graphs(count: str, start: str, mesh: DeviceMesh) -> None:
    """Random programs, equal to eager's in all processes."""
    torch.manual_seed(dist.get_rank())
    x = torch.randn(ROWS, COLUMNS)
    for seed in range(int(start), int(start) + int(count)):
        program = random_program(seed, dist.get_rank())
        torch._dynamo.reset()
        f = weft.compile(program)
        for given in (x, x.sin()):
            close(f(given), program(given))


def check_late(mesh: DeviceMesh) -> None:
    """What a collective reads is left alone while another process is yet to take part."""

    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = collectives.all_to_all_single(x.sin(), None, None, dist.group.WORLD)
        return y * 2, x.cumsum(0).cumsum(1).cumsum(0)

    x, f = torch.randn(1024, 2048), weft.compile(program)
    eager, _ = program(x), f(x)
    dist.barrier()
    if dist.get_rank() == 1:
        time.sleep(LATE)
    close(f(x), eager)
    steps = [line for line in f.ir("loop").splitlines() if line.startswith(("kernel", "call"))]
    kinds = ["wait" if ".wait_tensor." in s else s.split(" ")[0] for s in steps]
    assert kinds == ["kernel", "call", "kernel", "kernel", "kernel", "wait", "kernel"], kinds


def check_unread(mesh: DeviceMesh) -> None:
    """All take part in a collective, whoever reads what it gives."""
    rank = dist.get_rank()

    def program(x: torch.Tensor) -> torch.Tensor:
        first = collectives.all_reduce(x * 2, "sum", dist.group.WORLD)
        second = collectives.all_gather_tensor(x + rank, 0, dist.group.WORLD)
        return (first, x, second)[rank if rank < 2 else 0] * 3

    x = torch.randn(3, 5) + rank
    close([weft.compile(program)(x)], [program(x)])
    x.requires_grad_()
    ours, eager = (torch.autograd.grad(f(x).sum(), x) for f in (weft.compile(trained), trained))
    close(ours, eager)


def trained(x: torch.Tensor) -> torch.Tensor:
    """One process reads what it gathers, another does not, and has the same gradient."""
    world = dist.group.WORLD
    first = collectives.all_gather_tensor_autograd(x * 2, 0, world)
    own = collectives.all_reduce(x.detach(), "sum", world)
    return x.sin() * (1 + 0 * own if dist.get_rank() == 0 else 1) + 0 * first[:3]


def check_sizes(mesh: DeviceMesh) -> None:
    """One program for all sizes: where memory lies follows from them."""

    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = collectives.all_gather_tensor(x.sin(), 0, dist.group.WORLD)
        z = x.cumsum(0).cumsum(1)
        w = collectives.all_reduce(z, "sum", dist.group.WORLD)
        return y * 2, w + z, x.cos().cumsum(0)

    f = weft.compile(program, dynamic=True)
    for rows in (4, 7, 32, 1, 0, 9):
        x = torch.randn(rows, 5) + dist.get_rank()
        close(f(x), program(x))
    assert len(f.programs) <= 3, len(f.programs)


def check_joined(mesh: DeviceMesh) -> None:
    """Small sums, means and maxima of several dtypes and shapes, in few calls."""

    def program(given: list[torch.Tensor]) -> list[torch.Tensor]:
        found: list[torch.Tensor] = []
        for how in ("sum", "avg", "max"):
            own = given if how != "avg" else given[:2]
            found += [collectives.all_reduce(x * 2, how, dist.group.WORLD) + 1 for x in own]
        return found

    floats = [torch.randn(3, 5), torch.randn(7).T, torch.randn(4, 2).T]
    given = [*floats, torch.arange(6) + dist.get_rank(), torch.randn(2, dtype=torch.float64)]
    f = weft.compile(program, passes="+join_collectives")
    for _ in range(2):
        ours, eager = f(given), program(given)
        close([y.double() for y in ours], [y.double() for y in eager])
    calls = [line for line in f.ir("loop").splitlines() if line.startswith("call")]
    assert sum(".wait_tensor." not in line for line in calls) == 7, calls


CHECKS: dict[str, Callable[..., None]] = {
    "program": check_program,
    "graphs": check_graphs,
    "late": check_late,
    "unread": check_unread,
    "joined": check_joined,
    "sizes": check_sizes,
}


def main(folder: str, *checks: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    report: dict[str, Any] = {}
    for check in checks:
        kind, *given = check.split(":")
        start = time.perf_counter()
        try:
            CHECKS[kind](*given, mesh)
            report[check] = ""
        except Exception:
            report[check] = traceback.format_exc()
        told = report[check] or f"as in eager, {time.perf_counter() - start:.1f} s"
        print(f"process {dist.get_rank()}, {check}: {told}", flush=True)
    Path(folder, f"{dist.get_rank()}.json").write_text(json.dumps(report))
    dist.destroy_process_group()
    sys.exit(any(report.values()))


if __name__ == "__main__":
    main(*sys.argv[1:])
