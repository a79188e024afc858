"""Learning rates by step."""

from __future__ import annotations

import pytest
import torch

from weft.train.schedules import constant, cosine, linear, sequence, steps, warm_up


def test_values() -> None:
    assert [constant(0.1)(s) for s in (0, 99)] == [0.1, 0.1]
    assert [steps(8.0, 10, 0.5)(s) for s in (0, 9, 10, 25)] == [8.0, 8.0, 4.0, 2.0]
    assert [linear(1.0, 3.0, 4)(s) for s in (0, 1, 4, 9)] == [1.0, 1.5, 3.0, 3.0]
    assert [cosine(2.0, 10, 1.0)(s) for s in (0, 5, 10, 12)] == pytest.approx([2.0, 1.5, 1.0, 1.0])


def test_sequences() -> None:
    rate = sequence((2, constant(1.0)), (3, linear(0.0, 3.0, 3)), (1, constant(7.0)))
    assert [rate(s) for s in range(7)] == [1.0, 1.0, 0.0, 1.0, 2.0, 7.0, 7.0]
    warm = warm_up(4, cosine(1.0, 10))
    assert [warm(s) for s in range(5)] == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert warm(9) == cosine(1.0, 10)(5)


def test_equal_to_torch() -> None:
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.5)
    torch_ = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 20, 0.1)
    for step in range(20):
        assert cosine(0.5, 20, 0.1)(step) == pytest.approx(torch_.get_last_lr()[0])
        optimiser.step()
        torch_.step()
