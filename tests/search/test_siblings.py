"""Products of one tensor with constants: which become one, and that values stay those of eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import weft
from tests.captures import capture_call
from tests.search.programs import TARGET
from weft.core.node import Graph, op_of, postorder
from weft.core.passes import PassLog
from weft.frontend.graph import Known
from weft.interpret.tensors import evaluate, to_numpy
from weft.levels import lower
from weft.options import Options
from weft.search import siblings
from weft.search.search import kept_once
from weft.targets.cpu import CPUS
from weft.tensor.fuse import partition
from weft.tensor.ops import Input, Reduce
from weft.tensor.verify import verify
from weft.tile.price.hints import price_for

Shape = tuple[int, ...]


class Form(NamedTuple):
    """A function of tensors, those in capitals constants, and its sums of x before and after."""

    run: Callable[..., Any]
    shapes: dict[str, Shape]
    sums: tuple[int, int]


def heads(x: torch.Tensor, V: torch.Tensor, W: torch.Tensor) -> Any:
    return torch.einsum("td,hde->hte", x, V), torch.einsum("td,hde->hte", x, W)


def read_by_others(x: torch.Tensor, V: torch.Tensor, W: torch.Tensor) -> Any:
    """One result is a result of the program too, and the other is read by a third product."""
    y = x @ V
    return y, F.relu(x @ W) @ y.mT


def branches(x: torch.Tensor, V: torch.Tensor, W: torch.Tensor, B: torch.Tensor) -> Any:
    return F.conv2d(x, V, padding=1), F.conv2d(x, W, B, padding=1)


def layers(x: torch.Tensor, V: torch.Tensor, W: torch.Tensor, U: torch.Tensor) -> torch.Tensor:
    """Families that read each other."""
    for _ in range(2):
        x = (torch.sigmoid(x @ V) * (x @ W)) @ U
    return x


JOINED = {
    "unequal columns": Form(
        lambda x, V, W: (x @ V, x @ W), {"x": (3, 7), "V": (7, 5), "W": (7, 2)}, (2, 1)
    ),
    "linear, bias": Form(
        lambda x, V, W, B: (F.linear(x, V, B), F.linear(x, W)),
        {"x": (2, 3, 7), "V": (5, 7), "W": (4, 7), "B": (5,)}, (2, 1),
    ),
    "weights of both layouts": Form(
        lambda x, V, W, U: (x @ V, F.linear(x, W), (U.mT @ x.mT).mT),
        {"x": (3, 7), "V": (7, 5), "W": (5, 7), "U": (7, 3)}, (3, 1),
    ),
    "from the left": Form(
        lambda x, V, W: (x.mT @ V, W @ x), {"x": (7, 3), "V": (7, 5), "W": (4, 7)}, (2, 1)
    ),
    "a view": Form(
        lambda x, V, W: (x[1:, 2:].mT @ V, x[1:, 2:].mT @ W),
        {"x": (8, 6), "V": (7, 5), "W": (7, 6)}, (2, 1),
    ),
    "parts of one weight": Form(
        lambda x, W: (x @ W[:, 3:], x @ W[:, :3], x @ W[:, ::2]), {"x": (3, 7), "W": (7, 8)}, (3, 1)
    ),
    "weights that are computed": Form(
        lambda x, V, W: (x @ (V * 2 + 1), x @ W.sigmoid()),
        {"x": (3, 7), "V": (7, 5), "W": (7, 5)}, (2, 1),
    ),
    "a weight for each head": Form(
        heads, {"x": (3, 7), "V": (4, 7, 5), "W": (4, 7, 2)}, (2, 1)
    ),
    "heads": Form(heads, {"x": (3, 7), "V": (4, 7, 5), "W": (2, 7, 5)}, (2, 1)),
    "batched": Form(
        lambda x, V, W: (x @ V, x @ W), {"x": (4, 3, 7), "V": (4, 7, 5), "W": (4, 7, 2)}, (2, 1)
    ),
    "a result": Form(read_by_others, {"x": (3, 7), "V": (7, 5), "W": (7, 5)}, (3, 2)),
    "convolutions": Form(
        branches, {"x": (1, 3, 6, 5), "V": (4, 3, 3, 3), "W": (2, 3, 3, 3), "B": (2,)}, (2, 1)
    ),
    "layers": Form(layers, {"x": (3, 7), "V": (7, 5), "W": (7, 5), "U": (5, 7)}, (6, 4)),
}  # fmt: skip
APART = {
    "weights that may change": Form(
        lambda x, v, w: (x @ v, x @ w), {"x": (3, 7), "v": (7, 5), "w": (7, 2)}, (2, 2)
    ),
    "one reads the other": Form(
        lambda x, V, W: F.relu(x @ V) @ W, {"x": (3, 7), "V": (7, 7), "W": (7, 7)}, (2, 2)
    ),
    "two tensors": Form(
        lambda x, y, V, W: (x @ V, (x + y) @ W),
        {"x": (3, 7), "y": (3, 7), "V": (7, 5), "W": (7, 5)}, (2, 2),
    ),
    "other parts of a tensor": Form(
        lambda x, V, W: (x[:, :4] @ V, x[:, 3:] @ W),
        {"x": (3, 7), "V": (4, 5), "W": (4, 5)}, (2, 2),
    ),
    "sums of other lengths": Form(
        lambda x, V, W: (x @ V, x[:, :6] @ W), {"x": (3, 7), "V": (7, 5), "W": (6, 5)}, (2, 2)
    ),
    "along another axis": Form(
        lambda x, V, W: (x @ V, x.mT @ W), {"x": (7, 7), "V": (7, 7), "W": (7, 7)}, (2, 2)
    ),
    "one column": Form(
        lambda x, V, W: (x @ V, x @ W), {"x": (3, 7), "V": (7, 1), "W": (7, 4)}, (2, 2)
    ),
    "no columns": Form(
        lambda x, V, W: (x @ V, x @ W), {"x": (3, 7), "V": (7,), "W": (7,)}, (2, 2)
    ),
    "paddings that differ": Form(
        lambda x, V, W: (F.conv2d(x, V, padding=1), F.conv2d(x, W)),
        {"x": (1, 3, 6, 5), "V": (4, 3, 3, 3), "W": (2, 3, 3, 3)}, (2, 2),
    ),
}  # fmt: skip
FORMS = JOINED | APART


@pytest.fixture
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products are joined whatever it brings: these are small."""
    monkeypatch.setattr(siblings, "pays", lambda family: True)


