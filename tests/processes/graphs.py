"""Random programs of collectives, the same in all processes but for what each returns.

f = random_program(7, rank=0)       # f(x) of an x: f32[4,8]
python -m tests.processes.graphs 100       # so many on two processes, each as in eager
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives

ROWS, COLUMNS = 4, 8


def _reduced(how: str) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: collectives.all_reduce(x, how, dist.group.WORLD)


def _gathered(x: torch.Tensor) -> torch.Tensor:
    return collectives.all_gather_tensor(x, 0, dist.group.WORLD)[1 : ROWS + 1]


def _scattered(x: torch.Tensor) -> torch.Tensor:
    count = dist.get_world_size()
    part = collectives.reduce_scatter_tensor(x, "sum", 0, dist.group.WORLD)
    return part.repeat(count, 1)


def _exchanged(x: torch.Tensor) -> torch.Tensor:
    return collectives.all_to_all_single(x, None, None, dist.group.WORLD)


def _sent(x: torch.Tensor) -> torch.Tensor:
    return collectives.broadcast(x, 0, dist.group.WORLD)


def _in_place(x: torch.Tensor) -> torch.Tensor:
    y = x * 0.5
    dist.all_reduce(y)
    return y


MOVES = (_reduced("sum"), _reduced("avg"), _reduced("max"), _gathered, _scattered, _exchanged)
MOVES = (*MOVES, _sent, _in_place)
OWN: tuple[Callable[[torch.Tensor, torch.Tensor], torch.Tensor], ...] = (
    lambda a, b: (a + b).sin(),
    lambda a, b: a * b.cos(),
    lambda a, b: (a @ b.T @ a).tanh(),
    lambda a, b: a.cumsum(0) / 4 + b,
    lambda a, b: a.softmax(1) - b.mean(1, keepdim=True),
    lambda a, b: a.clone().add_(b).tanh(),
)


def random_program(seed: int, rank: int) -> Callable[[torch.Tensor], tuple[torch.Tensor, ...]]:
    """Calls in an order that the seed decides; each process returns some of the results."""
    choose = random.Random(seed)
    calls: list[tuple[int, int, int, int]] = []
    for n in range(1, choose.randint(4, 12)):
        moves = choose.randrange(len(MOVES)) if choose.random() < 0.5 else -1
        reads = (choose.randrange(n), choose.randrange(n))
        calls.append((moves, choose.randrange(len(OWN)), *reads))
    own = random.Random(1000 * seed + rank)
    kept = sorted({own.randrange(len(calls) + 1) for _ in range(3)})

    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values = [x]
        for moves, function, a, b in calls:
            if moves >= 0:
                values.append(MOVES[moves](values[a]))
            else:
                values.append(OWN[function](values[a], values[b]))
        return tuple(values[k] + 0 for k in kept)

    return program


if __name__ == "__main__":
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    with tempfile.TemporaryDirectory() as folder:
        checks = f"graphs:{sys.argv[1]}:0"
        worker = ["-m", "tests.processes.worker", folder, checks]
        sys.exit(subprocess.run([*torchrun, *worker], timeout=1800).returncode)
