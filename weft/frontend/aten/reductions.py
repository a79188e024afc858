"""Rows of reductions and running folds.

"amax": lambda x, dim=(), keepdim=False: reduce(MAX, x, axes_of(dim, x.rank), keepdim)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from weft.core.types import boolean
from weft.frontend.aten.table import Row, axes_of, axis_of, rows
from weft.scalar.monoid import ALL, ANY, MAX, MIN, MONOIDS, PRODUCT, SUM, Monoid
from weft.scalar.ops import ne, power, sqrt
from weft.tensor.build import Number, Tensor, cast, mean, reduce, scan, total, variance

Dim = int | Sequence[int] | None


def over(fold: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The row of fold(x, axes, keep): ATen names its axes `dim`, and has a `dtype` to ignore."""

    def row(x: Tensor, dim: Dim = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
        return fold(x, axes_of(dim, x.rank), keepdim)

    return row


def folding(monoid: Monoid) -> Callable[..., Tensor]:
    truth = monoid in (ANY, ALL)
    return over(lambda x, *how: reduce(monoid, cast(x, boolean) if truth else x, *how))


def arg_reduce(name: str, x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor | int:
    """The first best position along an axis, of the whole flattened tensor without one."""
    if x.rank == 0:
        return 0
    return reduce(MONOIDS[name], x, axes_of(dim, x.rank), keepdim)


def best_of(monoid: Monoid, name: str) -> Callable[..., tuple[Any, Any]]:
    """max.dim and min.dim: values and their positions."""

    def row(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Any, Any]:
        values = reduce(monoid, x, axes_of(dim, x.rank), keepdim)
        return values, arg_reduce(name, x, dim, keepdim)

    return row


def variance_row(
    x: Tensor, dim: Dim = None, *, correction: Number | None = None, keepdim: bool = False
) -> Tensor:
    by = 1 if correction is None else correction
    return variance(x, axes_of(dim, x.rank), by, keepdim)


def variance_and_mean(
    x: Tensor, dim: Dim = None, *, keepdim: bool = False, **rest: Any
) -> tuple[Tensor, Tensor]:
    spread = variance_row(x, dim, keepdim=keepdim, **rest)
    return spread, mean(x, axes_of(dim, x.rank), keepdim)


def norm(
    x: Tensor, p: Number | None = 2, dim: Dim = None, keepdim: bool = False, dtype: Any = None
) -> Tensor:
    axes = axes_of(dim, x.rank)
    p = 2 if p is None else p
    a = abs(x)
    if math.isinf(p):
        return reduce(MAX if p > 0 else MIN, a, axes, keepdim)
    if p == 0:
        return total(cast(ne(x, 0), x.dtype), axes, keepdim)
    if p == 1:
        return total(a, axes, keepdim)
    if p == 2:
        return sqrt(total(x * x, axes, keepdim))
    return power(total(power(a, p), axes, keepdim), 1 / p)


def running(monoid: Monoid) -> Callable[..., Tensor]:
    def row(x: Tensor, dim: int, dtype: Any = None) -> Tensor:
        return scan(monoid, x, axis_of(dim, x.rank)) if x.rank else x

    return row


REDUCTIONS = {
    "sum sum.dim_IntList": over(total),
    "mean mean.dim": over(mean),
    "prod prod.dim_int": folding(PRODUCT),
    "var.correction": variance_row,
    "var_mean.correction": variance_and_mean,
    "linalg_vector_norm": norm,
    "cumsum": running(SUM),
    "cumprod": running(PRODUCT),
}

BEST = {
    "amax max": folding(MAX),
    "amin min": folding(MIN),
    "max.dim": best_of(MAX, "argmax"),
    "min.dim": best_of(MIN, "argmin"),
    "argmax": lambda x, dim=None, keepdim=False: arg_reduce("argmax", x, dim, keepdim),
    "argmin": lambda x, dim=None, keepdim=False: arg_reduce("argmin", x, dim, keepdim),
    "any any.dim any.dims": folding(ANY),
    "all all.dim all.dims": folding(ALL),
}

ROWS: dict[str, Row] = {**rows("promoted", REDUCTIONS), **rows("widened", BEST)}
