"""Gradients of reductions and of running folds, by monoid.

reduce_back(node, g)               # of reduce{max}(x): g / count where x is the maximum, else 0
scan_back(node, g)                 # of scan{sum}(x): the sum of g from each element on
"""

import math
from collections.abc import Callable, Sequence

from weft.core.errors import UnsupportedOpError
from weft.core.node import Node, op_of
from weft.scalar import monoid as m
from weft.scalar import ops as s
from weft.tensor.build import (
    Tensor,
    broadcast,
    flip,
    full,
    pad,
    permute,
    reduce,
    reshape,
    scan,
    scatter,
    total,
)
from weft.tensor.ops import Reduce, Scan


def reduce_back(node: Node, g: Tensor) -> Tensor:
    op, x = op_of(node, Reduce), Tensor(node.args[0])
    fold = FOLDS.get(op.monoid.name)
    if fold is None:
        raise UnsupportedOpError(f"reduce{{{op.monoid}}} has no gradient at the tensor level")
    return fold(g, Tensor(node), x, op.axes)


def _extreme(g: Tensor, y: Tensor, x: Tensor, axes: Sequence[int]) -> Tensor:
    """All that equal the extreme share its gradient."""
    same = s.eq(x, _spread(y, x))
    count = total(s.where(same, full(x.shape, 1, x.dtype), 0), axes, keep=True)
    return s.where(same, _spread(g / count, x), 0)


def _spread(y: Tensor, x: Tensor) -> Tensor:
    return broadcast(y, x.shape)


def _product(g: Tensor, y: Tensor, x: Tensor, axes: Sequence[int]) -> Tensor:
    """Of each element the product of those before and after it, so right where some are 0."""
    kept = [a for a in range(x.rank) if a not in axes]
    order = [*kept, *axes]
    moved = permute(x, order)
    line = reshape(moved, (*moved.shape[: len(kept)], math.prod(x.shape[a] for a in axes)))
    others = _before(line, len(kept)) * flip(
        _before(flip(line, [len(kept)]), len(kept)), [len(kept)]
    )
    back = permute(reshape(others, moved.shape), [order.index(a) for a in range(x.rank)])
    return _spread(g, x) * back


def _before(x: Tensor, axis: int) -> Tensor:
    """The product of all elements before each one along the axis."""
    return shifted(scan(m.PRODUCT, x, axis), axis, -1, 1)


def shifted(x: Tensor, axis: int, by: int, fill: float) -> Tensor:
    """out[i] = x[i + by] along the axis, `fill` beyond its ends."""
    pads = [(0, 0)] * x.rank
    pads[axis] = (-by, by)
    return pad(x, pads, fill)


def _deviations(g: Tensor, y: Tensor, x: Tensor, axes: Sequence[int]) -> Tensor:
    count = math.prod(x.shape[a] for a in axes)
    mean = total(x, axes, keep=True) * (1 / count)
    return _spread(g * 2, x) * (x - _spread(mean, x))


def _exponentials(g: Tensor, y: Tensor, x: Tensor, axes: Sequence[int]) -> Tensor:
    """Of the sum of exp(x - top), in which top, the maximum, is not constant."""
    top = reduce(m.MAX, x, axes, keep=True)
    return _spread(g, x) * s.exp(x - _spread(top, x)) - _extreme(g * y, top, x, axes)


FOLDS: dict[str, Callable[[Tensor, Tensor, Tensor, Sequence[int]], Tensor]] = {
    "sum": lambda g, y, x, axes: _spread(g, x),
    "max": _extreme,
    "min": _extreme,
    "product": _product,
    "welford": _deviations,
    "sumexp": _exponentials,
    "logsumexp": lambda g, y, x, axes: _spread(g, x) * s.exp(x - _spread(y, x)),
}


# --- running folds --------------------------------------------------------------------------------


def scan_back(node: Node, g: Tensor) -> Tensor:
    op, x = op_of(node, Scan), Tensor(node.args[0])
    name = op.monoid.name
    if name not in RUNNING:
        raise UnsupportedOpError(f"scan{{{op.monoid}}} has no gradient at the tensor level")
    return RUNNING[name](g, Tensor(node), x, op.axis)


def _reversed_sum(g: Tensor, axis: int) -> Tensor:
    return flip(scan(m.SUM, flip(g, [axis]), axis), [axis])


def _running_best(last: m.Monoid) -> Callable[[Tensor, Tensor, Tensor, int], Tensor]:
    """Of equals the last one, as torch's cummax."""

    def back(g: Tensor, y: Tensor, x: Tensor, axis: int) -> Tensor:
        return scatter(m.SUM, full(x.shape, 0, x.dtype), axis, scan(last, x, axis), g)

    return back


def _running_product(g: Tensor, y: Tensor, x: Tensor, axis: int) -> Tensor:
    """L * S: L is the product before an element, S[i] = g[i] + x[i + 1] * S[i + 1].

    The recurrence by doubling (Hillis, Steele 1986), with no division: right where some are 0.
    """
    slope, value, by = shifted(x, axis, 1, 0), g, 1
    while by < x.shape[axis]:
        value = value + slope * shifted(value, axis, by, 0)
        slope, by = slope * shifted(slope, axis, by, 0), 2 * by
    return _before(x, axis) * value


def _running_logsumexp(g: Tensor, y: Tensor, x: Tensor, axis: int) -> Tensor:
    """exp(x[i]) times the sum of g[j] exp(-y[j]) from i on, each sign by itself in logarithms."""

    finite = s.where(s.eq(y, -math.inf), 0, y)  # where it is not, so are all x that it is of

    def part(sign: Tensor, size: Tensor) -> Tensor:
        logs = s.where(sign, s.log(s.where(sign, size, 1)), -math.inf) - finite
        after = flip(scan(m.LOGSUMEXP, flip(logs, [axis]), axis), [axis])
        return s.exp(after + x)

    return part(g > 0, g) - part(g < 0, -g)


RUNNING: dict[str, Callable[[Tensor, Tensor, Tensor, int], Tensor]] = {
    "sum": lambda g, y, x, axis: _reversed_sum(g, axis),
    "max": _running_best(m.LAST_MAX),
    "min": _running_best(m.LAST_MIN),
    "last_argmax": _running_best(m.LAST_MAX),
    "last_argmin": _running_best(m.LAST_MIN),
    "product": _running_product,
    "logsumexp": _running_logsumexp,
}
