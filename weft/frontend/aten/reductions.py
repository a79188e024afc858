"""Rows of reductions and running folds.

"amax": lambda x, dim=(), keepdim=False: reduce(MAX, x, axes_of(dim, x.rank), keepdim)
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from weft.core.types import boolean
from weft.frontend.aten.table import Row, axes_of, on_axis, rows
from weft.scalar import monoid as m
from weft.scalar.monoid import MAX, MIN, MONOIDS, Monoid
from weft.tensor.build import Axes, Number, Tensor, cast, mean, reduce, scan, total, variance

Dim = int | Axes | None


def over(fold: Callable[..., Any]) -> Callable[..., Any]:
    """The row of fold(x, axes, keep): ATen names its axes `dim`, and has a `dtype` to ignore."""

    def row(x: Any, dim: Dim = None, keepdim: bool = False, dtype: Any = None, **by: Any) -> Any:
        return fold(x, axes_of(dim, x.rank), keepdim, **by)

    return row


def folding(monoid: Monoid) -> Callable[..., Tensor]:
    truth = monoid in (m.ANY, m.ALL)
    return over(lambda x, *how: reduce(monoid, cast(x, boolean) if truth else x, *how))


def first_of(name: str, x: Tensor, *how: Any) -> Tensor | int:
    """The first best position along an axis, of the whole flattened tensor without one."""
    return reduce(MONOIDS[name], x, *how) if x.rank else 0


def best_of(monoid: Monoid, name: str) -> Callable[..., Any]:
    """max.dim and min.dim: values and their positions."""
    return over(lambda x, *how: (reduce(monoid, x, *how), first_of(name, x, *how)))


def variance_of(x: Tensor, axes: Axes, keep: bool, correction: Number | None = None) -> Tensor:
    return variance(x, axes, 1 if correction is None else correction, keep)


def running(monoid: Monoid) -> Callable[..., Tensor]:
    return on_axis(lambda x, axis, dtype=None: scan(monoid, x, axis) if x.rank else x)


def running_best(monoid: Monoid) -> Callable[..., Any]:
    """cummax and cummin: values and the last position of each so far."""

    def row(x: Tensor, axis: int) -> tuple[Tensor, Tensor | int]:
        return (scan(monoid, x, axis, 1), scan(monoid, x, axis)) if x.rank else (x, 0)

    return on_axis(row)


REDUCTIONS = {
    "sum sum.dim_IntList": over(total),
    "mean mean.dim": over(mean),
    "prod prod.dim_int": folding(m.PRODUCT),
    "var.correction": over(variance_of),
    "var_mean.correction": over(lambda x, *how, **by: (variance_of(x, *how, **by), mean(x, *how))),
    "cumsum": running(m.SUM),
    "cumprod": running(m.PRODUCT),
    "logcumsumexp": running(m.LOGSUMEXP),
}

BEST = {
    "amax max": folding(MAX),
    "amin min": folding(MIN),
    "cummax": running_best(m.LAST_MAX),
    "cummin": running_best(m.LAST_MIN),
    "max.dim": best_of(MAX, "argmax"),
    "min.dim": best_of(MIN, "argmin"),
    "argmax": over(partial(first_of, "argmax")),
    "argmin": over(partial(first_of, "argmin")),
    "any any.dim,dims": folding(m.ANY),
    "all all.dim,dims": folding(m.ALL),
}

ROWS: dict[str, Row] = {**rows("promoted", REDUCTIONS), **rows("widened", BEST)}
