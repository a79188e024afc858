"""Which sums of products of bytes run over words of four, and that they are the same numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

import weft
from weft.core.node import Graph
from weft.interpret.tensors import evaluate
from weft.tensor.quads import join_bytes
from weft.tensor.verify import verify
from weft.text import parse_program, print_program

PRODUCT = """program tensor matmul
input x: {x}[{m},{k}]
input w: {w}[{n},{k}]
v0 = map{{i32}}(x): i32[{m},{k}]
v1 = map{{subtract}}(v0, {zero}:i32): i32[{m},{k}]
v2 = view{{[{m},{n},{k}] -> (i0, i2)}}(v1): i32[{m},{n},{k}]
v3 = map{{i32}}(w): i32[{n},{k}]
v4 = view{{[{m},{n},{k}] -> (i1, i2)}}(v3): i32[{m},{n},{k}]
v5 = map{{multiply}}(v2, v4): i32[{m},{n},{k}]
v6 = reduce{{sum, axes=(2,)}}(v5): i32[{m},{n},1]
output v6
"""
HALVES = """program tensor halves
input x: i8[{m},3,8]
input c: u8[16,3,4]
c0 = map{{and}}(c, 15:u8): u8[16,3,4]
c1 = map{{shift_right}}(c, 4:u8): u8[16,3,4]
low = view{{[16,3,8] -> (i0, i1, i2) where i2 < 4 else 0}}(c0): u8[16,3,8]
high = view{{[16,3,8] -> (i0, i1, i2 - 4) where i2 >= 4 else 0}}(c1): u8[16,3,8]
first = index{{[16,3,8] -> i2 < 4}}: bool[16,3,8]
q = map{{where}}(first, low, high): u8[16,3,8]
v0 = map{{i32}}(q): i32[16,3,8]
v1 = map{{subtract}}(v0, 8:i32): i32[16,3,8]
v2 = view{{[{m},16,3,8] -> (i1, i2, i3)}}(v1): i32[{m},16,3,8]
v3 = map{{i32}}(x): i32[{m},3,8]
v4 = view{{[{m},16,3,8] -> (i0, i2, i3)}}(v3): i32[{m},16,3,8]
v5 = map{{multiply}}(v4, v2): i32[{m},16,3,8]
v6 = reduce{{sum, axes=(3,)}}(v5): i32[{m},16,3,1]
output v6
"""


def same(graph: Graph, seed: int = 0) -> Graph:
    """The graph by words, which computes the same numbers; bytes at the ends of their range."""
    random = np.random.default_rng(seed)
    inputs: list[np.ndarray] = []
    for n in graph.inputs:
        ends = np.iinfo(n.type.dtype.numpy)
        bytes_ = random.integers(ends.min, ends.max, n.type.shape, endpoint=True)
        extremes = random.choice([ends.min, ends.max], n.type.shape)
        inputs.append(np.where(random.random(n.type.shape) < 0.5, extremes, bytes_))
        inputs[-1] = inputs[-1].astype(n.type.dtype.numpy)
    joined = join_bytes(graph)
    verify(joined)
    want, got = (evaluate(g, inputs)[0] for g in (graph, joined))
    np.testing.assert_array_equal(got, want)
    return joined


@pytest.mark.parametrize("m", [1, 6])
def test_halves(m: int, golden: Callable[[str, str], None]) -> None:
    joined = print_program(same(parse_program(HALVES.format(m=m))))
    assert joined.count("dot_bytes") == (
        3 if m == 1 else 2
    )  # one of all, and one of the other side
    golden(f"tensor/quads_{m}.txt", joined)


@pytest.mark.parametrize("x", ["i8", "u8"])
@pytest.mark.parametrize("w", ["i8", "u8"])
@pytest.mark.parametrize("zero", [0, -7])
@pytest.mark.parametrize("m, n, k", [(5, 7, 8), (7, 5, 6), (1, 9, 12), (4, 4, 1)])
def test_any_signs(x: str, w: str, zero: int, m: int, n: int, k: int) -> None:
    graph = parse_program(PRODUCT.format(x=x, w=w, zero=zero, m=m, n=n, k=k))
    same(graph)
    if m > 4 and k % 4 == 0:
        assert "dot_bytes" in print_program(join_bytes(graph))


def integers(*shape: int, low: int = -128, high: int = 128) -> Tensor:
    dtype = torch.int8 if low < 0 else torch.uint8
    return torch.randint(low, high, shape, dtype=dtype)


def product(x: Tensor, w: Tensor) -> Tensor:
    return x.int() @ w.int().t()


def zeros(x: Tensor, w: Tensor, z: Tensor, v: Tensor) -> Tensor:
    return (x.int() - z[:, None].int()) @ (w.int() - v[:, None].int()).t()


def batched(x: Tensor, w: Tensor) -> Tensor:
    return torch.einsum("bgk,ngk->bng", x.int(), w.int() - 3)


JOINED = {
    "signed": (product, integers(8, 64), integers(48, 64)),
    "one row": (product, integers(1, 64), integers(48, 64)),
    "three rows": (product, integers(3, 64), integers(48, 64)),
    "odd": (product, integers(8, 63), integers(33, 63)),
    "unsigned": (product, integers(8, 64, low=0, high=256), integers(48, 64, low=0, high=256)),
    "mixed": (product, integers(8, 64, low=0, high=256), integers(48, 64)),
    "_int_mm": (lambda x, w: torch._int_mm(x, w.t()), integers(32, 64), integers(48, 64)),
    "zero points": (
        zeros,
        integers(8, 64, low=0, high=256),
        integers(48, 64),
        integers(8, low=0, high=256),
        integers(48),
    ),
    "groups": (batched, integers(9, 3, 16), integers(21, 3, 16)),
    "groups of one row": (batched, integers(1, 8, 16), integers(21, 8, 16)),
    "wrapped": (
        lambda x, w: product(x, w) * 0x01000001,
        torch.full((4, 256), -128, dtype=torch.int8),
        torch.full((5, 256), -128, dtype=torch.int8),
    ),
}


@pytest.mark.parametrize("case", JOINED)
def test_compiled(case: str) -> None:
    fn, *args = JOINED[case]
    f = weft.compile(fn, target="cpu:avx512_bf16", fallback="error")
    assert torch.equal(f(*args), fn(*args))
    assert "dot_bytes" in f.ir("tensor")
    plain = weft.compile(fn, target="cpu:avx2", fallback="error")
    assert torch.equal(plain(*args), fn(*args))
    assert "dot_bytes" not in plain.ir("tensor")


APART = {
    "columns of one row": (lambda x, w: x.int() @ w.int(), integers(1, 64), integers(64, 48)),
    "wider": (lambda x, w: x.int() @ w.int(), integers(8, 64).short(), integers(64, 48)),
    "long sums": (lambda x, w: x.long() @ w.long(), integers(8, 64), integers(64, 48)),
}


@pytest.mark.parametrize("case", APART)
def test_apart(case: str) -> None:
    fn, *args = APART[case]
    f = weft.compile(fn, target="cpu:avx512_bf16", fallback="error")
    assert torch.equal(f(*args), fn(*args)) and "dot_bytes" not in f.ir("tensor")


def test_rows_are_read_where_they_lie() -> None:
    f = weft.compile(product, target="cpu:avx512_bf16", fallback="error")
    x, w = integers(1, 64), integers(48, 64)
    assert torch.equal(f(x, w), product(x, w))
    assert f.ir("loop").count("pack_bytes") == 2 and len(f.report.kernels) == 1
