"""Interpolation against eager: random sizes, scales, dtypes and layouts, forward and backward."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import weft
from tests.frontend.test_aten import failure
from weft.core.errors import UnsupportedOpError

aten = torch.ops.aten
MODES = {
    **{f"upsample_nearest{d}d": d for d in (1, 2, 3)},
    **{f"_upsample_nearest_exact{d}d": d for d in (1, 2, 3)},
    "upsample_linear1d": 1,
    "upsample_bilinear2d": 2,
    "upsample_trilinear3d": 3,
    "upsample_bicubic2d": 2,
    **{f"_upsample_{name}2d_aa": 2 for name in ("bilinear", "bicubic", "lanczos")},
}
SCALES = (0.3, 0.5, 0.77, 1.25, 1.5, 1.7, 2.0, 3.0, 3.3)


def calls(name: str, count: int) -> Any:
    """Random calls of an op, and of its gradient."""
    draw, rank = random.Random(name), MODES[name]
    least = 2 if name.endswith("_aa") else 1  # eager is wrong in channels_last for a width of 1
    op, back = (getattr(aten, f"{name}{part}").default for part in ("", "_backward"))
    for _ in range(count):
        n = [draw.randint(3 if least > 1 else 1, 19 if rank < 3 else 8) for _ in range(rank)]
        scales: list[Any] = [None] * rank
        m = [draw.randint(least, 19 if rank < 3 else 8) for _ in range(rank)]
        if draw.random() < 0.5:
            scales = [draw.choice(SCALES) for _ in range(rank)]
            m = [max(least, int(a * b)) for a, b in zip(n, scales, strict=True)]
        dtype = draw.choice((torch.float32, torch.float64, torch.bfloat16, torch.float16))
        align = [] if "nearest" in name else [draw.random() < 0.5]
        batch = draw.choice(((2, 3), (2, 3), (1, 1), (0, 2)))
        x, g = (torch.randn(*batch, *size).to(dtype) for size in (n, m))
        if draw.random() < 0.4:
            x, g = (t.transpose(0, 1).contiguous().transpose(0, 1) for t in (x, g))
        yield op, (x, m, *align, *scales)
        yield back, (g, m, [*x.shape], *align, *scales)


@pytest.mark.parametrize("name", MODES)
def test_calls_agree_with_eager(name: str) -> None:
    torch.manual_seed(0)
    declined = checked = 0
    for op, args in calls(name, 16):
        try:
            wanted = op(*args)
        except RuntimeError:  # ATen's gradients refuse some empty batches
            continue
        try:
            assert failure(op, args, {}, wanted) is None
            checked += 1
        except UnsupportedOpError:
            declined += 1
    assert checked >= 12 and declined <= 4


def trained(fn: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    x = x.detach().requires_grad_()
    out = fn(x)
    weights = torch.linspace(-1, 2, out.numel(), dtype=x.dtype).reshape(out.shape)
    return out, torch.autograd.grad(out, x, weights)[0]


TRAINED: dict[str, dict[str, Any]] = {
    "nearest": {"scale_factor": 2},
    "nearest-exact": {"size": (17, 5)},
    "bilinear": {"size": (13, 19)},
    "bilinear corners": {"scale_factor": 1.7, "align_corners": True},
    "bilinear smoothed": {"size": (4, 5), "antialias": True},
    "bicubic": {"scale_factor": 2},
    "bicubic smoothed": {"size": (13, 5), "antialias": True},
}


@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("name", TRAINED)
def test_in_training_nothing_is_taken_apart(name: str, last: bool) -> None:
    kind: dict[str, Any] = {"mode": name.split()[0], **TRAINED[name]}
    x = torch.randn(2, 3, 9, 11)
    x = x.contiguous(memory_format=torch.channels_last) if last else x

    def enlarged(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, **kind)

    compiled = weft.compile(enlarged)
    for found, wanted in zip(trained(compiled, x), trained(enlarged, x.double()), strict=True):
        torch.testing.assert_close(found, wanted.float(), rtol=1e-5, atol=1e-5)
    assert not compiled.report.externs
    assert "scatter" not in compiled.ir("tensor")


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize("how", [{"scale_factor": 2.0}, {"size": (9, 21)}], ids=str)
def test_sizes_that_are_free(mode: str, how: dict[str, Any]) -> None:
    def enlarged(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, mode=mode, **how)

    compiled = weft.compile(enlarged, dynamic=True)
    for shape in ((2, 3, 8, 9), (3, 2, 11, 7), (5, 4, 16, 23)):
        x = torch.randn(shape)
        for found, wanted in zip(trained(compiled, x), trained(enlarged, x), strict=True):
            torch.testing.assert_close(found, wanted, rtol=2e-5, atol=2e-5)
    assert len(compiled.programs) == 2


def test_what_is_infinite_stays_in_its_place() -> None:
    g = torch.randn(1, 1, 12, 14)
    g[0, 0, 5, 6] = torch.inf
    for how in ([False], [True]):
        args = ([12, 14], [1, 1, 6, 9], *how)
        back = weft.compile(lambda g, args=args: aten.upsample_bilinear2d_backward(g, *args))
        torch.testing.assert_close(back(g), aten.upsample_bilinear2d_backward(g, *args))


@pytest.mark.parametrize(("n", "m"), [(8, 4), (9, 3), (12, 2)])
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_the_gradient_of_every_other_place_gathers_nothing(mode: str, n: int, m: int) -> None:
    x = torch.randn(2, 3, n, n, requires_grad=True)
    f = weft.compile(lambda x: F.interpolate(x, size=(m, m), mode=mode))
    wanted = F.interpolate(x, size=(m, m), mode=mode)
    g = torch.randn_like(wanted)
    found = torch.autograd.grad(f(x), x, g)[0]
    assert torch.equal(found, torch.autograd.grad(wanted, x, g)[0])
    assert "gather" not in f.ir("tensor").split("program")[-1]
