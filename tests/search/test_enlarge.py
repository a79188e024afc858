"""Convolutions of one tensor as one: which are joined, which are not, and what guards them."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import weft
from tests.search.programs import graph_of
from tests.search.test_laws import expression
from tests.search.test_masks import any_price, count, values  # noqa: F401
from tests.search.test_search import frozen
from weft.core.node import Node, make, postorder
from weft.core.types import TensorType, f32
from weft.scalar.ops import apply, axis, constant
from weft.search import check as check_module
from weft.search import enlarge
from weft.search import search as module
from weft.search.check import same
from weft.search.egraph import EGraph
from weft.search.reader import root_axes
from weft.tensor.ops import Input, Reduce, View, position

Run = Callable[..., torch.Tensor]
x = torch.randn(2, 5, 7, 7)


def kernel(*shape: int) -> torch.Tensor:
    return torch.randn(shape) / torch.Size(shape[1:]).numel() ** 0.5


def both(first: dict[str, Any], second: dict[str, Any]) -> Run:
    return lambda x, w, v: F.conv2d(x, w, **first) + F.conv2d(x, v, **second)


def cropped(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.conv2d(x, w) + F.conv2d(x[..., 2:, 1:-1], v)


def three(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    upright, flat = F.conv2d(x, v, padding=(1, 0)), F.conv2d(x, u, padding=(0, 1))
    return F.conv2d(x, w, padding=1) + upright - flat


def scaled(x: torch.Tensor, w: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    return F.conv2d(x, w, padding=1, groups=5) + x * g[:, None, None]


def causal(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.conv1d(F.pad(x, (3, 0)), w) + F.conv1d(x, v)


ONE: dict[str, tuple[Run, list[torch.Tensor]]] = {
    "3x3 + 1x1": (both({"padding": 1}, {}), [x, kernel(6, 5, 3, 3), kernel(6, 5, 1, 1)]),
    "5x5 + 3x3": (
        both({"padding": 2}, {"padding": 1}), [x, kernel(6, 5, 5, 5), kernel(6, 5, 3, 3)],
    ),
    "stride 2": (
        both({"padding": 1, "stride": 2}, {"stride": 2}),
        [torch.randn(1, 5, 8, 8), kernel(6, 5, 3, 3), kernel(6, 5, 1, 1)],
    ),
    "dilated": (
        both({"padding": 2, "dilation": 2}, {}), [x, kernel(6, 5, 3, 3), kernel(6, 5, 1, 1)],
    ),
    "groups": (
        both({"padding": 1, "groups": 2}, {"groups": 2}),
        [torch.randn(2, 6, 7, 7), kernel(4, 3, 3, 3), kernel(4, 3, 1, 1)],
    ),
    "fewer groups": (
        both({"padding": 1}, {"groups": 2}),
        [torch.randn(2, 6, 7, 7), kernel(4, 6, 3, 3), kernel(4, 3, 1, 1)],
    ),
    "no padding, cropped": (cropped, [x, kernel(6, 5, 3, 3), kernel(6, 5, 1, 1)]),
    "3x3 + 3x1 - 1x3": (three, [x, *(kernel(6, 5, *s) for s in ((3, 3), (3, 1), (1, 3)))]),
    "depthwise + gain": (scaled, [x, kernel(5, 1, 3, 3), torch.randn(5)]),
    "causal": (causal, [torch.randn(2, 5, 11), kernel(6, 5, 4), kernel(6, 5, 1)]),
}  # fmt: skip

STAY: dict[str, tuple[Run, list[torch.Tensor]]] = {
    "beyond the kernel": (
        lambda x, w, v: F.conv2d(x, w, padding=1)[..., :-2, :] + F.conv2d(x[..., 2:, :], v),
        [x, kernel(6, 5, 3, 3), kernel(6, 5, 1, 1)],
    ),
    "padding of a part": (
        lambda x, w, v: F.conv2d(F.pad(x[..., :5], (1, 3, 1, 1)), w) + F.conv2d(x, v),
        [x, kernel(6, 5, 3, 3), kernel(6, 5, 1, 1)],
    ),
    "padding of ones": (
        lambda x, w, v: F.conv2d(F.pad(x, (1, 1, 1, 1), value=1.0), w) + F.conv2d(x, v),
        [x, kernel(6, 5, 3, 3), kernel(6, 5, 1, 1)],
    ),
    "other strides": (
        both({"padding": 1, "stride": 2}, {}),
        [torch.randn(1, 5, 1, 1), kernel(6, 5, 3, 3), kernel(6, 5, 1, 1)],
    ),
    "mean of 3x3, which has no weights": (
        lambda x, w: F.conv2d(x, w, padding=1) + F.avg_pool2d(x, 3, 1, 1),
        [x, kernel(5, 5, 3, 3)],
    ),
    "3x1 + 1x3, which 3x3 has more of": (
        both({"padding": (1, 0)}, {"padding": (0, 1)}), [x, kernel(6, 5, 3, 1), kernel(6, 5, 1, 3)],
    ),
}  # fmt: skip


def check(run: Run, inputs: list[torch.Tensor], sums: int) -> None:
    graph = graph_of(run, inputs)
    got = values(graph, **dict(zip(signature(run).parameters, inputs, strict=True)))
    exact = run(*(t.double() for t in inputs)).numpy()
    assert np.abs(got - exact).max() <= 4e-6 * np.abs(exact).max()
    assert count(graph, Reduce) == sums


@pytest.mark.usefixtures("any_price")
@pytest.mark.parametrize("name", ONE)
def test_one_sum_is_left(name: str) -> None:
    check(*ONE[name], 1)


@pytest.mark.usefixtures("any_price")
@pytest.mark.parametrize("name", STAY)
def test_both_sums_stay(name: str) -> None:
    check(*STAY[name], 2)


class Block(nn.Module):
    """RepVGG's, as it is trained: three branches, each with a norm of its own."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.full = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.point = nn.Conv2d(width, width, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(3))
        for norm in self.norms:
            for number in (norm.running_mean, norm.running_var, norm.weight, norm.bias):
                nn.init.uniform_(number, 0.5, 2.0)  # type: ignore[arg-type]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        branches = self.full(x), self.point(x), x
        return sum(n(b) for n, b in zip(self.norms, branches, strict=True)).relu()  # type: ignore[attr-defined]


