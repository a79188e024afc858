"""Rows of distances between the rows of matrices: cdist, pdist, and their gradients.

_cdist_forward(x, y, 1.0, None)        # [.., P, M], [.., R, M] -> [.., P, R]: sums of |x - y|
Gradients at a distance of 0, at ties of a maximum and of no power are torch's.
"""

import math
from typing import Any

from weft.core.types import i32, i64
from weft.frontend.aten.formulas import clamp, is_nan, sign
from weft.frontend.aten.indexing import read
from weft.frontend.aten.table import Row, namesakes, require, rows
from weft.scalar import ops as s
from weft.scalar.monoid import MAX
from weft.scalar.sizes import Size, is_short
from weft.tensor import build
from weft.tensor.build import Tensor, broadcast_in, cast, full, iota, total, unsqueeze
from weft.tensor.ops import position

BY_PRODUCTS = 25  # rows of either side, from more than which on torch takes a matrix product


def norm(d: Tensor, p: float) -> Tensor:
    """The p-norm along the last axis, which it drops."""
    axes, size = (d.rank - 1,), abs(d)
    if p == 0:
        return total(s.minimum(s.ceil(size), 1), axes)  # NaN of NaN
    if p == math.inf:
        return build.reduce(MAX, size, axes)
    if p == 1:
        return total(size, axes)
    if p == 2:
        return s.sqrt(total(d * d, axes))
    return s.power(total(s.power(size, p), axes), 1 / p)


def share_of(g: Tensor, y: Tensor, p: float) -> Tensor:
    """What all differences have in common of g, the gradient of the norm y."""
    if p in (0, 1, math.inf):
        return g
    return s.where(s.eq(y, 0), 0, g / (y if p == 2 else s.power(y, p - 1)))


def norm_back(share: Tensor, d: Tensor, y: Tensor | None, p: float) -> Tensor:
    """What each difference d gets; the share, and y of a maximum, have length 1 there."""
    if p == 0:
        return d * 0
    if p == 1:
        return sign(d) * share
    if p == math.inf:
        assert y is not None
        return s.where(s.eq(abs(d), y), sign(d) * share, 0)
    if p == 2:
        return d * share
    if p > 2:
        return d * s.power(abs(d), p - 2) * share
    return s.where(s.eq(d, 0), 0, sign(d) * s.power(abs(d), p - 1)) * share


def _differences(x: Tensor, y: Tensor) -> Tensor:
    """[.., P, R, M]"""
    return unsqueeze(x, -2) - unsqueeze(y, -3)


def _by_products(x: Tensor, y: Tensor) -> Tensor:
    """Euclidean distances by one matrix product: |x|^2 - 2 x y + |y|^2."""
    squares = [total(t * t, (t.rank - 1,), keep=True) for t in (x, y)]
    products = build.matmul(x, build.transpose(y))
    return s.sqrt(clamp(squares[0] + (build.transpose(squares[1]) - 2 * products), 0, None))


def _cdist_forward(x: Tensor, y: Tensor, p: float, mode: int | None) -> Tensor:
    """As torch: modes are 0 (by products where there are many rows), 1 (always), 2 (never)."""
    many = max(x.shape[-2], y.shape[-2]) > BY_PRODUCTS
    if p == 2 and (mode == 1 or (many and not mode)):
        return _by_products(x, y)
    d = _differences(x, y)
    if p == math.inf:  # torch's maximum passes over NaN, but that of pdist
        d = s.where(is_nan(d), 0, d)
    return norm(d, p)


def _cdist_backward(grad: Tensor, x: Tensor, y: Tensor, p: float, found: Tensor) -> Tensor:
    """The gradient of x: torch asks for that of y by the transposed tensors."""
    if not grad.type.size:
        return full(x.shape, 0, x.dtype)
    return _gradient(share_of(grad, found, p), x, y, p, found)


def _gradient(share: Tensor, x: Tensor, y: Tensor, p: float, found: Tensor | None) -> Tensor:
    """Of x, by the shares of all distances, which are found only for a maximum."""
    at = None if found is None else unsqueeze(found, -1)
    each = norm_back(unsqueeze(share, -1), _differences(x, y), at, p)
    return total(each, (each.rank - 2,))


# --- the pairs i < j of n rows --------------------------------------------------------------------


def _start(i: Tensor, n: int) -> Tensor:
    """The number of the pair (i, i + 1)."""
    return s.shift_right(i * ((2 * n - 1) - i), 1)


def _pairs(n: int) -> tuple[Tensor, Tensor]:
    """i and j of all pairs in order, where those of each i are a run.

    In i32 where n^2 is short: products of i64 take several instructions.
    """
    count, word = n * (n - 1) // 2, i32 if is_short(n * n) else i64
    i = cast(build.run_of(_start(iota((n,), 0), n), count), word)
    return i, cast(iota((count,), 0), word) - _start(i, n) + i + 1


def _pdist_forward(x: Tensor, p: float) -> Tensor:
    n, m = x.shape
    require(not isinstance(n, Size) and x.type.size > 0, "it has as many pairs as a size says")
    shape = (n * (n - 1) // 2, m)
    if not shape[0]:
        return full((0,), 0, x.dtype)
    each = (read(x, (0,), [broadcast_in(i, shape, (0,))], (1,)) for i in _pairs(n))
    return norm(next(each) - next(each), p)


def _pdist_backward(grad: Tensor, x: Tensor, p: float, found: Tensor) -> Tensor:
    n = x.shape[0]
    require(not isinstance(n, Size) and x.type.size > 0, "it has as many pairs as a size says")
    if n < 2:
        return full(x.shape, 0, x.dtype)
    peak = _square(found, n) if p == math.inf else None
    return _gradient(_square(share_of(grad, found, p), n), x, x, p, peak)


def _square(t: Tensor, n: int) -> Tensor:
    """Of the pairs i < j as a symmetric matrix, 0 between equals: rows of i side by side."""
    i, j = position(0), position(1)
    start = s.apply("multiply", i, s.apply("subtract", s.constant(2 * n - 1), i))
    start = s.apply("floordiv", start, s.constant(2))
    place = s.apply("add", start, s.apply("subtract", s.apply("subtract", j, i), s.constant(1)))
    upper = build.contiguous(build.view(t, (n, n), [place], s.apply("lt", i, j)))
    return upper + build.transpose(upper)


def _trilinear(a: Tensor, b: Tensor, c: Tensor, *how: Any) -> Tensor:
    """The sum of a product over `axes`, each operand with axes of length 1 put in."""
    *expansions, axes, _ = how
    operands = [a, b, c]
    for i, expand in enumerate(expansions):
        for axis in sorted(expand):
            operands[i] = unsqueeze(operands[i], axis)
    a, b, c = operands
    return total(a * b * c, axes)


DISTANCES = namesakes(_cdist_forward, _cdist_backward, _pdist_forward, _pdist_backward, _trilinear)

ROWS: dict[str, Row] = rows("widened", DISTANCES)
