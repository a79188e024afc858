"""Which numbers eager rounds to a 16-bit tensor's dtype, and which it computes with as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import weft
from weft.frontend.capture import capture
from weft.frontend.lower import to_tensor
from weft.interpret.tensors import evaluate, to_numpy, to_torch

HALVES = (torch.bfloat16, torch.float16)
NUMBERS = (3.7, -3.7, 0.1, 1.0009765, 1001)
Program = Callable[[torch.Tensor, torch.Tensor, Any], torch.Tensor]

ROUNDED: dict[str, Program] = {
    "remainder": lambda x, y, n: x % n,
    "remainder of a number": lambda x, y, n: n % x,
    "remainder by one element": lambda x, y, n: x % torch.tensor(n, dtype=torch.float64),
    "fmod": lambda x, y, n: torch.fmod(x, n),
    "add": lambda x, y, n: x + n,
    "alpha": lambda x, y, n: torch.add(y, 0 * y + 1, alpha=n),
    "greater": lambda x, y, n: x > n,
    "equal": lambda x, y, n: x == n,
    "hardshrink": lambda x, y, n: F.hardshrink(x, abs(n)),
}
EXACT: dict[str, Program] = {
    "multiply": lambda x, y, n: x * n,
    "multiply by one element": lambda x, y, n: x * torch.tensor(n, dtype=torch.float64),
    "divide": lambda x, y, n: x / n,
    "floor divide": lambda x, y, n: x // n,
    "truncate": lambda x, y, n: torch.div(x, n, rounding_mode="trunc"),
    "leaky relu": lambda x, y, n: F.leaky_relu(x, n),
    "threshold": lambda x, y, n: F.threshold(x, n, 0.0),
    "softshrink": lambda x, y, n: F.softshrink(x, abs(n)),
    "hardtanh": lambda x, y, n: F.hardtanh(x, -abs(n), abs(n)),
    "clamp": lambda x, y, n: x.clamp(max=n),
    "where": lambda x, y, n: torch.where(x > 0, x, n),
}
OTHERS: dict[str, Program] = {
    "integers": lambda x, y, n: x * torch.arange(1000, 1000 + x.shape[1]),
    "one element first": lambda x, y, n: torch.tensor(n, dtype=torch.float64) * x,
}


def operands(dtype: torch.dtype, number: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Values, some of them what the number rounds to."""
    torch.manual_seed(0)
    x, y = (torch.randn(2, 16, 33) * 5).to(dtype)
    x[0], x[1] = number, -number
    return x, y


def lowered(program: Program, x: torch.Tensor, y: torch.Tensor, number: Any) -> torch.Tensor:
    """What the tensor level gives, by its interpreter."""
    traced = capture(torch.fx.symbolic_trace(lambda x, y: program(x, y, number)), (x, y))
    given = [(x, y)[p.position] for p in traced.placeholders if p.position is not None]
    held = [p.tensor for p in traced.placeholders if p.tensor is not None]
    assert len(given) + len(held) == len(traced.placeholders)
    (out,) = evaluate(to_tensor(traced.graph), [to_numpy(t) for t in (*given, *held)])
    return to_torch(out)


@pytest.mark.parametrize("dtype", [*HALVES, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", [*ROUNDED, *EXACT, *OTHERS])
def test_numbers_are_rounded_where_eager_rounds_them(name: str, dtype: torch.dtype) -> None:
    program = {**ROUNDED, **EXACT, **OTHERS}[name]
    exact = dtype in HALVES or name != "alpha"  # eager adds a product unrounded, by fma
    for number in NUMBERS:
        x, y = operands(dtype, number)
        tolerance = {"rtol": 0.0, "atol": 0.0} if exact else {}
        found, eager = lowered(program, x, y, number), program(x, y, number)
        torch.testing.assert_close(found, eager, equal_nan=True, **tolerance)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", ["remainder", "fmod", "equal", "softshrink", "floor divide"])
def test_rounding_tells(name: str, dtype: torch.dtype) -> None:
    """The other way of each differs, so that the test above may fail."""
    program = {**ROUNDED, **EXACT}[name]
    x, y = operands(dtype, 3.7)
    number = torch.tensor(3.7, dtype=dtype).item() if name in EXACT else 3.7
    other = program(x.float(), y.float(), number).to(program(x, y, 3.7).dtype)
    assert not torch.equal(other, program(x, y, 3.7))


def test_compiled_code_rounds_as_the_interpreter_does() -> None:
    x, y = operands(torch.bfloat16, 3.7)
    for program in (ROUNDED["remainder"], EXACT["softshrink"]):
        found = weft.compile(lambda x, y, p=program: p(x, y, 3.7))(x, y)
        assert torch.equal(found, program(x, y, 3.7))
