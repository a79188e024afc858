"""The steps of `python -m bench.train`: each gives a loss, and a gradient of every weight."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from bench.steps import STEPS
from bench.train import apart, in_turns


@pytest.mark.parametrize("name", STEPS)
def test_a_step(name: str) -> None:
    torch.manual_seed(0)
    network, inputs, loss = STEPS[name]()
    found = loss(network, *inputs)
    found.backward()
    assert found.shape == () and found.isfinite()
    assert all(p.grad is not None for p in network.parameters())


def test_losses_apart() -> None:
    assert apart([2.0, 3.0], [2.0, 4.0]) == 0.25
    assert math.isnan(apart([2.0, math.nan, 3.0], [2.0, 2.0, 3.0]))
    assert apart([[1.0, 2.0], [1.0, 3.0]], [1.0, 2.0]) == 0.5


def test_a_child_that_fails_is_left_out() -> None:
    asked: list[str] = []

    class Told:
        def __init__(self, name: str) -> None:
            self.name = name

        def ask(self, **request: str) -> dict[str, float]:
            assert request == {"do": "round"}
            asked.append(self.name)
            return {"ms": float(len(asked))}

    children: dict[str, Any] = {name: Told(name) for name in "abc"}
    rows: dict[str, Any] = {"a": {}, "b": {"failure": "it ended"}, "c": {}}
    in_turns(children, rows, 3)
    assert asked == [*"acacac"] and rows["a"]["rounds"] == [1, 3, 5]
    assert [rows[b]["ms"] for b in "abc"] == [3, None, 4]
