"""Sorts: every way on every level, against eager's stable sort; on the simulator too."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
import torch

import weft
from tests.agree.checks import check_levels
from weft.tensor.sorts import WIDTHS

INF, NAN = float("inf"), float("nan")
WAYS = ["ranks", *(f"digits{w}{x}" for w in WIDTHS for x in ("", "x2"))]
DTYPES = [
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16),
    *(torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool),
]
# Each way with each dtype, in one of both directions; each dtype and each way has both.
PAIRED = [(way, d, bool((i + j) % 2)) for i, way in enumerate(("ranks", "digits8", "digits11x2"))
          for j, d in enumerate(DTYPES)]  # fmt: skip
FEW = [(way, d, bool((i + j) % 2)) for i, way in enumerate(("picks", "ranks", "digits8x2"))
       for j, d in enumerate(DTYPES[:-1]) if (way, d) != ("picks", torch.int64)]  # fmt: skip
SIMULATOR = pytest.mark.skipif(shutil.which("g++") is None, reason="the simulator needs g++")


def values(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Random values with ties, extremes, and of floats NaN, infinities and both zeros."""
    if dtype is torch.bool:
        return torch.rand(shape) < 0.5
    if not dtype.is_floating_point:
        ends = torch.iinfo(dtype)
        x = torch.randint(ends.min, ends.max, shape, dtype=dtype)
        pool = torch.tensor([ends.min, ends.max, 0, 1, 2, ends.min // 2], dtype=dtype)
    else:
        x = (torch.randn(shape) * 10 ** torch.randint(-4, 4, shape)).to(dtype)
        pool = torch.tensor([NAN, INF, -INF, 0.0, -0.0, -NAN, 1.0, -1.0, 1e-41]).to(dtype)
    picked = pool[torch.randint(len(pool), shape)]
    return torch.where(torch.rand(shape) < 0.4, picked, x)


def exact(got: torch.Tensor, want: torch.Tensor) -> bool:
    """Equal, NaN to NaN, and zeros by their sign."""
    if not want.is_floating_point():
        return torch.equal(got, want)
    same = (got == want) & (torch.signbit(got) == torch.signbit(want))
    return bool((same | (got.isnan() & want.isnan())).all())


def both(descending: bool) -> Any:
    return lambda x: x.sort(dim=-1, stable=True, descending=descending)


def compiled(function: Any, way: str, *args: torch.Tensor, **options: Any) -> Any:
    return weft.compile(function, fallback="error", schedule=f"*.sort = {way}", **options)


@pytest.mark.parametrize(("way", "dtype", "descending"), PAIRED)
def test_as_eager(way: str, dtype: torch.dtype, descending: bool) -> None:
    torch.manual_seed(0)
    x = values(dtype, 3, 700)
    got, want = compiled(both(descending), way)(x), both(descending)(x)
    assert exact(got[0], want[0])
    assert torch.equal(got[1], want[1])


@pytest.mark.parametrize("way", WAYS)
def test_on_every_level(way: str) -> None:
    x = values(torch.float32, 2, 520)
    f = compiled(both(False), way, target="cpu:avx2")
    f(x)
    text = f.ir("loop")
    assert ("local keys" in text) == (way == "ranks")
    assert ("_counts" in text) == way.endswith("x2")
    check_levels(f.programs[0].artifact.levels(), [x])


@SIMULATOR
@pytest.mark.parametrize("way", ["ranks", "digits4", "digits8"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_simulated(way: str, dtype: torch.dtype) -> None:
    x = values(dtype, 3, 130)
    f = compiled(both(True), way, target="cuda:sm_90a", simulate=True)
    got, want = f(x), both(True)(x)
    assert exact(got[0], want[0])
    assert torch.equal(got[1], want[1])


@pytest.mark.parametrize("shape,dim", [((5, 37), 0), ((2, 5, 3), 1), ((7,), 0), ((3, 1), 1)])
@pytest.mark.parametrize("way", ["ranks", "digits8"])
def test_along_any_axis(way: str, shape: tuple[int, ...], dim: int) -> None:
    x = values(torch.float32, *shape)
    got, want = compiled(lambda x: x.sort(dim), way)(x), x.sort(dim=dim, stable=True)
    assert exact(got[0], want[0])
    assert torch.equal(got[1], want[1])


FIRST = 5


def few(descending: bool) -> Any:
    """The same as `both`, of the first few; of equal elements the first comes first."""
    return lambda x: x.topk(FIRST, -1, descending)


@pytest.mark.parametrize(("way", "dtype", "descending"), FEW)
def test_the_first_few(way: str, dtype: torch.dtype, descending: bool) -> None:
    """Of positions in i64 no key is left for what was not picked: these have no picks."""
    torch.manual_seed(1)
    x = values(dtype, 3, 700)
    short = [x[:, :FIRST].clone()] if way == "ranks" else []
    for given in (x, *short, x.sort(-1).values, x.sort(-1, True).values):
        got = compiled(few(descending), way)(given)
        want = both(descending)(given)
        assert exact(got[0], want[0][:, :FIRST])
        assert torch.equal(got[1], want[1][:, :FIRST])


@pytest.mark.parametrize("shape", [(2, 5), (3, 16), (1, 17), (2, 70)])
def test_picks_of_short_rows(shape: tuple[int, ...]) -> None:
    x = values(torch.float32, *shape)
    got, want = compiled(few(True), "picks")(x), both(True)(x)
    assert exact(got[0], want[0][:, :FIRST])
    assert torch.equal(got[1], want[1][:, :FIRST])


@pytest.mark.parametrize("way", ["picks", "ranks", "digits8"])
def test_the_first_few_on_every_level(way: str) -> None:
    x = torch.randn(2, 70)
    f = compiled(few(True), way, target="cpu:avx2")
    f(x)
    check_levels(f.programs[0].artifact.levels(), [x])


@SIMULATOR
@pytest.mark.parametrize("way", ["picks", "digits8"])
def test_the_first_few_simulated(way: str) -> None:
    x = values(torch.float32, 3, 130)
    f = compiled(few(False), way, target="cuda:sm_90a", simulate=True)
    got, want = f(x), both(False)(x)
    assert exact(got[0], want[0][:, :FIRST])
    assert torch.equal(got[1], want[1][:, :FIRST])


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
@pytest.mark.parametrize("way", ["ranks", "digits8"])
def test_one_of_one_row(way: str, dtype: torch.dtype) -> None:
    """Its place drops out of the address, and lanes store under a mask."""
    x = torch.tensor([3, 1, 2, 1]).to(dtype)
    f = compiled(lambda x: x.kthvalue(1), way)
    got, want = f(x), x.kthvalue(1)
    assert torch.equal(got[0], want[0])
    assert int(got[1]) == 1
    assert not f.reasons
    check_levels(f.programs[0].artifact.levels(), [x])


@pytest.mark.parametrize("fuse", ["greedy", "all"])
def test_keys_of_what_their_row_sums_to(fuse: Any) -> None:
    """A reduction is not part of the sort's kernel."""

    def likely(x: torch.Tensor) -> Any:
        p = torch.softmax(x, -1) * (x.sum(-1, keepdim=True) > 0)
        return p.topk(3), torch.sort(x / x.abs().sum(0))

    x = torch.randn(4, 9)
    compiled = weft.compile(likely, fuse=fuse, fallback="error")
    for ours, theirs in zip(compiled(x), likely(x), strict=True):
        torch.testing.assert_close(ours.values, theirs.values)


MANY = 70  # more than are picked one by one: those of a threshold are moved together, then sorted


@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32, torch.uint8]
)
def test_the_first_of_many(dtype: torch.dtype, descending: bool) -> None:
    """Ties, NaN and infinities at the threshold and elsewhere; equals come in their order."""
    torch.manual_seed(0)
    x = values(dtype, 3, 2 * MANY + 1)
    same = torch.ones_like(x)
    first = torch.cat([same[:, : MANY - 1], x[:, MANY - 1 :]], 1)
    f = weft.compile(lambda x: x.topk(MANY, -1, descending), fallback="error")
    for given in (x, same, first, first.flip(1)):
        got, want = f(given), both(descending)(given)
        assert exact(got[0], want[0][:, :MANY])
        assert torch.equal(got[1], want[1][:, :MANY])


@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8])
def test_the_first_of_so_many_that_blocks_are_left_out(
    dtype: torch.dtype, descending: bool
) -> None:
    """The last block is padded with what is as far back as the farthest element."""
    torch.manual_seed(0)
    x = values(dtype, 2, 64 * MANY + 13)
    ends = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
    worst = -INF if descending and dtype.is_floating_point else ends.min if descending else ends.max
    few = torch.where(torch.rand(x.shape) < 0.002, x, worst)
    f = weft.compile(lambda x: x.topk(MANY, -1, descending), fallback="error")
    for given in (x, few, torch.full_like(x, worst), torch.rand(x.shape).mul(200).to(dtype)):
        got, want = f(given), both(descending)(given)
        assert exact(got[0], want[0][:, :MANY])
        assert torch.equal(got[1], want[1][:, :MANY])


