"""Random numbers by coordinates: their bits, their distributions, one seed a call, gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import weft
from weft.core.errors import WeftError
from weft.scalar.ops import philox

N = 1 << 16

# Of Random123's kat_vectors: counter, key, the first two words.
KNOWN = [
    (0, 0, (0x6627E8D5, 0xE169C58D)),
]


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_bits_are_those_of_random123(counter: int, key: int, words: tuple[int, int]) -> None:
    (found,) = philox.evaluate(np.int64(key), np.array([counter])).view(np.uint64)
    assert (int(found) & 0xFFFFFFFF, int(found) >> 32) == words


@pytest.mark.parametrize("seed", [0, 1, -1, 2**62 + 12345, -(2**63)])
@pytest.mark.parametrize("stream", [0, 3, 1 << 20])
def test_numpy_torch_and_c_agree(seed: int, stream: int) -> None:
    def bits(key: torch.Tensor) -> torch.Tensor:
        return torch.ops.weft.philox(key, stream, [3, 37])

    key = torch.tensor(seed)
    want = philox.evaluate(np.int64(seed), np.arange(111) + (stream << 40)).reshape(3, 37)
    assert (bits(key).numpy() == want).all()
    assert (weft.compile(bits)(key).numpy() == want).all()


@pytest.mark.parametrize("target", ["cuda:sm_90a", "hip:gfx942", "metal"])
def test_gpus_agree(target: str) -> None:
    def bits(key: torch.Tensor) -> torch.Tensor:
        return torch.ops.weft.philox(key, 5, [3, 37])

    key = torch.tensor(-987654321012345678)
    compiled = weft.compile(bits, target=target, simulate=target.startswith(("cuda", "hip", "me")))
    assert torch.equal(compiled(key), bits(key))


DRAWS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], float, float]] = {
    # of an f32 vector of N: mean and variance
    "rand": (lambda x: torch.rand(N), 1 / 2, 1 / 12),
    "rand_like": (torch.rand_like, 1 / 2, 1 / 12),
    "randn": (lambda x: torch.randn(2, N // 2), 0, 1),
    "randn_like": (torch.randn_like, 0, 1),
    "uniform": (lambda x: torch.empty_like(x).uniform_(-1, 3), 1, 16 / 12),
    "normal": (lambda x: torch.empty_like(x).normal_(2, 3), 2, 9),
    "exponential": (lambda x: torch.empty_like(x).exponential_(2), 1 / 2, 1 / 4),
    "bernoulli": (lambda x: torch.bernoulli(x, 0.25), 1 / 4, 3 / 16),
    "bernoulli_": (lambda x: torch.empty_like(x).bernoulli_(0.7), 0.7, 0.21),
    "bernoulli of a tensor": (lambda x: torch.bernoulli(x + 0.25), 1 / 4, 3 / 16),
    "geometric": (lambda x: torch.empty_like(x).geometric_(0.25), 4, 12),
    "log_normal": (
        lambda x: torch.empty_like(x).log_normal_(0, 0.25),
        math.exp(1 / 32),
        math.expm1(1 / 16) * math.exp(1 / 16),
    ),
    "normal of tensors": (lambda x: torch.normal(x + 2, x + 3), 2, 9),
    "normal of a mean": (lambda x: torch.normal(x + 2, 3.0), 2, 9),
    "normal of a deviation": (lambda x: torch.normal(2.0, x + 3), 2, 9),
    "normal of a size": (lambda x: torch.normal(2.0, 3.0, (N,)), 2, 9),
    "randint": (lambda x: torch.randint(-2, 3, (N,)).to(x.dtype), 0, 2),
    "randint_like": (lambda x: torch.randint_like(x, 5), 2, 2),
    "rrelu": (lambda x: F.rrelu(x - 1, 0.25, 0.75, training=True), -1 / 2, 1 / 48),
    "dropout": (lambda x: F.dropout(x * 0 + 1, 0.2), 1, 0.25),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", DRAWS)
def test_distributions(name: str, dtype: torch.dtype) -> None:
    """Means and variances within five standard errors; no library call but that for the seed."""
    draw, mean, variance = DRAWS[name]
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        compiled = weft.compile(draw)
        torch.manual_seed(1)
        found = compiled(torch.zeros(N, dtype=dtype))
    finally:
        torch.set_default_dtype(before)
    assert found.dtype is dtype
    wide = found.double()
    rough = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}.get(dtype, 0.0) * (1 + abs(mean))
    assert abs(wide.mean() - mean) < 5 * (variance / N) ** 0.5 + rough
    assert abs(wide.var() / variance - 1) < 0.06
    assert [name for name, *_ in weft.report(compiled).externs] == ["aten.randint.low"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_quantiles(dtype: torch.dtype) -> None:
    """Kolmogorov and Smirnov's distance, below its value at 0.001: 1.95 / sqrt(N)."""
    torch.manual_seed(2)
    u, z = weft.compile(lambda: (torch.rand(N, dtype=dtype), torch.randn(N, dtype=dtype)))()
    rank = (torch.arange(N) + 0.5) / N
    for found in (u.double(), torch.special.ndtr(z.double())):
        assert (found.sort()[0] - rank).abs().max() < 1.95 / N**0.5
    assert u.min() >= 0 and u.max() < 1


