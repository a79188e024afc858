"""What a size decides bounds its range, where a bound is all that was asked."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import weft
from tests.frontend.test_sizes import assert_equal


class Biases(torch.nn.Module):
    """The last columns of a table are added, as many as there are: those of alibi in mpt."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(4, 64), requires_grad=False)

    def forward(self, x: Any) -> Any:
        return x + self.table[:, max(0, 64 - x.shape[1]) :]


def test_one_program_up_to_a_bound(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="weft.frontend.specialise")
    biases = Biases()
    f = weft.compile(biases, dynamic=True)
    for n in (5, 17, 2, 63, 40):
        x = torch.randn(4, n)
        assert_equal(f(x), biases(x))
    assert len(f.programs) == 1 and not f.reasons
    told = "a size of Biases has a range: whether s0 * -1 + 64 <= 0 depends on the size that"
    assert [m[: len(told)] for m in caplog.messages] == [told]
    with pytest.raises(Exception, match="must match the size"):
        f(torch.randn(4, 65))


def test_a_program_for_each_side_of_a_bound() -> None:
    """Rows of more columns than 64 lie apart, others overlap."""

    def windows(x: Any, y: Any) -> Any:
        return (x * 2).as_strided((8, y.shape[0]), (64, 1)), y + 1

    f = weft.compile(windows)
    for n in (5, 70, 64, 65, 2, 63, 100, 7, 64):
        args = torch.randn(1000), torch.randn(n)
        (ours, y), (theirs, z) = f(*args), windows(*args)
        assert_equal([ours, y], [theirs, z])
        assert ours.stride() == theirs.stride()
    assert not f.reasons


def test_a_promised_range_is_not_narrowed() -> None:
    biases = Biases()
    f = weft.compile(biases, sizes={"x": {1: (2, 100)}})
    for n in (5, 64, 2):
        x = torch.randn(4, n)
        assert_equal(f(x), biases(x))


def test_sizes_that_are_equal_stay_equal(caplog: pytest.LogCaptureFixture) -> None:
    """As those of flaubert, whose forward goes on after a break with a number and a tensor."""

    def fn(x: Any, n: int) -> Any:
        return x[:n] + torch.arange(n)

    caplog.set_level("INFO", logger="weft.frontend.specialise")
    f = weft.compile(fn)
    for n in (5, 9, 17, 40):
        x = torch.randn(n)
        assert_equal(f(x, n), fn(x, n))
    assert len(f.programs) == 2 and not f.reasons
    assert not [m for m in caplog.messages if "is fixed" in m]
    assert_equal(f(torch.arange(30.0), 7), fn(torch.arange(30.0), 7))


def test_how_many_of_the_largest_may_be_a_size(caplog: pytest.LogCaptureFixture) -> None:
    def fn(x: Any, y: Any) -> Any:
        return torch.topk(x, y.shape[0], 1)[0]

    caplog.set_level("INFO", logger="weft.frontend.specialise")
    f = weft.compile(fn, dynamic=True)
    for k in (70, 71, 140, 290, 5):
        given = torch.randn(20, 600), torch.zeros(k)
        assert_equal(f(*given), fn(*given))
    assert not [m for m in caplog.messages if "by itself" in m]
