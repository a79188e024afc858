"""Programs of several processes, each as (a callable, its parameters) through a door into weft."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

Door = Callable[[Any], Any]
Made = tuple[Callable[[torch.Tensor], Any], list[nn.Parameter]]

WIDTH, HIDDEN = 8, 16


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, HIDDEN)
        self.down = nn.Linear(HIDDEN, WIDTH)

    def forward(self, x: Any) -> Any:
        return x + self.down(torch.relu(self.up(self.norm(x))))


def tensor_parallel(door: Door, mesh: DeviceMesh) -> Made:
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    block = parallelize_module(Block(), mesh, plan)
    return door(block), [*block.parameters()]


def sequence_parallel(door: Door, mesh: DeviceMesh) -> Made:
    block = nn.Sequential(Block())
    plan = {
        "0": PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Shard(1)),
        "0.norm": SequenceParallel(),
        "0.up": ColwiseParallel(input_layouts=Shard(1)),
        "0.down": RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
    }
    block = parallelize_module(block, mesh, plan)
    return door(block), [*block.parameters()]


def data_parallel(door: Door, mesh: DeviceMesh) -> Made:
    block = DistributedDataParallel(Block())
    return door(block), [*block.parameters()]


def sharded(door: Door, mesh: DeviceMesh) -> Made:
    """FSDP2."""
    model = nn.Sequential(Block(), Block())
    for block in model:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return door(model), [*model.parameters()]


def pipeline(door: Door, mesh: DeviceMesh) -> Made:
    rank, count = dist.get_rank(), dist.get_world_size()
    own = [Block() for _ in range(count)][rank]
    stage = PipelineStage(door(own), rank, count, torch.device("cpu"))

    def loss(y: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (y - target).square().sum()

    schedule = ScheduleGPipe(stage, 2, loss_fn=loss)

    def run(x: torch.Tensor) -> torch.Tensor:
        given = (x.detach(),) if rank == 0 else ()
        target = {"target": torch.zeros_like(x)} if rank == count - 1 else {}
        y = schedule.step(*given, **target)
        return x * 0 if y is None else y.detach() + x * 0

    return run, [*own.parameters()]


def expert_parallel(door: Door, mesh: DeviceMesh) -> Made:
    """Each process has an expert; each expert takes so many tokens of every process."""
    count, world = dist.get_world_size(), dist.group.WORLD
    router, expert = nn.Linear(WIDTH, count), Block()

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.router, self.expert = router, expert

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            tokens = x.reshape(-1, WIDTH)
            scores = self.router(tokens).softmax(-1)
            weight, at = scores.topk(tokens.shape[0] // count, dim=0)
            at, weight = at.T.reshape(-1), weight.T.reshape(-1, 1)
            given = collectives.all_to_all_single_autograd(tokens[at], None, None, world)
            made = self.expert(given)
            back = collectives.all_to_all_single_autograd(made, None, None, world)
            return tokens.index_add(0, at, back * weight).reshape(x.shape)

    layer = Layer()
    return door(layer), [*layer.parameters()]


def functional(door: Door, mesh: DeviceMesh) -> Made:
    """Collectives with gradients, by themselves."""
    weight, world = nn.Parameter(torch.randn(WIDTH, WIDTH)), dist.group.WORLD

    def program(x: torch.Tensor) -> torch.Tensor:
        rows = (x @ weight).reshape(-1, WIDTH)
        a = collectives.all_gather_tensor_autograd(rows, 0, world)
        b = collectives.reduce_scatter_tensor_autograd(a.sin(), "sum", 0, world)
        c = collectives.all_to_all_single_autograd(b, None, None, world)
        return c.cos() * rows

    return door(program), [weight]


def in_place(door: Door, mesh: DeviceMesh) -> Made:
    """What Dynamo makes functional, and collectives without gradients."""

    def program(x: torch.Tensor) -> torch.Tensor:
        y = x.detach().sin()
        dist.all_reduce(y)
        z = collectives.all_reduce(x.detach().T * 2, "avg", dist.group.WORLD).T
        return x * y + z + collectives.broadcast(x.detach() + 1, 0, dist.group.WORLD)

    return door(program), []


def redistributed(door: Door, mesh: DeviceMesh) -> Made:
    """Placements that change; where rows do not divide evenly, each process has other shapes."""
    weight = nn.Parameter(torch.randn(WIDTH, WIDTH))

    def program(x: torch.Tensor) -> torch.Tensor:
        rows = x.reshape(-1, WIDTH)[:7] @ weight
        whole = DTensor.from_local(rows, mesh, [Replicate()], run_check=False)
        split = whole.redistribute(mesh, [Shard(0)]).sin()
        return (split.redistribute(mesh, [Shard(1)]) * 2).full_tensor()

    return door(program), [weight]


def given_a_mesh(door: Door, mesh: DeviceMesh) -> Made:
    def program(x: torch.Tensor, mesh: DeviceMesh) -> torch.Tensor:
        own = DTensor.from_local((x * 2).sin(), mesh, [Shard(0)], run_check=False)
        return own.redistribute(mesh, [Replicate()]).to_local() + 1

    f = door(program)
    return lambda x: f(x, mesh), []


PROGRAMS: dict[str, Callable[[Door, DeviceMesh], Made]] = {
    f.__name__: f
    for f in (
        *(tensor_parallel, sequence_parallel, data_parallel, sharded, pipeline, expert_parallel),
        *(functional, in_place, redistributed, given_a_mesh),
    )
}
ALIKE = {"tensor_parallel", "sequence_parallel", "pipeline", "redistributed"}  # the same x for all
