"""The pass on whole programs: what it repeats, what it may count on, what it leaves alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import weft
from tests.captures import capture_call
from tests.search.programs import PROGRAMS, TARGET, graph_of, multiply_adds
from weft.core.node import Graph, make, postorder
from weft.core.passes import PassLog
from weft.core.types import TensorType, f32
from weft.frontend.graph import Known
from weft.levels import lower
from weft.options import Options
from weft.scalar.ops import axis
from weft.search import search as module
from weft.search.regions import is_turned
from weft.search.shown import shown
from weft.search.writer import Expression
from weft.tensor.ops import Input, Reduce


class Layer(nn.Module):
    """A gated block after a norm, as decoders have it: nothing is to be found."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.up, self.gate = nn.Linear(width, 2 * width), nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm(x)
        return x + self.down(torch.nn.functional.silu(self.gate(h)) * self.up(h))


def test_equal_layers_are_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []
    real = module.saturate

    def counted(*args) -> int:  # type: ignore[no-untyped-def]
        searched[-1] += 1
        return real(*args)

    monkeypatch.setattr(module, "saturate", counted)
    x = torch.randn(64, 128)
    with torch.no_grad():
        for layers in (3, 9):
            searched.append(0)
            model = nn.Sequential(*(Layer(128) for _ in range(layers)))
            graph = graph_of(model, [x])
            assert graph.outputs == graph_of(model, [x], "off").outputs
    assert searched[0] == searched[1] > 0


def test_a_product_is_one_whether_its_sum_keeps_an_axis_or_not() -> None:
    """A softmax reads it as the sum has it, for the maximum, and as what that is squeezed to."""
    inputs = [torch.randn(256, 256), torch.randn(256, 256), torch.randn(256, 16)]
    graph = graph_of(lambda a, b, c: torch.softmax(a @ b @ c, 1), inputs)
    products, max_and_sum = 2 * 256 * 256 * 16, 2 * 256 * 16
    assert multiply_adds(graph) == products + max_and_sum


def frozen(model: nn.Module, x: torch.Tensor, freeze: bool) -> Graph:
    with torch.no_grad():
        captured = capture_call(model, (x,))
    constants = captured.constants() if freeze else ()
    known = Known(captured.layouts, constants, fused=True)
    return lower(captured.graph, Options(target=TARGET, search="on"), PassLog(), known).made[
        "tensor"
    ]


def test_weights_are_multiplied_only_where_they_are_promised_to_stay() -> None:
    model = nn.Sequential(nn.Linear(512, 512, bias=False), nn.Linear(512, 512)).eval()
    x = torch.randn(64, 512)

    def sums_of_inputs(graph: Graph) -> int:
        """Sums that depend on the input that is no parameter."""
        names = {n for n in graph.inputs if n.type.shape == (64, 512)}
        sums = [n for n in graph.nodes() if isinstance(n.op, Reduce)]
        return sum(not names.isdisjoint(postorder(n)) for n in sums)

    assert [sums_of_inputs(frozen(model, x, f)) for f in (False, True)] == [2, 1]


def test_frozen_weights_may_be_updated() -> None:
    model = nn.Sequential(nn.Linear(512, 512, bias=False), nn.Linear(512, 512)).eval()
    x, f = torch.randn(64, 512), weft.compile(model, search="on", freeze=True)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(f(x), model(x), rtol=1e-4, atol=1e-4)
            model[0].weight.mul_(2)  # type: ignore[operator]


def test_any_size_is_left_alone_as_yet() -> None:
    program = PROGRAMS["A@B@c"]
    f = weft.compile(program.run, search="on", dynamic=True)
    for n in (96, 130):
        a, b, c = torch.randn(n, n), torch.randn(n, n), torch.randn(n)
        exact = a.double() @ b.double() @ c.double()
        torch.testing.assert_close(f(a, b, c).double(), exact, rtol=1e-4, atol=1e-3)


def test_the_other_inputs_of_a_graph_stay() -> None:
    program = PROGRAMS["(q@k')@v"]
    plain, found = (graph_of(program.run, program.inputs(), s) for s in ("off", "deep"))
    assert plain.inputs == found.inputs and all(isinstance(n.op, Input) for n in found.inputs)
    assert multiply_adds(found) < multiply_adds(plain)


def test_what_reads_one_of_several_results_is_left_alone() -> None:
    """A call's results are no tensor by themselves: only what is taken from them has a shape."""
    x = torch.randn(8, 16)
    f = weft.compile(lambda x: torch.linalg.qr(x).Q.sum(-1), search="on", fallback="aten")
    torch.testing.assert_close(f(x), torch.linalg.qr(x).Q.sum(-1))


class Weights(nn.Module):
    """A sum of parameters alone: frozen, all of it is computed once."""

    def __init__(self) -> None:
        super().__init__()
        self.v, self.w = (nn.Parameter(torch.randn(64, 64)) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + (self.v @ self.w).sum(0)


def test_sums_of_constants_alone_cost_nothing() -> None:
    model, x = Weights().eval(), torch.randn(64, 64)
    f = weft.compile(model, search="on", freeze=True, fallback="error")
    with torch.no_grad():
        torch.testing.assert_close(f(x), model(x), rtol=1e-4, atol=1e-4)


def test_numbers_that_no_float_is_may_be_found_again() -> None:
    inputs = [torch.randn(256, 256), torch.randn(256, 256), torch.randn(256, 1)]

    def run(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        return (a @ b / 3) @ c * 0.1

    assert 100 * multiply_adds(graph_of(run, inputs)) < multiply_adds(graph_of(run, inputs, "off"))


def test_a_formula_is_short_however_often_a_part_of_it_is_read() -> None:
    e = Expression("leaf", (make(Input("x", TensorType(f32, (4,)))), (axis("o0_4"),)))
    assert shown(Expression("mul", None, (e, Expression("add", None, (e, e))))) == (
        "x[i] * (x[i] + x[i])"
    )
    for _ in range(60):  # as a tree it has 2 ** 60 leaves
        e = Expression("add", None, (e, e))
    assert shown(e).startswith("x[i] + x[i] + ") and len(shown(e)) < 300


def across(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return (w.mT @ x.mT).mT @ v


def turned(graph: Graph) -> int:
    return sum(map(is_turned, graph.nodes()))


def test_a_product_is_written_as_another_one_reads_it() -> None:
    """By rows, where its sum is in either order the same; eager's strides of results stay."""
    inputs = [torch.randn(4, 256), torch.randn(256, 512), torch.randn(512, 512)]
    assert [turned(graph_of(across, inputs, s)) for s in ("off", "on")] == [1, 0]
    exact = across(*(t.double() for t in inputs))
    found = weft.compile(across, search="on", fallback="error")(*inputs)
    torch.testing.assert_close(found.double(), exact, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    "run",
    [
        lambda x, w, v: torch.relu(x @ w) @ v,
        lambda x, w, v: v @ (w.mT @ x.mT),  # a right factor, which is read along its columns
        lambda x, w, v: (w.mT @ x.mT).mT * x[:, :1],
    ],
)
def test_what_is_read_along_its_rows_is_as_it_was(run: Any) -> None:
    inputs = [torch.randn(4, 256), torch.randn(256, 512), torch.randn(512, 512)]
    plain, found = (graph_of(run, inputs, s) for s in ("off", "on"))
    assert plain.outputs == found.outputs and not turned(plain)