class Gate(nn.Module):
    """Two products of few rows, of one input."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(width, hidden), nn.Linear(width, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.silu(self.gate(x)) * self.up(x)


class Call:
    """A form on small integers, as captured: its tensor level without the search, and with it."""

    def __init__(self, form: Form, dtype: torch.dtype) -> None:
        torch.manual_seed(0)
        inputs = {name: torch.randint(-9, 10, s).to(dtype) for name, s in form.shapes.items()}
        captured = capture_call(form.run, [*inputs.values()])
        labels = [op_of(n, Input).label for n in captured.graph.inputs]
        fixed = [i for i, label in enumerate(labels) if label.isupper()]
        self.known = Known(captured.layouts, fixed, fused=True)
        self.graph, self.inputs = captured.graph, [inputs[label] for label in labels]
        expected = form.run(*inputs.values())
        self.expected = [
            y.double() for y in (expected if isinstance(expected, tuple) else (expected,))
        ]

    def lowered(self, search: str, target: str = TARGET) -> Graph:
        options = Options(target=target, search=search)  # type: ignore[arg-type]
        graph = lower(self.graph, options, PassLog(), self.known).made["tensor"]
        verify(graph)
        return graph

    def found(self) -> list[torch.Tensor]:
        """What the searched program computes."""
        given = [to_numpy(t) for t in self.inputs]
        return [torch.from_numpy(y.astype(float)) for y in evaluate(self.lowered("on"), given)]


def sums_of_x(graph: Graph) -> int:
    (x,) = (n for n in graph.inputs if op_of(n, Input).label == "x")
    return sum(isinstance(n.op, Reduce) and x in postorder(n) for n in graph.nodes())


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize("name", FORMS)
def test_values_are_those_of_eager(name: str) -> None:
    call = Call(FORMS[name], torch.float64)
    assert tuple(sums_of_x(call.lowered(s)) for s in ("off", "on")) == FORMS[name].sums
    torch.testing.assert_close(call.found(), call.expected, rtol=1e-12, atol=1e-12)


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int32], ids=str)
def test_other_dtypes(dtype: torch.dtype) -> None:
    """Constants stay in memory as they were: what they are widened to is not stored."""
    call = Call(
        Form(lambda x, V, W: (x @ V, x @ W), {"x": (3, 7), "V": (7, 5), "W": (7, 2)}, (2, 1)), dtype
    )
    graph = call.lowered("on")
    assert sums_of_x(graph) == 1
    assert {n.type.dtype.name for n in kept_once(graph, call.known.constants, CPUS["avx512"])} == {
        {torch.bfloat16: "bf16", torch.float16: "f16", torch.int32: "i32"}[dtype]
    }
    torch.testing.assert_close(call.found(), call.expected, rtol=0, atol=0)


@pytest.mark.parametrize(("rows", "joined"), [(1, False), (2, True), (8, True), (9, False)])
def test_only_results_that_are_little_are_joined(rows: int, joined: bool) -> None:
    """Of one row fusion reads all constants in one kernel as they are."""
    shapes = {"x": (rows, 256), "V": (256, 96), "W": (256, 32)}
    graph = Call(Form(lambda x, V, W: (x @ V, x @ W), shapes, (2, 1)), torch.float32).lowered("on")
    assert sums_of_x(graph) == 2 - joined


@pytest.mark.usefixtures("any_size")
def test_what_selects_between_constants_is_stored() -> None:
    """Fusion would have it in the product, where each call selects."""
    call = Call(JOINED["weights of both layouts"], torch.float32)
    graph = call.lowered("on")
    (kept,) = kept_once(graph, call.known.constants, CPUS["avx512"])
    assert kept_once(graph, (), CPUS["avx512"]) == set()
    price = price_for(CPUS["avx512"], ())
    for some, stored in (((), False), ((kept,), True)):
        groups = partition(graph, price, CPUS["avx512"], kept=some)
        assert any(kept in group for group in groups) is stored


def test_constants_that_change_are_read_anew() -> None:
    model, x = Gate(64, 33).eval(), torch.randn(2, 64)
    f = weft.compile(model, search="on", freeze=True, fallback="error")
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(f(x), model(x), rtol=1e-5, atol=1e-5)
            model.up.weight.mul_(-2)
    assert f.ir("tensor").count("reduce{sum") == 1


@pytest.mark.usefixtures("any_size")
def test_no_constant_is_copied_where_nothing_runs_once() -> None:
    call = Call(JOINED["unequal columns"], torch.float32)
    assert sums_of_x(call.lowered("on", "cuda:sm_90a")) == 2
