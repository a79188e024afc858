"""What shares a kernel, at sizes where one cache or another is exceeded: by price alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import weft

Program = Callable[[torch.Tensor], torch.Tensor]
SHAPES = [(32, 64), (512, 768), (4096, 4096)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(
    "program",
    [
        lambda x: F.rms_norm(x, x.shape[-1:]),
        lambda x: F.layer_norm(x, x.shape[-1:]),
        lambda x: F.softmax(x, -1),
        lambda x: F.gelu(x) * x + 1,
    ],
    ids=["rms_norm", "layer_norm", "softmax", "gelu"],
)
def test_one_pass_over_rows_is_one_kernel(program: Program, shape: tuple[int, int]) -> None:
    compiled = weft.compile(program, target="cpu:avx512")
    compiled.prepare(torch.empty(shape))
    assert len(compiled.report.kernels) == 1


def entropy(x: torch.Tensor) -> torch.Tensor:
    """Its last pass over a row reads the row's sum, and the logarithm of it by a kernel between."""
    d = x - x.amax(-1, keepdim=True)
    e = d.exp()
    r = e.sum(-1, keepdim=True).reciprocal()
    return (e * r * (d + r.log())).sum(-1)


@pytest.mark.parametrize("shape", [(32, 64), (512, 4096)], ids=str)
def test_kernels_join_with_what_stands_between(shape: tuple[int, int]) -> None:
    compiled = weft.compile(entropy, target="cpu:avx512")
    compiled.prepare(torch.empty(shape))
    assert len(compiled.report.kernels) == 1


def adam(p: torch.Tensor, g: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> tuple[Any, ...]:
    m = m * 0.9 + g * 0.1
    v = v * 0.99 + g * g * 0.01
    return p - 0.001 * m / (v.sqrt() + 1e-8), m, v


@pytest.mark.parametrize("rows", [64, 1024, 16384])
def test_what_comes_from_memory_is_read_once(rows: int) -> None:
    """Also where each of several kernels would fit in the last cache, and one does not."""
    compiled = weft.compile(adam, target="cpu:avx512")
    compiled.prepare(*(torch.empty(rows, 1024) for _ in range(4)))
    assert len(compiled.report.kernels) == 1


Tensors = torch.Tensor | tuple[torch.Tensor, ...]


def scores(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return q @ k.transpose(-1, -2) / 8


def unnormalised(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Tensors:
    e = scores(q, k).exp()
    return (e @ v) / e.sum(-1, keepdim=True)


def by_logarithm(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Tensors:
    return scores(q, k).log_softmax(-1).exp() @ v


def by_logsumexp(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Tensors:
    s = scores(q, k)
    return (s - s.logsumexp(-1, keepdim=True)).exp() @ v


def standardised(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Tensors:
    s = scores(q, k)
    return ((s - s.mean(-1, keepdim=True)) / s.std(-1, keepdim=True)).softmax(-1) @ v


def with_entropy(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Tensors:
    p = scores(q, k).softmax(-1)
    return p @ v, -(p * (p + 1e-9).log()).sum(-1)


def two_products(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Tensors:
    p = scores(q, k).softmax(-1)
    return p @ v, p @ k


def grouped(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Tensors:
    k, v = (t[:2].repeat_interleave(4, 0) for t in (k, v))
    return scores(q, k).softmax(-1) @ v


ATTENTIONS = [
    unnormalised, by_logarithm, by_logsumexp, standardised, with_entropy, two_products, grouped,
]  # fmt: skip


@pytest.mark.parametrize("program", ATTENTIONS)
def test_what_reads_scores_row_by_row_is_one_kernel(program: Callable[..., Tensors]) -> None:
    """Beside those that pack operands."""
    compiled = weft.compile(program, target="cpu:avx2")
    compiled.prepare(*(torch.empty(8, 1024, 64) for _ in range(3)))
    big = [k for k in compiled.report.kernels if not k.name.startswith("pack")]
    assert len(big) == 1
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(8, 333, 64, generator=generator) for _ in range(3))
    found, exact = weft.compile(program)(q, k, v), program(q.double(), k.double(), v.double())
    pairs = [(found, exact)] if isinstance(found, torch.Tensor) else zip(found, exact, strict=True)
    for mine, right in pairs:
        torch.testing.assert_close(mine.double(), right, rtol=1e-5, atol=1e-5)


def written_rows(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Tensors:
    p = scores(q, k).softmax(-1)
    y = p @ v
    q.add_(1)
    return y, p @ (k + q)


def written_values(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Tensors:
    p = scores(q, k).softmax(-1)
    y = p @ v
    v.copy_(y)
    return y.relu(), p @ k


@pytest.mark.parametrize("program", [written_rows, written_values])
def test_what_is_written_between_two_products_is_read_before(
    program: Callable[..., Tensors],
) -> None:
    """The kernel of both stands where the second one stood."""
    generator = torch.Generator().manual_seed(0)
    args = [torch.randn(8, 511, 64, generator=generator) for _ in range(3)]
    exact = [t.double() for t in args]
    right, found = program(*exact), weft.compile(program)(*args)
    for mine, other in zip((*found, *args), (*right, *exact), strict=True):
        torch.testing.assert_close(mine.double(), other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(33, 65), (1, 64), (64, 1), (1, 1), (7, 1000)], ids=str)
@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_results_without_an_axis_are_stored_beside_those_with_it(
    shape: tuple[int, int], keepdim: bool, axis: int
) -> None:
    """Also where the axis that is gone, or the other one, has one element."""

    def run(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        m = x.amax(axis, keepdim=True)
        s = (x - m).exp().mean(axis, keepdim=True)
        return m, s, (x * s - m.sin()).sum(axis, keepdim=keepdim), (x[2:3] + x).sum(axis)

    x = torch.randn(shape)
    if shape[0] == 1:
        run = lambda x: (x.amax(axis), (x * x.sum(axis, keepdim=True)).sum(axis))  # noqa: E731
    exact = run(x.double())
    for found, right in zip(weft.compile(run)(x), exact, strict=True):
        torch.testing.assert_close(found.double(), right, rtol=1e-5, atol=1e-4)
    assert [y.shape for y in weft.compile(run)(x)] == [y.shape for y in exact]


def test_a_norm_is_not_computed_again_for_every_column_of_a_product() -> None:
    model = nn.Sequential(nn.RMSNorm(256), nn.Linear(256, 512, bias=False))
    compiled = weft.compile(model, target="cpu:avx512")
    with torch.no_grad():
        compiled.prepare(torch.empty(64, 256))
    assert len([k for k in compiled.report.kernels if not k.name.startswith("pack")]) == 2


def test_statistics_of_a_group_are_not_computed_again_for_every_channel() -> None:
    """What is read twice stands in the last cache: the second read is no reason to fuse."""
    compiled = weft.compile(nn.GroupNorm(8, 64), target="cpu:avx512")
    with torch.no_grad():
        compiled.prepare(torch.empty(4, 64, 56, 56))
    assert len(compiled.report.kernels) == 2
