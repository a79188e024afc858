"""What parameters alone decide is computed at every call, or kept where they are frozen."""

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


SEEN: dict[str, Callable[[Scaled], object]] = {
    "in place": lambda m: m.linear.weight.mul_(2),
    "loaded": lambda m: m.load_state_dict(Scaled().state_dict()),
    "another tensor": other_weight,
    "another storage": lambda m: setattr(m.linear.weight, "data", torch.randn(37, 20)),
    "a buffer": lambda m: m.variance.add_(1),
    "under inference mode": torch.inference_mode()(lambda m: m.linear.weight.mul_(2)),
}
UNSEEN: dict[str, Callable[[Scaled], object]] = {
    "one element through .data": lambda m: m.linear.weight.data[3, 7].fill_(9),
    "clamped": lambda m: m.linear.weight.data.clamp_(-0.1, 0.1),
    "a row through NumPy": lambda m: m.linear.weight.detach().numpy()[3].fill(5),
}
CHANGES = {**SEEN, **UNSEEN}


def same(ours: torch.Tensor, eager: torch.Tensor) -> None:
    assert (ours - eager).norm() <= 1e-6 * eager.norm()


def compiled(m: nn.Module, how: str, freeze: bool) -> Callable[..., torch.Tensor]:
    if how == "weft.compile":
        return weft.compile(m, freeze=freeze)
    return torch.compile(m, backend="weft", options={"freeze": freeze})


CASES = [(change, False) for change in CHANGES] + [(change, True) for change in SEEN]


@pytest.mark.parametrize("how", ["weft.compile", "torch.compile"])
@pytest.mark.parametrize(("change", "freeze"), CASES)
@torch.no_grad()
def test_a_changed_parameter_is_noticed(change: str, how: str, freeze: bool) -> None:
    torch.compiler.reset()
    torch.manual_seed(0)
    m, x = Scaled(), torch.randn(9, 20)
    f = compiled(m, how, freeze)
    same(f(x), m(x))
    before = m(x)
    CHANGES[change](m)
    assert not torch.allclose(before, m(x))
    same(f(x), m(x))
    same(f(x), m(x))


@pytest.mark.parametrize("freeze", [False, True])
def test_a_number_of_two_bytes(freeze: bool) -> None:
    class Gain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.s = nn.Parameter(torch.tensor(1.0, dtype=torch.bfloat16))
            self.w = nn.Parameter(torch.full((64, 64), 1.0, dtype=torch.bfloat16))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.linear(x, self.w * self.s)

    m, x = Gain(), torch.ones(8, 64, dtype=torch.bfloat16)
    f = weft.compile(m, freeze=freeze)
    with torch.no_grad():
        assert f(x)[0, 0] == 64
        m.s = nn.Parameter(torch.tensor(3.0, dtype=torch.bfloat16))
        assert f(x)[0, 0] == 192


@torch.no_grad()
def test_frozen_parameters_are_packed_once() -> None:
    m, x = Scaled(), torch.randn(9, 20)
    names = [
        [k.name for k in weft.compile(m, freeze=freeze).prepare(x).report.kernels]
        for freeze in (False, True)
    ]
    assert [("pack_linear_weight_panels" in found) for found in names] == [False, True]


@torch.no_grad()
def test_torch_compile_packs_once_too() -> None:
    torch.compiler.reset()
    compiled(Scaled(), "torch.compile", True)(torch.randn(9, 20))
    assert "pack_linear_weight_panels" in [k.name for k in weft.report().kernels]


def test_parameters_made_in_inference_mode_are_not_kept() -> None:
    with torch.inference_mode():
        m, x = Scaled(), torch.randn(9, 20)
        f = weft.compile(m, freeze=True)
        same(f(x), m(x))
        m.linear.weight[0, 1] += 1  # has no version that could tell
        same(f(x), m(x))
    assert not any("panels" in k.name for k in f.report.kernels)


def test_training_packs_at_every_call() -> None:
    m, x = Scaled(), torch.randn(9, 20)
    f = weft.compile(m, freeze=True)
    f(x).sum().backward()
    assert not any("panels" in k.name for k in f.report.kernels)


@torch.no_grad()
def test_signatures_share_what_was_packed() -> None:
    m = nn.Linear(512, 1024)  # 2 MiB of weights
    f = weft.compile(m, freeze=True)
    gc.collect()
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
