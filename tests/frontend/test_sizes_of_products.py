"""Products for any size: what their temporaries take, how they are shared out, where they read."""

from __future__ import annotations

import re

import pytest
import torch

import weft
from weft.runtime.sizes import in_c, value


def rows_of_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a @ b).softmax(-1)


@pytest.mark.parametrize(
    ("dtype", "sizes"),
    [
        (torch.bfloat16, [(300, 15, 300), (1000, 7, 200)]),  # panels of pairs of an odd depth
        (torch.float32, [(2000, 100, 3000), (70, 9, 33)]),  # rows after a product of many panels
        (torch.float16, [(2000, 7, 1000)]),
    ],
    ids=str,
)
def test_rows_of_products(dtype: torch.dtype, sizes: list[tuple[int, int, int]]) -> None:
    f = weft.compile(rows_of_product, dynamic=True)
    for m, k, n in sizes:
        a, b = torch.randn(m, k).to(dtype), (torch.randn(k, n) / k**0.5).to(dtype)
        want = rows_of_product(a.double(), b.double())
        error, eagers = ((y.double() - want).abs().max() for y in (f(a, b), rows_of_product(a, b)))
        assert error <= 2 * eagers + 1e-7
    assert not f.reasons


def test_heads_are_told_from_batches_by_one_division() -> None:
    """A tensor of four free sizes has as many elements as an i64 can count."""

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return (q @ k.transpose(-1, -2)).softmax(-1) @ v

    f = weft.compile(attention, dynamic=True)
    for shape in ((2, 3, 70, 32), (3, 2, 33, 16)):
        q, k, v = (torch.randn(*shape) for _ in range(3))
        torch.testing.assert_close(f(q, k, v), attention(q, k, v))
    text = weft.ir(f, "loop")
    assert "load q[a0 // s1, a0 % s1, a1, a3]" in text
    assert not re.search(r"// \(s\d \* s\d", text) and len(f.programs) == 1


@pytest.mark.parametrize("text", ["s0 * -1 // 2 * -1", "(s0 + -9) // 4 % 3", "max(s0, 7) // 2"])
def test_quotients_in_c_are_those_of_python(text: str) -> None:
    names = {
        "weft_quotient": lambda a, b: (a - names["weft_rest"](a, b)) // b,
        "weft_rest": lambda a, b: (c_rest(a, b) + b) % b,
        "max": max,
    }

    def c_rest(a: int, b: int) -> int:
        return a - int(a / b) * b

    for size in range(20):
        assert eval(in_c(text), names, {"s0": size}) == value(text, {"s0": size})