def test_a_block_of_three_branches_is_one_convolution() -> None:
    model, x = Block(32).eval(), torch.randn(1, 32, 14, 14)
    graph = frozen(model, x, True)
    (given,) = (n for n in graph.inputs if n.type.shape == tuple(x.shape))
    users = [n for n in graph.nodes() if given in n.args]
    assert len(users) == 1 and isinstance(users[0].op, View)
    (summed,) = (n for n in graph.nodes() if isinstance(n.op, Reduce))
    assert summed.args[0].type.size == 32 * 14 * 14 * 32 * 9
    with torch.no_grad():
        got = weft.compile(model, search="on", freeze=True, fallback="error")(x)
        exact = model.double()(x.double())
    torch.testing.assert_close(got.double(), exact, rtol=1e-4, atol=1e-4)


def sums_of(model: nn.Module, *shape: int) -> list[int]:
    """The elements that each sum of the input folds, where weights are constants."""
    for m in model.modules():
        if isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d):
            nn.init.uniform_(m.running_mean, 0.5, 2.0)  # type: ignore[arg-type]
    graph = frozen(model.eval(), torch.randn(shape), True)
    (given,) = (n for n in graph.inputs if n.type.shape == shape)
    sums = (n for n in graph.nodes() if isinstance(n.op, Reduce) and given in postorder(n))
    return [n.args[0].type.size for n in sums]


def test_affine_maps_between_layers_are_multiplied_into_weights() -> None:
    model = nn.Sequential(nn.Linear(256, 300), nn.BatchNorm1d(300), nn.Linear(300, 256))
    assert sums_of(model, 64, 256) == [64 * 256 * 256]
    few = nn.Sequential(nn.Conv2d(16, 64, 3), nn.BatchNorm2d(64), nn.Conv2d(64, 4, 1))
    assert sums_of(few, 1, 16, 16, 16) == [14 * 14 * 4 * 16 * 9]


def test_layers_stay_where_their_product_is_larger() -> None:
    narrow = nn.Sequential(nn.Linear(256, 16), nn.BatchNorm1d(16), nn.Linear(16, 256))
    assert len(sums_of(narrow, 64, 256)) == 2


# ---- what guards them


def test_a_view_is_padding_where_it_has_all_that_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without that condition the check refuses what is found."""
    run, inputs = STAY["padding of a part"]
    refused: list[str] = []

    def compared(*args: Any) -> check_module.Verdict:
        refused.append(check_module.compare(*args).why)
        return check_module.compare(*args)

    monkeypatch.setattr(module, "MARGIN", 1e9)
    monkeypatch.setattr(module, "compare", compared)
    monkeypatch.setattr(enlarge, "is_padding", lambda _: True)
    check(run, inputs, 2)
    assert refused == ["not equal modulo a prime"]


@pytest.mark.parametrize("last", [20, 19])
def test_the_check_sees_the_last_border(last: int) -> None:
    """x[j + r - 1] summed over r, with zeros where there is no x, or before there is none."""
    source = make(Input("x", TensorType(f32, (20,))))
    moved = apply("add", apply("add", position(0), position(1)), constant(-1))

    def padded(end: int) -> Node:
        valid = apply("and", apply("ge", moved, constant(0)), apply("lt", moved, constant(end)))
        return make(View((20, 3), (moved,), valid), source)

    j, r = root_axes([(20,)])[0][0], axis("r1_0_3")
    g = EGraph({j: 20, r: 3})
    old, new = (expression(g, g.sum({r}, g.leaf(padded(n), (j, r)))) for n in (20, last))
    assert same([old], [new], g.extents) == (last == 20)