def test_cauchy() -> None:
    torch.manual_seed(2)
    found = weft.compile(lambda x: torch.empty_like(x).cauchy_(1, 2))(torch.empty(N)).double()
    rank = (torch.arange(N) + 0.5) / N
    share = torch.atan((found.sort()[0] - 1) / 2) / math.pi + 0.5
    assert (share - rank).abs().max() < 1.95 / N**0.5


WEIGHTS = torch.tensor([[0.1, 0, 0.4, 0.5, 0], [2, 1, 0, 0, 1]])


@pytest.mark.parametrize("row", [0, 1])
@pytest.mark.parametrize("replacement", [False, True])
def test_multinomial(row: int, replacement: bool) -> None:
    """Frequencies within five standard errors; what weighs nothing is never drawn."""
    x = WEIGHTS[row].expand(N, 5)
    compiled = weft.compile(lambda x: torch.multinomial(x, 1, replacement))
    torch.manual_seed(3)
    found = compiled(x).flatten()
    share = WEIGHTS[row].double() / WEIGHTS[row].sum()
    seen = torch.bincount(found, minlength=5).double() / found.numel()
    assert ((seen - share).abs() <= 5 * (share * (1 - share) / found.numel()).sqrt()).all()
    assert [name for name, *_ in compiled.report.externs] == ["aten.randint.low"]


def test_multinomial_without_replacement() -> None:
    compiled = weft.compile(lambda x: torch.multinomial(x, 3))
    found = compiled(WEIGHTS.repeat(200, 1)).sort().values.reshape(200, 2, 3)
    assert (found == torch.tensor([[0, 2, 3], [0, 1, 4]])).all()
    assert compiled.reasons == []


@pytest.mark.parametrize("wrong", [-0.5, math.inf, math.nan])
def test_multinomial_checks_what_it_is_given(wrong: float) -> None:
    compiled = weft.compile(lambda x: torch.multinomial(x, 2))
    compiled(WEIGHTS)
    for bad in (torch.where(WEIGHTS == 1, wrong, WEIGHTS), WEIGHTS * 0):
        with pytest.raises((WeftError, IndexError)):
            compiled(bad)


