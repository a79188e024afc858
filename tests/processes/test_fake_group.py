"""A group of 64 of which this process is the only one: shapes and collectives of a large job."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.testing._internal.distributed.fake_pg import FakeStore

import weft
from tests.frontend.entries import ENTRIES, Entry
from tests.processes.programs import expert_parallel, functional, sharded

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
WORLD, WIDTH = 64, 128


@pytest.fixture(scope="module")
def mesh() -> Iterator[DeviceMesh]:
    dist.init_process_group("fake", store=FakeStore(), rank=5, world_size=WORLD)
    yield init_device_mesh("cpu", (WORLD,))
    dist.destroy_process_group()


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_tensor_parallel(entry: Entry, mesh: DeviceMesh) -> None:
    """A collective of the fake group leaves this process's part: results are as in eager."""
    model = nn.Sequential(nn.Linear(8, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 8))
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    assert model[0].weight.to_local().shape == (WIDTH // WORLD, 8)
    with torch.no_grad():
        for p in model.parameters():  # the fake group scatters nothing: they hold what memory held
            p.to_local().normal_()
    x, found = torch.randn(3, 8), list[Any]()
    for f in (entry(model), model):
        model.zero_grad()
        given = x.clone().requires_grad_()
        y = f(given)
        y.square().sum().backward()
        found.append([y.detach(), given.grad, *(p.grad.to_local() for p in model.parameters())])
    ours, eager = found
    for a, b in zip(ours, eager, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("made", [functional, expert_parallel, sharded], ids=lambda f: f.__name__)
def test_shapes(made: Any, mesh: DeviceMesh) -> None:
    """What the fake group gathers has no meaning, but shapes, strides and gradients have."""
    x, shapes = torch.randn(64, 4, 8), list[Any]()
    for door in (weft.compile, lambda f: f):
        f, parameters = made(door, mesh)
        y = f(x)
        y.sum().backward()
        shapes.append([(t.shape, t.stride()) for t in (y, *(p.grad for p in parameters))])
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize("rows", [0, 3])
def test_a_collective_stays_where_what_reads_it_is_a_constant(rows: int, mesh: DeviceMesh) -> None:
    """Another process may have rows of its own, and wait for this one's part."""

    def program(x: torch.Tensor) -> torch.Tensor:
        whole = collectives.all_reduce(x * 2, "sum", mesh)
        return torch.zeros_like(whole[:rows]) + 1

    f = weft.compile(program)
    assert torch.equal(f(torch.ones(4, 4)), torch.ones(rows, 4))
    assert "call _c10d_functional.all_reduce" in f.ir("loop")


def test_equal_collectives_are_two_where_gradients_are_wanted(mesh: DeviceMesh) -> None:
    """Another process may give them two tensors, and calls both."""

    def program(x: torch.Tensor) -> torch.Tensor:
        first, second = (collectives.all_gather_tensor_autograd(x, 0, mesh) for _ in range(2))
        return first.sin() * second

    f = weft.compile(program)
    f(torch.ones(4, 4, requires_grad=True)).sum().backward()
    assert f.ir("loop").count("call _c10d_functional.all_gather_into_tensor") == 2
