"""What algebra would do and floats do not bear: these programs stay as they are written."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

import weft
from tests.search.programs import graph_of


def pairwise(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x[:, None] - y[None]).square().sum(-1)


def variance(x: torch.Tensor) -> torch.Tensor:
    return (x - x.mean(-1, keepdim=True)).square().mean(-1)


def windows(x: torch.Tensor) -> torch.Tensor:
    return x.unfold(-1, 16, 1).sum(-1)


def one_row(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (x @ a) @ b


def two_weights(x: torch.Tensor, v: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x @ v + x @ w


def cosine_loss(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Errors of a row's terms average out; one of their sum would not."""
    return (1 - a @ b.mT).sum(1)


def mean_residual(x: torch.Tensor, w: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x @ w.mT - y).mean()


def normalised_twice(x: torch.Tensor, y: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Of large or small tensors: the product of both scales is beyond any float."""
    return (x / x.amax((0, 1), True)) @ (y / y.amax((0, 1), True)).mT @ v


def shrunk(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """By a number that float32 has not in full: what it is rounded to differs by where it is."""
    return ((a @ b) * 1e-41) @ c


def differences(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Of what is near 1000: exact, where the mean of either would be rounded."""
    return (x[:, None] - x[None]).mean(-1) @ y @ y.mT


def joined_numbers(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """Their product is a number that float32 has not."""
    return ((a @ b) * 2.0**-80 @ c) * 2.0**-80


HALF = torch.bfloat16
TRAPS: dict[str, tuple[Callable[..., Any], list[torch.Tensor]]] = {
    "pairwise distance": (pairwise, [torch.randn(256, 64), torch.randn(256, 64)]),
    "variance": (variance, [torch.randn(512, 512)]),
    "window sums": (windows, [torch.randn(64, 4096)]),
    "low rank, one row": (one_row, [torch.randn(1, 1024), *map(torch.randn, [1024, 8], [8, 1024])]),
    "cosine loss": (cosine_loss, [torch.randn(256, 64), torch.randn(256, 64)]),
    "mean residual": (mean_residual, [torch.randn(256, 256) for _ in range(3)]),
    "normalised twice": (
        normalised_twice,
        [torch.rand(256, 256) for _ in range(2)] + [torch.randn(256, 8)],
    ),
    "differences": (differences, [torch.randn(48, 3) for _ in range(2)]),
    "shrunk": (shrunk, [torch.randn(n) for n in ((128, 128), (128, 128), (128, 4))]),
    "joined numbers": (
        joined_numbers,
        [torch.randn(s) for s in ((128, 128), (128, 128), (128, 4))],
    ),
    "bf16 weights": (two_weights, [torch.randn(256, 256, dtype=HALF) for _ in range(3)]),
}


@pytest.mark.parametrize("name", TRAPS)
def test_stays_as_written(name: str) -> None:
    run, inputs = TRAPS[name]
    assert graph_of(run, inputs).outputs == graph_of(run, inputs, "off").outputs


def test_infinities_stay_where_nothing_is_found() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1) + x * 0

    x = torch.full((4, 8), -torch.inf)
    x[1:] = torch.randn(3, 8)
    x[2, 3] = torch.inf
    torch.testing.assert_close(weft.compile(run, search="on")(x), run(x), equal_nan=True)


def rows(x: torch.Tensor) -> torch.Tensor:
    return x / x.sum(-1, True)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return rows(q @ k.mT) @ v


def chain(x: torch.Tensor, y: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return rows(x) @ rows(y).mT @ v


@pytest.mark.parametrize("scale", [1e-25, 1e-12, 1.0, 1e12, 1e25])
@pytest.mark.parametrize("run", [attention, chain], ids=lambda f: f.__name__)
def test_scales_that_are_divided_out(run: Callable[..., torch.Tensor], scale: float) -> None:
    """What is finite in eager stays so, and as exact, however large what is normalised."""
    x, y = torch.rand(256, 64) * scale, torch.rand(256, 64) * (scale if run is chain else 1)
    v = torch.randn(256, 8)
    exact = run(x.double(), y.double(), v.double())
    errors = [
        ((f(x, y, v).double() - exact).abs().mean() / exact.abs().mean()).item()
        for f in (run, weft.compile(run, search="on", fallback="error"))
    ]
    assert errors[1] <= 2 * errors[0] + 1e-7


def unit(t: torch.Tensor) -> torch.Tensor:
    return t * torch.rsqrt(t.square().mean())


@pytest.mark.parametrize("scale", [1e-7, 1.0, 1e7])
def test_inputs_of_one_scale(scale: float) -> None:
    """Six of them are beyond any float, multiplied before what makes each of them near 1."""

    def run(*some: torch.Tensor) -> torch.Tensor:
        first, *rest = map(unit, some)
        for t in rest:
            first = first @ t
        return first

    inputs = [torch.randn(64, 64) * scale for _ in range(5)] + [torch.randn(64, 2) * scale]
    exact = run(*(t.double() for t in inputs))
    errors = [
        ((f(*inputs).double() - exact).abs().mean() / exact.abs().mean()).item()
        for f in (run, weft.compile(run, search="on", fallback="error"))
    ]
    assert errors[1] <= 2 * errors[0] + 1e-6


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8], ids=str)
def test_integers_wrap_as_in_eager(dtype: torch.dtype) -> None:
    def run(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        inner = (a[:, :, None] * b[None]).sum(1, dtype=dtype)
        return (inner[:, :, None] * c[None]).sum(1, dtype=dtype)

    high = torch.iinfo(dtype).max
    shapes = (96, 96), (96, 96), (96, 1)
    a, b, c = (torch.randint(high // 2, high, s, dtype=dtype) for s in shapes)
    assert torch.equal(weft.compile(run, search="on")(a, b, c), run(a, b, c))


def test_weights_may_change_between_calls() -> None:
    v, w = torch.randn(256, 256), torch.randn(256, 4)
    f = weft.compile(lambda x: (x @ v) @ w, search="on")
    x = torch.randn(256, 256)
    for _ in range(2):
        expected = (x.double() @ v.double()) @ w.double()
        torch.testing.assert_close(f(x).double(), expected, rtol=1e-4, atol=1e-2)
        v.mul_(2)


def test_off_changes_nothing_and_on_tells_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    a, b, c = torch.randn(256, 256), torch.randn(256, 256), torch.randn(256)
    weft.compile(lambda a, b, c: a @ b @ c, verbose=2, search="on").prepare(a, b, c)
    shown = capsys.readouterr().out
    assert "order " in shown and "equal modulo a prime at 2 points" in shown
    weft.compile(lambda a, b, c: a @ b @ c, verbose=2, search="off").prepare(a, b, c)
    assert "region" not in capsys.readouterr().out


INFINITE, NAN = float("inf"), float("nan")
full = partial(torch.full, (64, 64))
MAGIC = 12582912.0  # 1.5 * 2**23: what is added to it has no fraction
NUMBERS: dict[str, Callable[..., torch.Tensor]] = {
    "adds inf": lambda a, b, c: (a @ b @ c) + INFINITE,
    "times nan": lambda a, b, c: (a @ b @ c) * NAN,
    "a mask of -inf": lambda a, b, c: (a @ b + torch.full((64, 64), -INFINITE)) @ c,
    "divides by a prime": lambda a, b, c: (a @ b @ c) / 2147483647,
    "beyond any float": lambda a, b, c: (a.double() @ b.double() @ c.double()) * 1e200 * 1e200,
    "by a subnormal": lambda a, b, c: (a.double() @ b.double() @ c.double()) / 1e-310,
    "rounds": lambda a, b, c: (((a * 64 + MAGIC) - MAGIC) @ b) @ c,
    "rounds by a tensor": lambda a, b, c: (((a * 64 + full(MAGIC)) - full(MAGIC)) @ b) @ c,
    "what rounding leaves": lambda a, b, c: ((a * 3 + MAGIC - MAGIC - 3 * a) @ b) @ c,
}


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_that_floats_do_not_bear(name: str) -> None:
    """The search raises nothing, and no constant of a program's own rounding is folded away."""
    torch.manual_seed(0)
    inputs = [torch.randn(64, 64), torch.randn(64, 64), torch.randn(64, 1)]
    got = weft.compile(NUMBERS[name], search="on", fallback="error")(*inputs)
    want = NUMBERS[name](*inputs)
    largest = want[want.isfinite()].abs().float().max().item() if want.isfinite().any() else 0.0
    near = max(1e-4, 4 * 2**-23 * largest)  # some elements of a product cancel
    torch.testing.assert_close(got, want, rtol=1e-4, atol=near, equal_nan=True)


def test_a_product_over_many_axes_is_left_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Values over 2**17 elements at least would be compared: time and memory double per axis."""

    def gates(state: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        for gate in (a, b):
            state = torch.tensordot(gate, state, dims=([1], [3])).movedim(0, 3)
        return state

    inputs = [torch.randn([2] * 17), torch.randn(2, 2), torch.randn(2, 2)]
    weft.compile(gates, search="on", verbose=2).prepare(*inputs)
    assert "axes are too many to compare values over" in capsys.readouterr().out