@pytest.mark.parametrize(
    ("shape", "dim"), [((400,), 0), ((5000, 3), 0), ((150, 4), 0), ((2, 200, 3), 1)]
)
def test_the_first_of_many_along_any_axis(shape: tuple[int, ...], dim: int) -> None:
    x = torch.where(torch.rand(shape) < 0.7, torch.nan, torch.randn(shape))
    got = weft.compile(lambda x: x.topk(MANY, dim), fallback="error")(x)
    want = x.sort(dim=dim, descending=True, stable=True)
    assert exact(got[0], want[0].narrow(dim, 0, MANY))
    assert torch.equal(got[1], want[1].narrow(dim, 0, MANY))


def test_the_first_of_many_on_every_level_and_their_gradients() -> None:
    x = torch.randn(2, 2 * MANY)
    f = weft.compile(lambda x: x.topk(MANY), fallback="error", target="cpu:avx2")
    f(x)
    check_levels(f.programs[0].artifact.levels(), [x])
    weight, y = torch.randn(2, MANY), x.clone().requires_grad_()
    loss = lambda x: (x.topk(MANY)[0] * weight).sum()  # noqa: E731
    (wanted,) = torch.autograd.grad(loss(y), y)
    assert torch.equal(weft.compile(weft.grad(loss))(x), wanted)
    z = x.clone().requires_grad_()
    torch.compile(loss, backend="weft")(z).backward()
    assert torch.equal(z.grad, wanted)
