"""Calls of programs for any size, in turn: the arena is placed once for each of the last sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import weft
from tests.frontend.test_sizes import assert_equal, library
from weft.runtime.loaded import KEPT
from weft.runtime.program import Program


@pytest.fixture
def placed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Sizes for which an arena is placed, in order."""
    found: list[tuple[int, ...]] = []
    own = Program.at_sizes

    def at_sizes(self: Program, frame: Any, sizes: tuple[int, ...], views: list[str]) -> Any:
        found.append(sizes)
        return own(self, frame, sizes, views)

    monkeypatch.setattr(Program, "at_sizes", at_sizes)
    return found


def test_sizes_in_turn_are_placed_once(placed: list[tuple[int, ...]]) -> None:
    f = weft.compile(library, dynamic=True)
    small, large = torch.randn(5, 7), torch.randn(50, 70)
    for x in (small, large) * 3:
        assert_equal(f(x), library(x))
    # the larger has another arena, in which the smaller is placed again
    assert placed == [(5, 7), (50, 70), (5, 7)]


def test_the_oldest_of_many_sizes_is_placed_again(placed: list[tuple[int, ...]]) -> None:
    f = weft.compile(library, dynamic=True)
    xs = [torch.randn(n + 3, 200 - n) for n in range(KEPT + 1)]
    for x in (*reversed(xs), *xs):
        assert_equal(f(x), library(x))
    assert len(placed) < 2 * len(xs)
    assert f(xs[0])[0].shape == (3, 200)


def test_sizes_in_turn_with_packed_weights(
    placed: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    packed: list[Any] = []
    bind = Program.bind
    monkeypatch.setattr(
        Program, "bind", lambda self, at, now: (packed.append(at), bind(self, at, now))[1]
    )
    module = torch.nn.Sequential(torch.nn.Linear(33, 65), torch.nn.ReLU(), torch.nn.Linear(65, 17))
    f = weft.compile(module, dynamic=True, freeze=True)
    xs = torch.randn(40, 33), torch.randn(64, 33)
    with torch.no_grad():
        for round_ in range(4):
            for x in xs:
                assert_equal(f(x), module(x))
            if round_ % 2:
                module[0].weight = torch.nn.Parameter(torch.randn(65, 33))
            else:
                module[2].weight.mul_(2)
    # 40 rows, 64 in a larger arena, 40 in that; after each change the other again
    assert len(packed) == 4 and len(placed) == 3 + 3


def test_calls_in_turn_go_to_the_program_of_fewer_sizes() -> None:
    f = weft.compile(lambda x: x.exp() + 1)
    small, large = torch.randn(5, 7), torch.randn(9, 6)
    f(small), f(large)
    special, general = f._weft.hot
    ran: list[str] = []
    for hot, name in ((special, "special"), (general, "general")):
        hot.run = lambda x, run=hot.run, name=name: (ran.append(name), run(x))[1]
    for x in (small, large) * 40:
        assert_equal(f(x), x.exp() + 1)
    assert ran[-10:] == ["special", "general"] * 5


def test_objects_that_compare_by_element_are_no_obstacle() -> None:
    """What Dynamo keeps in a function's globals is looked through by identity."""
    f = weft.compile(lambda x: x + 1, dynamic=True)
    f._weft.frames.entry.__globals__["array"] = np.arange(3)
    x = torch.randn(5)
    assert_equal(f(x), x + 1)
    assert len(f._weft.hot) == 1


def test_written_tensors_of_one_storage_at_any_distance() -> None:
    def program(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.add_(1)
        c = a * 2 + b.sum()
        b.mul_(c[0])
        return c - b.max()

    f = weft.compile(program, dynamic=True)
    for length, cut, shared in ((10, 5, 0), (12, 5, 0), (13, 7, 2), (20, 7, 2), (31, 9, 4)):
        ours = torch.randn(length)
        theirs = ours.clone()
        found, expected = (
            program_(x[:cut], x[cut - shared :]) for program_, x in ((f, ours), (program, theirs))
        )
        assert_equal((found, ours), (expected, theirs))
