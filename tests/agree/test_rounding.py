"""What is rounded once: the sum of a product and an accumulator, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import weft

Function = Callable[..., torch.Tensor]

APART: dict[str, Function] = {
    "subtract": lambda x, y: x * x - y * y,
    "sqrt": lambda x, y: (x * x - y * y).sqrt().isnan(),
    "add": lambda x, y: x * x + -(y * y),
    "axpy": lambda x, y: x * 3 + y,
    "lerp": lambda x, y: x * y - x * y.flip(0),
}
SUMS: dict[str, tuple[Function, tuple[tuple[int, ...], ...]]] = {
    "matmul": (torch.matmul, ((40, 30), (30, 50))),
    "mv": (torch.mv, ((40, 30), (30,))),
    "dot": (lambda x, y: (x * y).sum(), ((1000,), (1000,))),
    "squares": (lambda x: (x * x).sum(1), ((40, 37),)),
    "conv": (F.conv2d, ((1, 8, 10, 10), (8, 8, 3, 3))),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", APART)
def test_what_eager_rounds_twice(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.randn(1003, dtype=dtype)
    y = x.clone()
    y[::3] = torch.randn(335, dtype=dtype)
    torch.testing.assert_close(
        weft.compile(APART[name])(x, y), APART[name](x, y), rtol=0, atol=0, equal_nan=True
    )


@pytest.mark.parametrize("target", ["cpu:avx2", "cpu:avx512", "cuda:sm_80"])
@pytest.mark.parametrize("name", SUMS)
def test_sums_of_products_are_fused(name: str, target: str) -> None:
    function, shapes = SUMS[name]
    compiled = weft.compile(function, target=target)
    compiled.prepare(*(torch.randn(*shape) for shape in shapes))
    text = compiled.ir("kernel")
    assert " <- fma(" in text and "multiply(" not in text, text
