"""What only parameters decide is computed once, and again when one of them has changed."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest
import torch
from torch import nn

import weft
from weft.runtime import program


class Scaled(nn.Module):
    """Its scale is computed from a buffer alone; its weight is packed."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(20, 37)
        self.register_buffer("variance", torch.rand(37))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * torch.rsqrt(self.variance + 1e-3).cumsum(0)


def other_weight(m: Scaled) -> None:
    m.linear.weight = nn.Parameter(torch.randn(37, 20))


CHANGES: dict[str, Callable[[Scaled], object]] = {
    "in place": lambda m: m.linear.weight.mul_(2),
    "behind the version counter": lambda m: m.linear.weight.data.mul_(2),
    "loaded": lambda m: m.load_state_dict(Scaled().state_dict()),
    "another tensor": other_weight,
    "a buffer": lambda m: m.variance.add_(1),
    "under inference mode": torch.inference_mode()(lambda m: m.linear.weight.mul_(2)),
}


def same(ours: torch.Tensor, eager: torch.Tensor) -> None:
    assert (ours - eager).norm() <= 1e-6 * eager.norm()


def compiled(m: nn.Module, how: str) -> Callable[..., torch.Tensor]:
    return weft.compile(m) if how == "direct" else torch.compile(m, backend="weft")


@pytest.mark.parametrize("how", ["direct", "dynamo"])
@pytest.mark.parametrize("change", CHANGES)
@torch.no_grad()
def test_a_changed_parameter_is_noticed(change: str, how: str) -> None:
    torch.compiler.reset()
    torch.manual_seed(0)
    m, x = Scaled(), torch.randn(9, 20)
    f = compiled(m, how)
    same(f(x), m(x))
    before = m(x)
    CHANGES[change](m)
    assert not torch.allclose(before, m(x))
    same(f(x), m(x))
    same(f(x), m(x))


@torch.no_grad()
def test_unchanged_parameters_are_packed_once() -> None:
    m, x = Scaled(), torch.randn(9, 20)
    f = weft.compile(m)
    f(x)
    names = [k.name for k in f.report.kernels]
    assert "pack_linear_weight_panels" in names
    m.linear.weight.data[0, 1] += 1  # one element, not sampled: what was packed is still in use
    assert not torch.allclose(f(x), m(x))
    m.linear.weight.mul_(1)
    same(f(x), m(x))


def test_parameters_made_in_inference_mode_are_not_kept() -> None:
    with torch.inference_mode():
        m, x = Scaled(), torch.randn(9, 20)
        f = weft.compile(m)
        same(f(x), m(x))
        m.linear.weight[0, 1] += 1  # has no version that could tell
        same(f(x), m(x))
    assert not any("panels" in k.name for k in f.report.kernels)


def test_training_packs_at_every_call() -> None:
    m, x = Scaled(), torch.randn(9, 20)
    f = weft.compile(m)
    f(x).sum().backward()
    assert not any("panels" in k.name for k in f.report.kernels)


@torch.no_grad()
def test_signatures_share_what_was_packed() -> None:
    m = nn.Linear(512, 1024)  # 2 MiB of weights
    f = weft.compile(m)
    before = len(program._kept)
    for rows in (8, 9, 1, 3):
        x = torch.randn(rows, 512)
        same(f(x), m(x))
    assert len(program._kept) == before + 1
    m.weight.mul_(2)
    for rows in (3, 1, 8):
        x = torch.randn(rows, 512)
        same(f(x), m(x))
    del f
    gc.collect()
    assert len(program._kept) == before
