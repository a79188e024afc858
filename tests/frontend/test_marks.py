"""Marks on tensors (mark_dynamic) after the first call, and the guards that watch for them."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

import weft
from weft.frontend.dynamo_mended import MANAGERS, MARKING

TELLS = hasattr(MANAGERS.GuardManager, MARKING)


def pair() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Linear(5, 2)).double()
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    for p in net.parameters():
        p.grad = torch.randn_like(p)
    return net, optimiser


@pytest.mark.skipif(not TELLS, reason="this torch has other guards on marks")
def test_state_is_not_watched_for_marks() -> None:
    _, optimiser = pair()
    step = weft.compile(lambda: optimiser.step())
    for _ in range(2):
        step()
    assert "_indices" not in str(step._weft.hot[-1].guards)


def test_a_mark_on_an_argument_is_seen() -> None:
    fn = weft.compile(lambda x: x * 2)
    x = torch.randn(6, 4)
    fn(x)
    assert not fn.report.sizes
    y = torch.randn(6, 4)
    torch._dynamo.mark_dynamic(y, 0)
    assert torch.equal(fn(y), y * 2)
    assert fn.report.sizes


def rate(net: Any, optimiser: Any) -> None:
    optimiser.param_groups[0]["lr"] = 0.01


def loaded(net: Any, optimiser: Any) -> None:
    state = copy.deepcopy(optimiser.state_dict())
    state["state"][0]["momentum_buffer"].mul_(2)
    optimiser.load_state_dict(state)


def without(net: Any, optimiser: Any) -> None:
    net[0].weight.grad = None


def reshaped(net: Any, optimiser: Any) -> None:
    state = optimiser.state[net[0].weight]
    net[0].weight.data = torch.ones(4, 2, dtype=torch.float64)
    net[0].weight.grad = torch.full((4, 2), 0.5, dtype=torch.float64)
    state["momentum_buffer"] = torch.ones(4, 2, dtype=torch.float64)


def retyped(net: Any, optimiser: Any) -> None:
    state = optimiser.state[net[0].bias]
    net[0].bias.data = net[0].bias.data.float()
    net[0].bias.grad = torch.ones(5)
    state["momentum_buffer"] = torch.ones(5)


def transposed(net: Any, optimiser: Any) -> None:
    net[0].weight.grad = torch.arange(15, dtype=torch.float64).reshape(3, 5).t()


def added(net: Any, optimiser: Any) -> None:
    new = torch.nn.Parameter(torch.ones(7, dtype=torch.float64))
    new.grad = torch.ones(7, dtype=torch.float64)
    optimiser.add_param_group({"params": [new], "lr": 0.5})


def shared(net: Any, optimiser: Any) -> None:
    net[1].bias.grad = net[1].bias.detach()


CHANGES = (rate, loaded, without, reshaped, retyped, transposed, added, shared)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_what_changes_between_steps_is_seen(change: Callable[[Any, Any], None]) -> None:
    (net, optimiser), (eager, other) = pair(), pair()
    step = weft.compile(lambda: optimiser.step())
    for number in range(6):
        if number == 3:
            change(net, optimiser)
            change(eager, other)
        step()
        other.step()
    for group, same in zip(optimiser.param_groups, other.param_groups, strict=True):
        for p, q in zip(group["params"], same["params"], strict=True):
            torch.testing.assert_close(p, q)
