"""Rows of reductions and of running folds."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from weft.jax.rows import Out, highest, lowest, row

Tensor = torch.Tensor
Axes = Sequence[int]
# A fold over axes, and its result over none, of a dtype.
Fold = tuple[Callable[[Tensor, tuple[int, ...]], Tensor], Callable[[torch.dtype], Any]]


def _product(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    for axis in sorted(axes, reverse=True):
        x = torch.prod(x, axis, dtype=None if x.dtype is torch.bool else x.dtype)
    return x


def _extreme(fn: Callable[..., Tensor]) -> Callable[[Tensor, tuple[int, ...]], Tensor]:
    return lambda x, axes: fn(x, axes)


def _sum(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    return torch.any(x, axes) if x.dtype is torch.bool else torch.sum(x, axes, dtype=x.dtype)


def _bits(fn: Callable[..., Tensor], of_bools: Any, start: int) -> Fold:
    """Of integers bit by bit."""

    def fold(x: Tensor, axes: tuple[int, ...]) -> Tensor:
        if x.dtype is torch.bool and of_bools:
            return of_bools(x, axes)
        first = torch.full((), start, dtype=x.dtype)
        return pairwise([x], [first], axes, lambda a, b: [fn(a, b)])[0]

    return fold, lambda dtype: start


FOLDS: dict[str, Fold] = {
    "add": (_sum, lambda d: 0),
    "mul": (_product, lambda d: 1),
    "max": (_extreme(torch.amax), lowest),
    "min": (_extreme(torch.amin), highest),
    "or": _bits(torch.bitwise_or, torch.any, 0),
    "and": _bits(torch.bitwise_and, torch.all, -1),
    "xor": _bits(torch.bitwise_xor, None, 0),
}


def folded(x: Tensor, axes: Axes, name: str) -> Tensor:
    """x without these axes, folded by a primitive of two values."""
    axes = tuple(axes)
    if not axes:
        return x
    fold, start = FOLDS[name]
    if x.numel() == 0:
        shape = [n for d, n in enumerate(x.shape) if d not in axes]
        return torch.full(shape, start(x.dtype), dtype=x.dtype)
    return fold(x, axes)


def _row(name: str, of: str) -> None:
    @row(name)
    def reduce(x: Tensor, *, axes: Axes, **_: Any) -> Tensor:
        return folded(x, axes, of)


for _name, _of in (
    ("reduce_sum", "add"), ("reduce_prod", "mul"), ("reduce_max", "max"), ("reduce_min", "min"),
    ("reduce_or", "or"), ("reduce_and", "and"), ("reduce_xor", "xor"),
):  # fmt: skip
    _row(_name, _of)


def _position(name: str, fn: Callable[..., Tensor]) -> None:
    @row(name)
    def position(x: Tensor, *, axes: Axes, **_: Any) -> Tensor:
        return fn(x.to(torch.uint8) if x.dtype is torch.bool else x, int(axes[0]))


_position("argmax", torch.argmax)
_position("argmin", torch.argmin)


@row("reduce")
def reduce(*values: Tensor, dimensions: Axes, jaxpr: Any, out: Out, **_: Any) -> Any:
    """By a function of the user's, for several operands at once, each with a value to start at."""
    operands, starts = values[: len(values) // 2], values[len(values) // 2 :]
    if jaxpr.name in FOLDS:
        return jaxpr(folded(operands[0], dimensions, jaxpr.name), starts[0])
    n = len(operands)
    return pairwise([*operands], [*starts], dimensions, lambda *ab: jaxpr(*ab), n)


def pairwise(
    operands: list[Tensor],
    starts: list[Tensor],
    axes: Axes,
    combine: Callable[..., list[Tensor]],
    count: int = 1,
) -> list[Tensor]:
    """A fold by any associative function: neighbours are combined until one is left."""
    axes = tuple(int(a) for a in axes)
    xs = [x.movedim(axes, tuple(range(len(axes)))) for x in operands]
    kept = xs[0].shape[len(axes) :]
    xs = [x.reshape(-1, *kept) for x in xs]
    found = [s.expand(kept) for s in starts]
    while xs[0].shape[0] > 1:
        half = xs[0].shape[0] // 2
        rest = [x[2 * half :] for x in xs]
        made = combine(*[x[0 : 2 * half : 2] for x in xs], *[x[1 : 2 * half : 2] for x in xs])
        xs = [torch.cat([m, r]) for m, r in zip(made, rest, strict=True)]
    return combine(*found, *[x[0] for x in xs]) if xs[0].shape[0] else found


# --- running folds --------------------------------------------------------------------------------


def _running(name: str, fn: Callable[[Tensor, int], Tensor]) -> None:
    @row(name)
    def running(x: Tensor, *, axis: int, reverse: bool, **_: Any) -> Tensor:
        own = x.to(torch.uint8) if x.dtype is torch.bool else x
        found = fn(own.flip(axis), axis).flip(axis) if reverse else fn(own, axis)
        return found if x.numel() else x


_running("cumsum", lambda x, axis: torch.cumsum(x, axis, dtype=x.dtype))
_running("cumprod", lambda x, axis: torch.cumprod(x, axis, dtype=x.dtype))
_running("cummax", lambda x, axis: torch.cummax(x, axis).values)
_running("cummin", lambda x, axis: torch.cummin(x, axis).values)
_running("cumlogsumexp", torch.logcumsumexp)
