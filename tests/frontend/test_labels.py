"""Inputs and calls have names of their own, whatever a program calls its values."""

from __future__ import annotations

from collections.abc import Mapping

import torch

import weft


def test_inputs_whose_names_look_numbered() -> None:
    """Two of one label and type were one node, and the program silently wrong."""

    def f(d: Mapping[str, torch.Tensor], d_x: torch.Tensor, d_x_1: torch.Tensor) -> torch.Tensor:
        return d["x"] - 2 * d_x + 3 * d_x_1

    a, b, c = torch.randn(3, 5)
    compiled = weft.compile(f)
    torch.testing.assert_close(compiled({"x": a}, b, c), f({"x": a}, b, c))
    inputs = [line for line in weft.ir(compiled, "torch").splitlines() if line.startswith("input")]
    assert len(set(inputs)) == 3


def test_calls_whose_names_look_numbered() -> None:
    def f(mul_1: torch.Tensor, mul: torch.Tensor) -> torch.Tensor:
        return mul_1 * mul + mul_1 * mul_1

    a, b = torch.randn(2, 5)
    torch.testing.assert_close(weft.compile(f)(a, b), f(a, b))


def test_lists_of_tensors_by_torch_s_own_rule() -> None:
    """What torch._foreach_add refuses, weft does not take for something else."""

    def f(x: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
        return torch._foreach_add([x, x * 2], by)[1]

    x = torch.randn(3)
    torch.testing.assert_close(weft.compile(f)(x, torch.tensor(2.0)), x * 2 + 2)