@pytest.mark.parametrize("draw", [torch.bernoulli, lambda x: torch.normal(x, -x)])
def test_a_probability_or_a_deviation_out_of_range_is_an_error(
    draw: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    with pytest.raises((WeftError, IndexError)):
        weft.compile(draw, fallback="error")(torch.tensor([0.5, 1.5]))


def test_draws_and_calls_are_independent() -> None:
    def two(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn_like(x), torch.randn_like(x)

    compiled = weft.compile(two)
    x = torch.empty(N)
    torch.manual_seed(3)
    drawn = [*compiled(x), *compiled(x)]
    found = torch.corrcoef(torch.stack(drawn)) - torch.eye(4)
    assert found.abs().max() < 5 / N**0.5
    torch.manual_seed(3)
    assert all(map(torch.equal, [*compiled(x), *compiled(x)], drawn))


def test_the_backward_graph_computes_the_mask_again() -> None:
    """What is kept for it is x and a seed; both graphs have the same bits."""
    kept: list[int] = []

    def pack(t: torch.Tensor) -> torch.Tensor:
        kept.append(t.numel() * t.element_size())
        return t

    x = torch.ones(300, 50, requires_grad=True)
    compiled = weft.compile(lambda x: F.dropout(F.dropout(x.exp(), 0.4).sin(), 0.25))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        out = compiled(x)
    out.sum().backward()
    inner = torch.e / 0.6
    value, slope = np.sin(inner) / 0.75, np.cos(inner) / 0.75 * inner
    alive = out != 0
    assert x.grad is not None
    torch.testing.assert_close(out, torch.where(alive, value, 0.0))
    torch.testing.assert_close(x.grad, torch.where(alive, slope, 0.0))
    assert 0.4 < alive.double().mean() < 0.5
    assert sum(kept) <= x.numel() * 4 + 8


def test_under_checkpointing() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Dropout(0.5))
    x = torch.randn(16, 8, requires_grad=True)
    run: Any = weft.compile(lambda x: checkpoint(net, x, use_reentrant=False) * 1.0)
    out = run(x)
    (grad,) = torch.autograd.grad(out.sum(), x)
    mask = (out != 0) * 2.0
    torch.testing.assert_close(grad, mask @ net[0].weight)  # type: ignore[arg-type]


DROPS = lambda x: F.dropout(x, 0.5) + torch.rand_like(x) * F.dropout(x.sin(), 0.1)  # noqa: E731


@pytest.mark.parametrize("wanted", [False, True])
def test_eagers_numbers_on_demand(wanted: bool) -> None:
    x = torch.randn(40, 30, requires_grad=wanted)
    torch.manual_seed(4)
    want = DROPS(x)
    for compiled in (
        weft.compile(DROPS, random="eager"),
        torch.compile(DROPS, backend="weft", options={"random": "eager"}),
    ):
        torch.manual_seed(4)
        torch.testing.assert_close(compiled(x), want)


def test_any_size() -> None:
    compiled = weft.compile(lambda x: x * torch.rand_like(x), dynamic=True)
    for n in (7, 64, 1001):
        torch.manual_seed(5)
        first = compiled(torch.ones(n, 3))
        torch.manual_seed(5)
        assert torch.equal(compiled(torch.ones(n, 3)), first)
        assert first.unique().numel() > 2.9 * n


def test_a_generator_of_ones_own_draws_itself() -> None:
    own = torch.Generator().manual_seed(6)
    compiled = weft.compile(lambda x: x + torch.empty_like(x).uniform_(0, 1, generator=own))
    found = compiled(torch.zeros(5))
    assert torch.equal(found, torch.rand(5, generator=torch.Generator().manual_seed(6)))


def test_dropout_of_everything_and_of_nothing() -> None:
    x = torch.randn(9, 4)
    for p, want in ((0.0, x), (1.0, x * 0)):
        assert torch.equal(weft.compile(lambda x, p=p: F.dropout(x, p))(x), want)
    with pytest.raises(ValueError, match="dropout probability"):
        weft.compile(lambda x: F.dropout(x, 1.5))(x)


def test_what_torch_refuses() -> None:
    x = torch.zeros(9)
    for draw in (
        lambda x: x.clone().uniform_(2, 1),
        lambda x: x.clone().normal_(0, -1),
        lambda x: x.clone().exponential_(-1),
        lambda x: x.clone().bernoulli_(1.5),
        lambda x: torch.bernoulli(x + 1.5),
    ):
        with pytest.raises(RuntimeError):
            weft.compile(draw)(x)


def test_another_word_is_refused() -> None:
    with pytest.raises(weft.WeftError, match="random"):
        weft.compile(DROPS, random="no")  # type: ignore[arg-type]
