"""Calls on quantised values give what eager gives, to the bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # pyright: ignore  # registers the calls
from torch.utils._pytree import tree_leaves

import weft
from weft.frontend.schema import is_explicit

Q: Any = torch.ops.quantized_decomposed
aten: Any = torch.ops.aten
x, scale, zero = torch.linspace(-9, 9, 60).reshape(5, 12), torch.tensor(0.037), torch.tensor(3)
some = torch.arange(60, dtype=torch.uint8).reshape(5, 12)
signed = (torch.arange(60) - 30).to(torch.int8).reshape(5, 12)
scales, zeros = torch.linspace(0.01, 0.1, 12), torch.arange(12) - 6
I8, U8 = (-128, 127, torch.int8), (0, 255, torch.uint8)
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "number": (lambda x: Q.quantize_per_tensor(x, 0.037, 3, *U8), (x,)),
    "tensor": (lambda x, s, z: Q.quantize_per_tensor.tensor(x, s, z, *U8), (x, scale, zero)),
    "bf16": (
        lambda x, s, z: Q.quantize_per_tensor.tensor(x, s, z, *I8), (x.bfloat16(), scale, zero)
    ),
    "ends": (
        lambda *a: Q.quantize_per_tensor.tensor2(*a, torch.int8),
        (x, scale, zero, torch.tensor(-128), torch.tensor(127)),
    ),
    "back": (lambda c, s, z: Q.dequantize_per_tensor.tensor(c, s, z, *U8), (some, scale, zero)),
    "choose": (lambda x: Q.choose_qparams.tensor(x, 0, 255, 1e-6, torch.uint8), (x,)),
    "symmetric": (
        lambda x: Q.choose_qparams_symmetric.tensor(x, -128, 127, 1e-6, torch.int8), (x,)
    ),
    "channel": (lambda x, s, z: Q.quantize_per_channel(x, s, z, 1, *I8), (x, scales, zeros)),
    "channel back": (
        lambda c, s, z: Q.dequantize_per_channel(c, s, z, 1, *I8), (signed, scales, zeros)
    ),
    "token": (lambda x: Q.choose_qparams_per_token_asymmetric(x, torch.int8), (x,)),
    "convert": (lambda x: Q.convert_element_type(x, torch.float16), (x,)),
    "learnable": (
        lambda *a: aten._fake_quantize_learnable_per_tensor_affine(*a, -8, 7, 1.0),
        (x, torch.tensor([0.3]), torch.tensor([2.5])),
    ),
    "learnable by channel": (
        lambda *a: aten._fake_quantize_learnable_per_channel_affine(*a, 1, -8, 7, 1.0),
        (x, scales, torch.tensor([-0.5, 0.5, 1.5, 2.5, -1.5, 8, -9, 7.5, 6.5, 0, 1, 2])),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_call_of_its_own(name: str) -> None:
    program, given = PROGRAMS[name]
    ours, eager = weft.compile(program, fallback="error")(*given), program(*given)
    for got, want in zip(tree_leaves(ours), tree_leaves(eager), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0)


@pytest.mark.parametrize("sizes", [(17, 24, 13), (1, 8, 1), (0, 8, 3), (33, 128, 40)])
def test_products_of_codes(sizes: tuple[int, int, int]) -> None:
    """The largest codes: their sums leave what an f32 holds exactly behind."""
    m, k, n = sizes
    a, b = (torch.randint(-128, 127, s, dtype=torch.int8) for s in ((m, k), (k, n)))
    f = weft.compile(lambda a, b: aten._int_mm(a, b), fallback="error")
    assert torch.equal(f(a, b), aten._int_mm(a, b))
    full = torch.full_like(a, -128), torch.full_like(b, -128)
    assert torch.equal(f(*full), aten._int_mm(*full))


def test_a_scale_of_several_elements_is_refused() -> None:
    f = weft.compile(PROGRAMS["tensor"][0], fallback="error")
    with pytest.raises(weft.CaptureError, match="scale tensor to be one element, but received : 2"):
        f(x, torch.ones(2), zero)


def test_a_custom_op_stays_one_call() -> None:
    @torch.library.custom_op("weft_tests::doubled", mutates_args=())
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    assert not is_explicit(torch.ops.weft_tests.doubled.default)
    assert is_explicit(Q.quantize_per_channel.default)
