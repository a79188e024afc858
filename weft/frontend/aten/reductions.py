"""Rows of reductions and running folds.

"amax": lambda x, dim=(), keepdim=False: reduce(MAX, x, axes_of(dim, x.rank), keepdim)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from weft.core.types import boolean, i64
from weft.frontend.aten.table import Row, axes_of, axis_of, rows
from weft.scalar.monoid import ALL, ANY, MAX, MIN, MONOIDS, PRODUCT, SUM, Monoid
from weft.tensor.build import (
    Number,
    Tensor,
    cast,
    eq,
    exp,
    log,
    mean,
    ne,
    power,
    reduce,
    reshape,
    scan,
    sqrt,
    total,
    variance,
    where,
)

Dim = int | Sequence[int] | None


def over(fold: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The row of fold(x, axes, keep): ATen names its axes `dim`, and has a `dtype` to ignore."""

    def row(x: Tensor, dim: Dim = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
        return fold(x, axes_of(dim, x.rank), keepdim)

    return row


def folding(monoid: Monoid) -> Callable[..., Tensor]:
    return over(lambda x, axes, keep: reduce(monoid, x, axes, keep))


def folding_truth(monoid: Monoid) -> Callable[..., Tensor]:
    return over(lambda x, axes, keep: reduce(monoid, cast(x, boolean), axes, keep))


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


def aminmax(x: Tensor, *, dim: int | None = None, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    axes = axes_of(dim, x.rank)
    return reduce(MIN, x, axes, keepdim), reduce(MAX, x, axes, keepdim)


def variance_row(
    x: Tensor, dim: Dim = None, *, correction: Number | None = None, keepdim: bool = False
) -> Tensor:
    by = 1 if correction is None else correction
    return variance(x, axes_of(dim, x.rank), by, keepdim)


def with_mean(
    row: Callable[..., Tensor],
) -> Callable[..., tuple[Tensor, Tensor]]:
    def both(
        x: Tensor, dim: Dim = None, *, correction: Number | None = None, keepdim: bool = False
    ) -> tuple[Tensor, Tensor]:
        spread = row(x, dim, correction=correction, keepdim=keepdim)
        return spread, mean(x, axes_of(dim, x.rank), keepdim)

    return both


def deviation(*args: Any, **kwargs: Any) -> Tensor:
    return sqrt(variance_row(*args, **kwargs))


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


def logsumexp(x: Tensor, dim: Dim, keepdim: bool = False) -> Tensor:
    axes = axes_of(dim, x.rank)
    top = reduce(MAX, x, axes, keep=True)
    shift = where(eq(abs(top), math.inf), 0, top)  # inf - inf is nan
    out = log(total(exp(x - shift), axes, keep=True)) + shift
    return out if keepdim else reshape(out, reduced_shape(x, axes))


def reduced_shape(x: Tensor, axes: Sequence[int]) -> list[int]:
    return [n for a, n in enumerate(x.shape) if a not in axes]


def running(monoid: Monoid) -> Callable[..., Tensor]:
    def row(x: Tensor, dim: int, dtype: Any = None) -> Tensor:
        return scan(monoid, x, axis_of(dim, x.rank)) if x.rank else x

    return row


REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": lambda x, dtype=None: total(x, range(x.rank)),
    "sum.dim_IntList": over(total),
    "mean": lambda x, dtype=None: mean(x, range(x.rank)),
    "mean.dim": over(mean),
    "nansum": over(lambda x, axes, keep: total(where(ne(x, x), 0, x), axes, keep)),
    "prod": lambda x, dtype=None: reduce(PRODUCT, x, range(x.rank)),
    "prod.dim_int": folding(PRODUCT),
    "var.correction": variance_row,
    "std.correction": deviation,
    "var_mean.correction": with_mean(variance_row),
    "std_mean.correction": with_mean(deviation),
    "linalg_vector_norm norm.Scalar norm.ScalarOpt_dim norm.ScalarOpt_dim_dtype": norm,
    "logsumexp": logsumexp,
    "cumsum": running(SUM),
    "cumprod": running(PRODUCT),
}

BEST: dict[str, Callable[..., Any]] = {
    "amax max": folding(MAX),
    "amin min": folding(MIN),
    "max.dim": best_of(MAX, "argmax"),
    "min.dim": best_of(MIN, "argmin"),
    "argmax": lambda x, dim=None, keepdim=False: arg_reduce("argmax", x, dim, keepdim),
    "argmin": lambda x, dim=None, keepdim=False: arg_reduce("argmin", x, dim, keepdim),
    "aminmax": aminmax,
    "any any.dim any.dims": folding_truth(ANY),
    "all all.dim all.dims": folding_truth(ALL),
    "count_nonzero count_nonzero.dim_IntList": over(
        lambda x, axes, keep: total(cast(cast(x, boolean), i64), axes, keep)
    ),
}

ROWS: dict[str, Row] = {**rows("promoted", REDUCTIONS), **rows("widened", BEST)}
