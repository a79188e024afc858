"""Transposed convolutions in phases: as eager in float64, and no product with zeros in between."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
import torch
from torch import nn

import weft

CONVOLUTIONS = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
# kernel, stride, padding, output padding, dilation, groups; and extents
CASES: dict[str, tuple[tuple[Any, ...], tuple[int, ...]]] = {
    "even": ((4, 2, 1), (5, 7)),
    "odd": ((3, 2, 1, 1), (5, 7)),
    "apart": ((2, 3), (4, 5)),  # some positions get nothing
    "one tap": ((1, 2), (4, 5)),
    "dilated": ((3, 2, 2, 1, 3), (5, 6)),
    "dilated alike": ((3, 4, 1, 2, 6), (3, 4)),  # in common: 2
    "dilated as strided": ((3, 2, 2, 0, 2), (5, 6)),
    "grouped": ((4, 2, 1, 0, 1, 2), (5, 7)),
    "by axis": (((3, 5), (1, 4), (2, 1), (0, 3), (2, 1)), (6, 3)),
    "line": ((8, 4, 2), (9,)),
    "box": ((3, 2, 1), (3, 4, 2)),
    "row": ((5, 3, 0), (1,)),
}


def built(name: str) -> tuple[nn.Module, torch.Tensor]:
    (kernel, stride, *more), extents = CASES[name]
    padding, output_padding, dilation, groups = [*more, *(0, 0, 1, 1)[len(more) :]]
    made = CONVOLUTIONS[len(extents)](
        4, 6, kernel, stride, padding, output_padding, groups, dilation=dilation
    )
    return made, torch.randn(2, 4, *extents)


@pytest.mark.parametrize("name", CASES)
def test_as_eager(name: str) -> None:
    module, x = built(name)
    f = weft.compile(module, fallback="error")
    x.requires_grad_()
    y, exact = f(x), module.double()(x.double())
    torch.testing.assert_close(y.double(), exact, rtol=1e-5, atol=1e-5)
    g = torch.randn_like(exact)
    wanted = torch.autograd.grad(exact, [x, *module.parameters()], g)
    module.float()
    found = torch.autograd.grad(f(x), [x, *module.parameters()], g.float())
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b.to(a.dtype), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", CASES)
def test_strided_gradients(name: str) -> None:
    """The gradient of a strided convolution is a transposed one."""
    made, _ = built(name)
    kernel, stride, dilation = made.kernel_size, made.stride, made.dilation
    extents = [9 + d * k for k, d in zip(kernel, dilation, strict=True)]  # type: ignore[arg-type]
    conv = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[len(extents)]
    module = conv(4, 6, kernel, stride, 1, dilation, made.groups)  # type: ignore[arg-type]
    x = torch.randn(2, 4, *extents, requires_grad=True)
    (found,) = torch.autograd.grad(weft.compile(module, fallback="error")(x).sum(), x)
    (wanted,) = torch.autograd.grad(module(x).sum(), x)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("name", "products"), [("even", 2 * 2), ("odd", 9 / 4), ("box", 27 / 8)])
def test_products(name: str, products: float) -> None:
    """Of each output element as many as taps read it: 9 of 4 positions for 3x3 by 2."""
    module, x = built(name)
    f = weft.compile(module)
    with torch.no_grad():
        out = f(x)
    sums = re.findall(r"reduce\{sum.*\((v\d+)\)", text := weft.ir(f, "tensor"))
    shapes = [re.search(rf"{v} = map{{multiply}}.*\[(.*)\]", text) for v in sums]
    count = sum(torch.Size(map(int, s[1].split(","))).numel() for s in shapes if s)
    turns = math.prod(-(-size // 2) * 2 for size in out.shape[2:])  # not all of the last is used
    assert count == products * 2 * 6 * 4 * turns
