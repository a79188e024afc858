"""What test_parallel.py runs under torchrun: `two_processes.py FOLDER`."""

from __future__ import annotations

import sys

import torch
from torch import distributed as dist

from tests.train.work import batches, eager, loss, network
from weft import compile
from weft.train import State, Step, load, optimisers, run, schedules


def started(spread: float, compile) -> Step:
    model = network(spread, norm=False)
    with torch.no_grad():
        model[0].bias += dist.get_rank()  # parameters become those of the first process
    state = State(model, optimisers.clip(optimisers.adam(), 1.0))
    return Step(loss, state, schedules.constant(0.01), compile=compile)


def losses(step: Step, until: int, path: str | None = None) -> list[float]:
    return [value.item() for _, value in run(step, batches, until, path)]


def main(folder: str) -> None:
    dist.init_process_group("gloo")
    plain = started(0.0, compile)
    found = losses(plain, 4)
    spread, path = started(0.5, eager), f"{folder}/run.safetensors"
    losses(spread, 3, path)
    wanted, draws = losses(spread, 6), torch.rand(3)
    again = started(0.5, eager)
    load(path, again.state)
    assert losses(again, 6) == wanted and torch.equal(torch.rand(3), draws)
    assert again.state.place == 12
    result = found, plain.state.tensors(), spread.state.tensors(), draws
    torch.save(result, f"{folder}/{dist.get_rank()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
