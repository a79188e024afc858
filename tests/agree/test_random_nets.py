"""Layers over random shapes, compiled for this machine: schedules differ with every shape.

Interpreters are too slow for these; the C is held against float64 eager alone.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import weft
from tests.agree.checks import FLOOR

pytest.importorskip("hypothesis")
from hypothesis import assume, given, settings
from hypothesis import strategies as st


def close(module: Callable[..., Any], *args: torch.Tensor) -> None:
    """At most twice as far from float64 as eager is; a result of its own shape and dtype."""
    wide = copy.deepcopy(module).double() if isinstance(module, nn.Module) else module
    with torch.no_grad():
        got, eager = weft.compile(module)(*args), module(*args)
        exact = wide(*(a.double() for a in args))
    assert (got.shape, got.dtype) == (eager.shape, eager.dtype)
    off, own = ((t.double() - exact).norm() / exact.norm() for t in (got, eager))
    assert off <= max(FLOOR[got.dtype], 2 * own)


@settings(max_examples=15)
@given(st.data())
def test_convolutions(data: st.DataObject) -> None:
    def draw(*values: int) -> int:
        return data.draw(st.sampled_from(values))

    groups = draw(1, 1, 1, 2)
    n, c, out = draw(1, 2, 3), groups * draw(3, 8, 16, 24), groups * draw(8, 16, 20, 48)
    height, width, size = draw(5, 7, 12, 16, 28), draw(7, 9, 16, 30), draw(1, 3, 3, 5)
    window = {"stride": draw(1, 1, 2), "padding": draw(0, 1, size // 2), "groups": groups}
    layers: list[nn.Module] = [nn.Conv2d(c, out, size, **window)]
    layers += [nn.BatchNorm2d(out), nn.ReLU()] * draw(0, 1)
    layers += [nn.Conv2d(out, draw(16, 33), draw(1, 3), padding=1)] * draw(0, 1)
    layers += [nn.MaxPool2d(2)] * draw(0, 1)
    torch.manual_seed(0)
    x = torch.randn(n, c, height, width)
    try:
        net = nn.Sequential(*layers).eval()
        net(x)
    except RuntimeError:
        assume(False)  # nothing is left of the image
    close(net, x)


@settings(max_examples=15)
@given(st.data())
def test_linear_layers(data: st.DataObject) -> None:
    def draw(*values: int) -> int:
        return data.draw(st.sampled_from(values))

    wide, hidden = draw(16, 33, 64, 128, 300), draw(32, 48, 64)
    function = data.draw(st.sampled_from((nn.GELU, nn.SiLU, nn.Identity, nn.Softsign)))
    last = nn.Linear(hidden, draw(16, 40, 96, 200), bias=bool(draw(0, 1)))
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(wide, hidden), function(), nn.LayerNorm(hidden), last)
    shape = (*(draw(1, 2, 3),) * draw(0, 1), draw(1, 2, 3, 4, 7, 8, 17, 32), wide)
    close(net, torch.randn(shape))


@settings(max_examples=12)
@given(st.data())
def test_attention(data: st.DataObject) -> None:
    def draw(*values: Any) -> Any:
        return data.draw(st.sampled_from(values))

    n, heads, rows, keys = draw(1, 2), draw(2, 4, 6), draw(1, 64, 77, 128, 197), draw(64, 100, 256)
    own, inner, outer = draw(heads, 2), draw(16, 40, 64), draw(16, 48)
    kind, dtype = draw("plain", "causal", "added"), draw(torch.float32, torch.bfloat16)
    torch.manual_seed(0)
    q = torch.randn(n, heads, rows, inner, dtype=dtype)
    if draw(False, True):
        q = q.transpose(1, 2).contiguous().transpose(1, 2)
    k, v = (torch.randn(n, own, keys, d, dtype=dtype) for d in (inner, outer))
    given = (torch.randn(rows, keys, dtype=dtype),) * (kind == "added")

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *m: torch.Tensor) -> Any:
        more = {"is_causal": kind == "causal", "enable_gqa": own != heads}
        return F.scaled_dot_product_attention(q, k, v, *m, **more)

    close(attention, q, k, v, *given)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_one_length(mode: str) -> None:
    """Of one length and of others. No index lies beyond the weight."""
    bag, at = nn.EmbeddingBag(50, 24, mode=mode), torch.randint(0, 50, (6, 4))
    compiled = weft.compile(bag)
    grads: list[torch.Tensor | None] = []
    for f in (compiled, bag):
        bag.weight.grad = None
        f(at).pow(2).sum().backward()
        grads.append(bag.weight.grad)
    torch.testing.assert_close(*grads)
    with torch.no_grad():
        torch.testing.assert_close(compiled(at), bag(at))
        uneven = (at.view(-1), torch.tensor([0, 3, 9, 20]))
        torch.testing.assert_close(compiled(*uneven), bag(*uneven))
        with pytest.raises((IndexError, RuntimeError), match=r"out of range|idx"):
            compiled(at + 50)
    assert not compiled.report.externs
