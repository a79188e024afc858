"""Names of a program's own that a compiler could have made up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import weft


def linear(x: Any, other: Any) -> Any:
    return x @ x.t() + other


def summed(x: Any, other: Any) -> Any:
    return (x * other).sum() + other


def turned(x: Any, other: Any) -> Any:
    return (x * other).t().sin(), other.t().contiguous()


def few(x: Any, other: Any) -> Any:
    return x[:2] @ x.t() + other[:2]


def softmax(x: Any, other: Any) -> Any:
    scores = torch.softmax(x @ other.t(), -1)
    return scores @ other + scores.sum(-1, keepdim=True).cumsum(0)


PROGRAMS = (linear, summed, turned, few, softmax)
CPU = ("panel0", "part0", "tile0", "row0", "dots0", "args0", "acc0", "v0", "s0", "x_rows", "turn")
GPU = ("x_s0", "acc0_parts", "acc0_rows", "scale_rows", "panel0")


def named(program: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The function of x and of an argument of that name."""
    found: dict[str, Any] = {"program": program}
    exec(f"def f(x, {name}): return program(x, {name})", found)
    return found["f"]


@pytest.mark.parametrize("name", CPU)
def test_arguments_of_any_name(name: str) -> None:
    x, other = torch.randn(64, 64), torch.randn(64, 64)
    for program in PROGRAMS:
        f = named(program, name)
        torch.testing.assert_close(weft.compile(f)(x, other), f(x, other), atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("name", GPU)
def test_arguments_of_any_name_on_a_gpu(name: str) -> None:
    x, other = torch.randn(64, 64), torch.randn(64, 64)
    for program in (linear, softmax, summed):
        f = named(program, name)
        found = weft.compile(f, target="cuda:sm_90a", simulate=True)(x, other)
        torch.testing.assert_close(found, f(x, other), atol=1e-3, rtol=1e-3)
