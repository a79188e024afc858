"""Products with weights that are stored as codes: of 8 and 4 bits, with a scale for each group."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import weft
from tests.agree.checks import check


def weights(codes: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor | None, dtype: Any) -> Any:
    """Bytes [N, K] (i8), or nibbles [N, K / g, g / 2] (u8), times a scale [N, K / g]."""
    if codes.dtype is torch.int8:
        whole = codes.to(dtype).unflatten(-1, (scale.shape[1], -1))
    else:
        whole = torch.cat((codes & 15, codes >> 4), -1).to(dtype)
        whole = whole - (8 if zero is None else zero[..., None].to(dtype))
    return (whole * scale[..., None].to(dtype)).flatten(-2)


def linear(x: torch.Tensor, codes: torch.Tensor, scale: torch.Tensor, *zero: Any) -> torch.Tensor:
    return F.linear(x, weights(codes, scale, zero[0] if zero else None, x.dtype))


def inputs(rows: int, n: int, k: int, group: int, bits: int, dtype: torch.dtype, zero: bool) -> Any:
    draw = torch.Generator().manual_seed(rows + n + k + group)
    scale = torch.rand(n, k // group, generator=draw).add_(0.1)
    if bits == 8:
        codes = torch.randint(-128, 128, (n, k), generator=draw).to(torch.int8)
    else:
        codes = torch.randint(0, 256, (n, k // group, group // 2), generator=draw).to(torch.uint8)
    x = torch.randn(rows, k, generator=draw).to(dtype)
    return (x, codes, scale, *([torch.rand(n, k // group, generator=draw) * 15] if zero else []))


# rows, columns, terms, group, bits, with zero points
SMALL = [
    (1, 9, 128, 32, 4, False),
    (3, 5, 128, 64, 4, True),
    (1, 1, 64, 32, 4, False),
    (2, 7, 96, 32, 8, False),
    (13, 17, 64, 32, 4, False),
    (5, 33, 24, 8, 4, False),
]


@pytest.mark.parametrize("case", SMALL, ids=str)
def test_every_executor_agrees(case: Any) -> None:
    *sizes, zero = case
    check(linear, inputs(*sizes, torch.float32, zero))


ROWS = (1, 2, 7, 11, 12, 40)
FORMS = [(64, 512, 32), (70, 320, 64), (96, 1536, 128)]
KINDS = [(4, torch.float32, False), (4, torch.bfloat16, True), (8, torch.float32, False)]
LARGE = [(m, FORMS[(m + i) % 3], *kind) for m in ROWS for i, kind in enumerate(KINDS)]


@pytest.mark.parametrize("case", LARGE, ids=str)
@pytest.mark.parametrize("freeze", [False, True], ids=["called", "frozen"])
def test_native_products_are_as_exact_as_eagers(case: Any, freeze: bool) -> None:
    rows, (n, k, group), bits, dtype, zero = case
    x, *stored = inputs(rows, n, k, group, bits, dtype, zero)

    class Codes(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, value in zip(("codes", "scale", "zero"), stored, strict=False):
                self.register_buffer(name, value)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return linear(x, *self.buffers())

    module = Codes()
    with torch.no_grad():
        exact = linear(x.double(), *(t.double() if t.is_floating_point() else t for t in stored))
        eager, ours = module(x), weft.compile(module, freeze=freeze)(x)
    off, own = ((t.double() - exact).norm() / exact.norm() for t in (ours, eager))
    assert off <= 2 * own + 1e-6


def test_codes_that_change_are_read_again() -> None:
    """Frozen too: what was computed of them is of another version."""
    x, codes, scale = inputs(1, 64, 256, 32, 4, torch.float32, False)

    class Codes(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.codes, self.scale = torch.nn.Buffer(codes), torch.nn.Buffer(scale)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return linear(x, self.codes, self.scale)

    module = Codes()
    compiled = weft.compile(module, freeze=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), module(x), rtol=1e-4, atol=1e-4)
        module.codes.bitwise_xor_(255)
        torch.testing.assert_close(compiled(x), module(x), rtol=1e-4, atol=1e-4)
        module.scale = torch.nn.Buffer(scale * 3)
        torch.testing.assert_close(compiled(x), module(x), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("bits", [4, 8])
def test_rows_of_any_number(bits: int) -> None:
    """One program: few rows are in registers, by blocks and what is left of them."""
    f = weft.compile(linear, dynamic=True)
    for rows in (3, 2, 7, 4, 30, 9):
        x, *stored = inputs(rows, 40, 128, 32, bits, torch.float32, False)
        with torch.no_grad():
            torch.testing.assert_close(f(x, *stored), linear(x, *stored), rtol=1e-4, atol=1e-3)
    assert len(f.programs) == 1
