"""flex_attention is traced into: its functions of a score are fused with the products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._higher_order_ops.flex_attention import flex_attention as flex_operator
from torch._subclasses import FakeTensorMode
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.testing._internal.hop_db import hop_db

import weft
from weft.frontend.subgraphs import in_blocks

Tensor = torch.Tensor
SLOPES = torch.tensor([0.5, 0.25, 0.125, 0.0625])
DOCUMENT = torch.arange(70) // 17


def blocks(mask: Callable[..., Tensor], n: int = 70, m: int = 70) -> Any:
    return create_block_mask(mask, None, None, n, m, device="cpu")


CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "scaled": {"scale": 0.3},
    "a captured tensor": {"score_mod": lambda s, b, h, i, j: s + (i - j) * SLOPES[h]},
    "a function": {"score_mod": lambda s, b, h, i, j: 20 * torch.tanh(s / 20)},
    "causal": {"block_mask": blocks(lambda b, h, i, j: i >= j)},
    "a window": {"block_mask": blocks(lambda b, h, i, j: (i >= j) & (i - j < 9))},
    "documents": {"block_mask": blocks(lambda b, h, i, j: DOCUMENT[i] == DOCUMENT[j])},
    "rows masked whole": {"block_mask": blocks(lambda b, h, i, j: (i > 3) & (j < 60))},
    "both": {
        "score_mod": lambda s, b, h, i, j: s + b,
        "block_mask": blocks(lambda b, h, i, j: i >= j),
    },
}


def inputs(dtype: torch.dtype = torch.float32, heads: int = 4) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = (2, 4, 70, 16), (2, heads, 70, 16), (2, heads, 70, 8)
    return [torch.randn(s, generator=generator).to(dtype) for s in shapes]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_is_one_program(name: str, dtype: torch.dtype) -> None:
    def fn(q: Tensor, k: Tensor, v: Tensor) -> Any:
        return flex_attention(q, k, v, **CASES[name])

    given = inputs(dtype)
    f = weft.compile(fn, fallback="error")
    got, exact = f(*given), fn(*(t.double() for t in given))
    assert got.dtype == dtype and not f.report.externs and not f.reasons
    tolerance = 2e-2 if dtype is torch.bfloat16 else 1e-5
    torch.testing.assert_close(got.double(), exact, rtol=tolerance, atol=tolerance)


def test_heads_share_keys_and_the_rest_is_given_too() -> None:
    """The operator itself: outside it torch refuses, on CPUs, what its backward reads."""
    mask = CASES["rows masked whole"]["block_mask"].as_tuple()

    def fn(q: Tensor, k: Tensor, v: Tensor) -> Any:
        return flex_operator(q, k, v, lambda s, *_: s * 2, mask, 0.25, {})

    given = inputs(heads=2)
    for got, wanted in zip(weft.compile(fn, fallback="error")(*given), fn(*given), strict=True):
        torch.testing.assert_close(got, wanted)


def test_keys_that_a_mask_rules_out_are_not_read() -> None:
    def fn(q: Tensor, k: Tensor, v: Tensor) -> Any:
        return flex_attention(q, k, v, block_mask=blocks(lambda b, h, i, j: i >= j, 1024, 1024))

    given = [torch.randn(1, 2, 1024, 64) for _ in range(3)]
    f = weft.compile(fn, fallback="error")
    torch.testing.assert_close(f(*given), fn(*given), rtol=1e-4, atol=1e-5)
    text = f.ir("tile").split("kernel div")[1]
    assert "a1 * 64 + 64" in text and "in 0..1024" not in text


LISTED: dict[str, Callable[..., Tensor]] = {
    "documents": lambda b, h, i, j: i // 100 == j // 100,
    "a prefix": lambda b, h, i, j: (i >= j) | (j < 100),
    "for each head": lambda b, h, i, j: (i // 64 + h) % 4 == j // 100,
    "none for some": lambda b, h, i, j: (i < 128) & (j > 200),
    "every other block": lambda b, h, i, j: (j // 32) % 2 == (i // 32) % 2,
    "a window of documents": lambda b, h, i, j: (i // 150 == j // 150) & (i >= j) & (i - j < 70),
}


@pytest.mark.parametrize("name", LISTED)
@pytest.mark.parametrize("size", [16, 64, 128])
def test_blocks_that_are_listed(name: str, size: int) -> None:
    """Those before the first and behind the last one of a block of rows are not read."""
    mask = create_block_mask(LISTED[name], None, 2, 390, 390, device="cpu", BLOCK_SIZE=size)

    def fn(q: Tensor, k: Tensor, v: Tensor) -> Any:
        return flex_attention(q, k, v, block_mask=mask)

    given = [torch.randn(1, 2, 390, 32, dtype=torch.float32) for _ in range(3)]
    f = weft.compile(fn, fallback="error")
    torch.testing.assert_close(f(*given), fn(*given), rtol=1e-4, atol=1e-5)


def test_blocks_are_listed_where_the_mask_is() -> None:
    """Traced of tensors of a GPU, nothing is made on a CPU."""
    with FakeTensorMode():
        count = torch.empty(1, 1, 4, dtype=torch.int32, device="cuda")
        listed = torch.empty(1, 1, 4, 4, dtype=torch.int32, device="cuda")
        found = in_blocks((64, 64, *(count, listed) * 2, *[None] * 8, 16, 16, None), 64, 64)
    assert found.device.type == "cuda" and found.shape == (1, 1, 64, 64)


def test_documents_read_their_own_keys() -> None:
    number = torch.arange(1024) // 100
    mask = blocks(lambda b, h, i, j: number[i] == number[j], 1024, 1024)
    given = [torch.randn(1, 2, 1024, 64) for _ in range(3)]
    f = weft.compile(lambda q, k, v: flex_attention(q, k, v, block_mask=mask), fallback="error")
    q, k, v = given
    wanted = flex_attention(q, k, v, block_mask=mask)
    torch.testing.assert_close(f(q, k, v), wanted, rtol=1e-4, atol=1e-5)
    text = f.ir("tile").split("kernel div")[1]
    assert "in 0..1024" not in text


def test_later_sizes() -> None:
    def fn(q: Tensor, k: Tensor, v: Tensor) -> Any:
        return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + (i - j))

    f = weft.compile(fn, fallback="error")
    for n in (8, 9, 10, 33):
        given = [torch.randn(1, 2, n, 16) for _ in range(3)]
        torch.testing.assert_close(f(*given), fn(*given))


@pytest.mark.parametrize("op", [op for op in hop_db if op.name == "flex_attention_backward"],
                         ids=lambda op: op.variant_test_name)  # fmt: skip
def test_its_gradient_is_one_program(op: Any) -> None:
    """That torch asks for on GPUs; on CPUs it makes none."""
    for sample in op.sample_inputs("cpu", torch.float32, requires_grad=False):
        f = weft.compile(op.op, fallback="error")
        got = f(sample.input, *sample.args, **sample.kwargs)
        wanted = op.op(sample.input, *sample.args, **sample.kwargs)
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
        assert not f.report.externs
