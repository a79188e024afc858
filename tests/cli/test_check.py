"""The accuracy check catches what is wrong and passes what eager itself would lose."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import nn

from weft.cli.check import Verdict, check, run_eager, run_reference, worst
from weft.cli.inline import load_inline
from weft.cli.program import Source


def verdict(out: object, eager: object, reference: object = None) -> Verdict:
    if reference is None:
        assert isinstance(eager, torch.Tensor)
        reference = eager.double() if eager.is_floating_point() else eager
    return worst(check(out, eager, reference))


@pytest.mark.parametrize(
    ("dtype", "floor"), [(torch.float32, 1e-6), (torch.float16, 2e-3), (torch.bfloat16, 1.6e-2)]
)
def test_floors(dtype: torch.dtype, floor: float) -> None:
    eager = torch.ones(100, dtype=dtype)
    scaled = eager.double() * (1 + 4 * floor)
    assert verdict(eager, eager).limit == floor
    assert verdict(eager, eager).passed
    assert not verdict(scaled.to(dtype), eager).passed


def test_twice_the_error_of_eager_is_allowed() -> None:
    reference = torch.ones(10, dtype=torch.float64)
    eager = torch.full((10,), 1 + 1e-3)
    assert verdict(torch.full((10,), 1 - 1.9e-3), eager, reference).passed
    assert not verdict(torch.full((10,), 1 - 2.2e-3), eager, reference).passed


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda t: torch.zeros_like(t), ""),
        (lambda t: t.double(), "dtype torch.float64"),
        (lambda t: t[:3], "shape"),
        (lambda t: t.t().contiguous().t(), "strides"),
        (lambda t: t.index_fill(0, torch.tensor([1]), math.nan), "4 NaN, eager gives 0"),
        (lambda t: t.index_fill(0, torch.tensor([1]), math.inf), "Inf in other places"),
        (lambda t: [t], "returns"),
        (lambda t: None, "a NoneType, eager gives a tensor"),
        (lambda t: 1.0, "a float, eager gives a tensor"),
    ],
)
def test_what_fails(spoil: Callable[[torch.Tensor], object], reason: str) -> None:
    eager = torch.arange(1.0, 17.0).reshape(4, 4)
    found = verdict(spoil(eager), eager)
    assert not found.passed
    assert found.reason.startswith(reason)


def test_non_finite_values_of_eager_are_expected() -> None:
    eager = torch.tensor([math.nan, math.inf, -math.inf, 1.0])
    assert verdict(eager.clone(), eager).passed
    assert not verdict(torch.tensor([math.nan, -math.inf, -math.inf, 1.0]), eager).passed
    assert not verdict(torch.tensor([math.nan, math.inf, 0.0, 1.0]), eager).passed


def test_integers_are_exact() -> None:
    eager = torch.tensor([1, 2, 3])
    assert verdict(eager.clone(), eager).passed
    assert not verdict(torch.tensor([1, 2, 4]), eager).passed


def test_scalars_and_none() -> None:
    eager = (None, 3, torch.ones(2))
    assert verdict((None, 3, torch.ones(2)), eager, eager).passed
    assert not verdict((None, 4, torch.ones(2)), eager, eager).passed
    assert not verdict((None, 3.0, torch.ones(2)), eager, eager).passed


def test_empty_outputs() -> None:
    eager = torch.ones(0, 3)
    assert verdict(torch.ones(0, 3), eager).passed


class Half(nn.Module):
    """Casts inside, makes a tensor inside and counts its calls in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 64)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.linear(x).to(torch.float16).float() + torch.linspace(0, 1, 64)


def test_the_reference_is_float64_throughout() -> None:
    module = Half()
    x = torch.randn(8, 64)
    source = Source(module, (x,), {}, "Half")
    double = nn.functional.linear(
        x.double(), module.linear.weight.double(), module.linear.bias.double()
    )
    expected = double + torch.linspace(0, 1, 64, dtype=torch.float64)
    reference = run_reference(source)
    assert reference.dtype == torch.float64
    assert torch.allclose(reference, expected, rtol=1e-12, atol=1e-12)
    assert run_eager(source).dtype == torch.float32
    assert module.calls == 0 and module.linear.weight.dtype == torch.float32
    assert torch.get_default_dtype() == torch.float32


def test_arguments_are_not_written() -> None:
    source = load_inline("x = torch.zeros(3)\nx.add_(1)")
    assert run_eager(source).tolist() == [1, 1, 1]
    assert source.args[0].tolist() == [0, 0, 0]
