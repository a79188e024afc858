"""The steps of `python -m bench.train`: each gives a loss, and a gradient of every weight."""

from __future__ import annotations

import pytest
import torch

from bench.steps import STEPS


@pytest.mark.parametrize("name", STEPS)
def test_a_step(name: str) -> None:
    torch.manual_seed(0)
    network, inputs, loss = STEPS[name]()
    found = loss(network, *inputs)
    found.backward()
    assert found.shape == () and found.isfinite()
    assert all(p.grad is not None for p in network.parameters())
