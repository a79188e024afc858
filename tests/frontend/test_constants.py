"""What parameters alone decide is computed at every call, or kept where they are frozen."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest
import torch
from torch import nn

import weft
from weft.runtime import kept


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
    before = len(kept.PACKED)
    for rows in (8, 9, 1, 3):
        x = torch.randn(rows, 512)
        same(f(x), m(x))
    assert len(kept.PACKED) == before + 1
    m.weight.mul_(2)
    for rows in (3, 1, 8):
        x = torch.randn(rows, 512)
        same(f(x), m(x))
    del f
    gc.collect()
    assert len(kept.PACKED) == before


@torch.no_grad()
def test_another_tensor_at_the_same_address_is_noticed() -> None:
    """Memory that is free is used again: neither address nor version tells the new weight."""
    m, x, at = nn.Linear(512, 512), torch.randn(16, 512), 0
    f = weft.compile(m, freeze=True)
    for _ in range(20):
        m.weight = nn.Parameter(torch.zeros(1))
        m.weight = nn.Parameter(torch.randn(512, 512))
        at, before = m.weight.data_ptr(), at
        same(f(x), m(x))
        if at == before:
            return
    pytest.skip("no memory was used again")


class Pair(nn.Module):
    def __init__(self, other: nn.Linear | None = None) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(512, 512), other or nn.Linear(512, 512)

    def forward(self, x: torch.Tensor, both: bool) -> torch.Tensor:
        return self.second(self.first(x)) if both else self.second(x)


@torch.no_grad()
@pytest.mark.parametrize("drop", [False, True])
def test_all_programs_keep_one_copy_of_a_weight(drop: bool) -> None:
    """Also where it has another name in each: in modules that share it, and for other sizes."""
    m, x = Pair(), torch.randn(16, 512)
    f, g = (weft.compile(each, freeze=True, drop=drop) for each in (m, Pair(m.first)))
    for rows, both in ((16, False), (16, True), (9, True)):
        same(f(x[:rows], both), m(x[:rows], both))
    assert f.report.kept_bytes == 2 * m.first.weight.nbytes
    before = len(kept.PACKED)
    same(g(x, False), m.first(x))
    assert len(kept.PACKED) == before
    m.first.weight.mul_(2)
    same(g(x, False), m.first(x))
    same(f(x, True), m(x, True))
