"""Tensor subclasses and opaque objects go through: what their parts take part in is compiled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.testing._internal.two_tensor import TwoTensor

import weft
from tests.frontend.entries import Entry, assert_same
from tests.frontend.frontend_programs import interpret
from weft.frontend.specialise import GraphProgram

# of Dynamo, about a builtin of torch.distributed
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def mesh() -> Iterator[DeviceMesh]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


@pytest.mark.parametrize("grad", [False, True], ids=["inference", "training"])
def test_a_wrapper_of_two_tensors(entry: Entry, grad: bool) -> None:
    def program(a: Any, b: torch.Tensor) -> Any:
        return (a * b).sin() + 1

    f = entry(program)
    a, b = TwoTensor(torch.randn(3), torch.randn(3)), torch.randn(3, requires_grad=grad)
    for _ in range(2):
        ours, eager = f(a, b), program(a, b)
        assert type(ours) is TwoTensor
        assert_same((ours.a.detach(), ours.b.detach()), (eager.a.detach(), eager.b.detach()))
        assert ours.requires_grad == grad
    assert entry is not weft.compile or f.reasons == []


def test_a_subclass_with_behaviour_of_its_own(entry: Entry) -> None:
    class Counted(torch.Tensor):
        pass

    f, x = entry(lambda x: x * 2 + 1), torch.randn(3)
    for _ in range(2):
        ours = f(x.as_subclass(Counted))
        assert type(ours) is Counted
        assert_same(ours.as_subclass(torch.Tensor), x * 2 + 1)


def test_a_distributed_tensor(entry: Entry, mesh: DeviceMesh) -> None:
    def program(d: Any) -> Any:
        return (d * 2 + 1).softmax(1).relu()

    f, d = entry(program), distribute_tensor(torch.randn(4, 3), mesh, [Shard(0)])
    for _ in range(2):
        ours, eager = f(d), program(d)
        assert type(ours) is DTensor and ours.placements == eager.placements
        assert_same(ours.to_local(), eager.to_local())
    assert entry is not weft.compile or (f.reasons == [] and len(f.programs) == 1)


def test_a_mesh_as_an_argument(entry: Entry, mesh: DeviceMesh) -> None:
    def program(x: torch.Tensor, mesh: DeviceMesh) -> torch.Tensor:
        d = DTensor.from_local((x * 2).sin(), mesh, [Shard(0)])
        return d.redistribute(mesh, [Replicate()]).to_local() + 1

    f, x = entry(program), torch.randn(4, 3)
    for _ in range(2):
        assert_same(f(x, mesh), program(x, mesh))
    if entry is weft.compile:  # what stands before and after the distributed calls is compiled
        assert len(f.programs) == 2 and "DeviceMesh" in f.reasons[0]


def test_a_graph_that_returns_an_attribute() -> None:
    """Such a graph is not taken apart: split_module has no place for what no step reads."""
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    shown = graph.call_method("tolist", (graph.call_method("sin", (x,)),))
    graph.output((shown, graph.get_attr("scale")))
    module = torch.fx.GraphModule({"scale": torch.ones(2)}, graph)
    program = GraphProgram(module, interpret.session("graph"))
    values, scale = program(torch.zeros(3))
    assert values == [0.0] * 3 and scale is module.scale
