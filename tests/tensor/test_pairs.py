"""Which sums of products run over pairs of bf16, and that they mean the same."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import weft
from weft.interpret.tensors import evaluate
from weft.scalar.structure import restates
from weft.targets.cpu import CPUS
from weft.tensor.pairs import pair_bf16
from weft.tensor.verify import verify
from weft.text import parse_program, print_program

PRODUCT = """program tensor matmul
input x: bf16[4,{k}]
input w: bf16[{k},5]
v0 = map{{f32}}(x): f32[4,{k}]
v1 = view{{[4,5,{k}] -> (i0, i2)}}(v0): f32[4,5,{k}]
v2 = map{{f32}}(w): f32[{k},5]
v3 = view{{[4,5,{k}] -> (i2, i1)}}(v2): f32[4,5,{k}]
v4 = map{{multiply}}(v1, v3): f32[4,5,{k}]
v5 = reduce{{sum, axes=(2,)}}(v4): f32[4,5,1]
output v5
"""


@pytest.mark.parametrize("name, k", [("even", 6), ("odd", 7)])
def test_pairs_mean_the_same(name: str, k: int, golden: Callable[[str, str], None]) -> None:
    graph = parse_program(PRODUCT.format(k=k))
    random = np.random.default_rng(0)
    inputs = [random.standard_normal(n.type.shape).astype(n.type.dtype.numpy) for n in graph.inputs]
    paired = pair_bf16(graph)
    verify(paired)
    want, got = (evaluate(g, inputs, widen=True)[0] for g in (graph, paired))
    np.testing.assert_allclose(got, want, rtol=1e-14, atol=1e-14)
    golden(f"tensor/pairs_{name}.txt", print_program(paired))


def randn(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(shape, dtype=dtype)


def compiled(fn: Callable[..., torch.Tensor], target: str, *args: torch.Tensor) -> str:
    """The tensor level, once the C has given what float64 gives."""
    f = weft.compile(fn, target=target, fallback="error")
    y, exact = f(*args), fn(*(a.double() for a in args))
    assert (y - exact).norm() <= 4e-3 * exact.norm()
    return f.ir("tensor")


PAIRED = {
    "linear": (F.linear, randn(8, 64), randn(48, 64)),
    "bias and gelu": (lambda x, w, b: F.gelu(x @ w + b), randn(8, 33), randn(33, 40), randn(40)),
    "transposed": (lambda x, w: x.t() @ w, randn(64, 8), randn(64, 48)),
    "heads of a slice": (
        lambda x: (lambda q, k: q @ k.transpose(1, 2))(*x.view(2, 16, 3, 16).unbind(2)[:2]),
        randn(2, 16, 48),
    ),
    "merged heads": (
        lambda x, w: x.transpose(0, 1).reshape(9, 32) @ w.t(), randn(2, 9, 16), randn(20, 32)
    ),
    "convolution": (partial(F.conv2d, padding=1), randn(2, 6, 9, 9), randn(8, 6, 3, 3)),
}  # fmt: skip
APART = {
    "float16": (torch.mm, randn(8, 64, dtype=torch.float16), randn(64, 8, dtype=torch.float16)),
    "one row": (torch.mm, randn(1, 64), randn(64, 48)),
    "depthwise": (partial(F.conv2d, groups=6), randn(2, 6, 9, 9), randn(6, 1, 3, 3)),
    "an f32 factor": (lambda x, w: x.float().exp() @ w.float(), randn(8, 64), randn(64, 8)),
}


@pytest.mark.parametrize("case", PAIRED)
def test_paired(case: str) -> None:
    fn, *args = PAIRED[case]
    assert "dot_bf16" in compiled(fn, "cpu:avx512_bf16", *args)
    assert "bf16pair" not in compiled(fn, "cpu:avx512", *args)


@pytest.mark.parametrize("case", APART)
def test_apart(case: str) -> None:
    fn, *args = APART[case]
    assert "bf16pair" not in compiled(fn, "cpu:avx512_bf16", *args)


def test_specials_pass_through() -> None:
    x, w = torch.zeros(16, 16, dtype=torch.bfloat16), torch.zeros(16, 32, dtype=torch.bfloat16)
    x[:, 3] = 1
    w[3, :6] = torch.tensor([torch.inf, -torch.inf, torch.nan, 3.0e38, -0.25, 1.2e-38])
    y = weft.compile(torch.mm, target="cpu:avx512_bf16")(x, w)
    torch.testing.assert_close(y, w[3:4].expand(16, 32), rtol=0, atol=0, equal_nan=True)


def test_only_what_has_the_instruction_pairs() -> None:
    assert [name for name, cpu in CPUS.items() if cpu.pairs] == ["avx512_bf16"]


@pytest.mark.parametrize("fn", [lambda x, w: x @ w.t(), lambda x, w: x[:, 16:48] @ w[:, :32].t()])
def test_rows_are_read_where_they_lie(fn: Callable[..., torch.Tensor]) -> None:
    x, w = randn(8, 64), randn(48, 64)
    f = weft.compile(fn, target="cpu:avx512_bf16")
    y, exact = f(x, w), fn(x.double(), w.double())
    assert (y - exact).norm() <= 4e-3 * exact.norm()
    assert f.ir("loop").count("\nkernel ") == 3 and len(f.report.kernels) == 1


PACK = """program loop pack
input x: bf16[3,8]

kernel p(x: bf16[3,8]) -> p: bf16pair[{shape}]
for a0 in 0..3:  # free
    for a1 in 0..4:  # free
        in0 = load x[a0, {low}]
        in1 = load x[a0, {high}]
        v0 = pack_bf16(in0, in1)
        p[{to}] = v0

output p
"""


@pytest.mark.parametrize(
    "shape, low, high, to, same",
    [
        ("3,4", "a1 * 2", "a1 * 2 + 1", "a0, a1", True),
        ("12", "a1 * 2", "a1 * 2 + 1", "a0 * 4 + a1", True),
        ("3,4", "a1 * 2 + 1", "a1 * 2", "a0, a1", False),
        ("3,4", "a1", "a1 + 1", "a0, a1", False),
        ("3,4", "a1 * 2", "a1 * 2", "a0, a1", False),
        ("4,3", "a1 * 2", "a1 * 2 + 1", "a1, a0", False),
    ],
)
def test_what_restates_its_input(shape: str, low: str, high: str, to: str, same: bool) -> None:
    program = parse_program(PACK.format(shape=shape, low=low, high=high, to=to))
    (kernel,) = program.kernels
    assert restates(kernel.body) is same
