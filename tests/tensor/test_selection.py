"""Selections: each way on every level, against eager's stable sort; on the simulator too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import weft
from tests.agree.checks import check_levels
from tests.tensor.test_sorts import DTYPES, INF, NAN, SIMULATOR, exact, values
from weft.core.errors import VerifyError
from weft.core.node import make
from weft.core.types import TensorType, f32, i64
from weft.tensor.ops import Input, Select

WAYS = ["digits", "ranks"]
NUMBERS = [d for d in DTYPES if d is not torch.bool]
Function = Callable[[torch.Tensor], Any]


def compiled(function: Function, way: str, **options: Any) -> Any:
    return weft.compile(function, fallback="error", schedule=f"*.sort = {way}", **options)


def check(got: Any, x: torch.Tensor, want: torch.Tensor, dim: int) -> None:
    """The values, and that each is where it is said to be: at the first of its equals."""
    assert exact(got.values.abs(), want.abs())
    places = got.indices.unsqueeze(dim)
    assert exact(x.gather(dim, places).squeeze(dim), got.values)
    same = (x == got.values.unsqueeze(dim)) | (x.isnan() & got.values.isnan().unsqueeze(dim))
    assert torch.equal(same.int().argmax(dim), got.indices)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", NUMBERS)
def test_every_rank(way: str, dtype: torch.dtype) -> None:
    """Of infinities, both zeros, NaN, the least and the greatest integers too."""
    torch.manual_seed(0)
    x = values(dtype, 3, 41)
    ordered = x.sort(dim=1, stable=True).values
    for k in (1, 2, 20, 38, 41):
        got = compiled(lambda x, k=k: x.kthvalue(k, 1), way)(x)
        check(got, x, ordered[:, k - 1], 1)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shape,dim", [((5, 37), 0), ((2, 5, 3), 1), ((7,), 0), ((3, 1), 1)])
@pytest.mark.parametrize("name", ["median", "nanmedian"])
def test_medians(way: str, shape: tuple[int, ...], dim: int, name: str) -> None:
    torch.manual_seed(0)
    whole = values(torch.float32, *shape)
    for x in (whole, whole.nan_to_num(), torch.full(shape, NAN), torch.full(shape, -INF)):
        want = getattr(x, name)(dim).values
        check(compiled(lambda x: getattr(x, name)(dim), way)(x), x, want, dim)


@pytest.mark.parametrize("way", WAYS)
def test_on_every_level(way: str) -> None:
    f = compiled(lambda x: x.median(1), way, target="cpu:avx2")
    x = values(torch.float32, 2, 70)
    f(x)
    assert ("local answer" in f.ir("loop")) == (way == "digits")
    check_levels(f.programs[0].artifact.levels(), [x])


@SIMULATOR
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_simulated(way: str, dtype: torch.dtype) -> None:
    x = values(dtype, 3, 130)
    got = compiled(lambda x: x.kthvalue(60), way, target="cuda:sm_90a", simulate=True)(x)
    check(got, x, x.sort(dim=1).values[:, 59], 1)


def test_long_rows_are_not_compared_with_themselves() -> None:
    """The price has n^2 comparisons for short rows alone, and sorts no row."""
    short, long = torch.randn(8, 16), torch.randn(8, 4000)
    for x, way in ((short, "named"), (long, "answer")):
        f = weft.compile(lambda x: x.median(1), target="cpu:avx2")
        f(x)
        assert f"local {way}" in f.ir("loop")
        assert "_starts" not in f.ir("loop")


def test_of_a_computed_row() -> None:
    """Keys with a reduction in them are stored first; a gradient goes to where the value is."""
    x = torch.randn(6, 50, dtype=torch.float64, requires_grad=True)
    w = torch.randn(6, dtype=torch.float64)

    def f(x: torch.Tensor) -> torch.Tensor:
        return ((x / x.sum(1, keepdim=True)).median(1).values * w).sum()

    f(x).backward()
    want, x.grad = x.grad, None
    weft.compile(f)(x).backward()
    torch.testing.assert_close(x.grad, want)


@pytest.mark.parametrize("axis,shape,ranks", [(2, (4, 5), (4, 1)), (1, (4, 5), (4, 5)),
                                              (1, (4, 0), (4, 1))])  # fmt: skip
def test_what_does_not_fit(axis: int, shape: tuple[int, ...], ranks: tuple[int, ...]) -> None:
    key, rank = make(Input("x", TensorType(f32, shape))), make(Input("r", TensorType(i64, ranks)))
    with pytest.raises(VerifyError, match="selection"):
        make(Select(axis), key, rank)
