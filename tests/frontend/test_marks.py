"""Marks on tensors (mark_dynamic) after the first call, and the guards that watch for them."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import weft
from tests.frontend import step_changes
from weft.frontend.dynamo_mended import MANAGERS, MARKING

TELLS = hasattr(MANAGERS.GuardManager, MARKING)


def pair() -> tuple[Any, Any]:
    return step_changes.pair(torch.optim.SGD, momentum=0.9)


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


def reshaped(net: Any, optimiser: Any) -> None:
    state = optimiser.state[net[0].weight]
    net[0].weight.data = torch.ones(4, 2, dtype=torch.float64)
    net[0].weight.grad = torch.full((4, 2), 0.5, dtype=torch.float64)
    state["momentum_buffer"] = torch.ones(4, 2, dtype=torch.float64)


CHANGES = (*step_changes.SEEN, reshaped)


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
