"""Rows of histograms: counts, or sums of weights, of elements between edges.

histogram_of_count(x, 10, range=(0, 1))        # hist [10], edges [11]
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from weft.core.types import boolean, i64
from weft.frontend.aten.sorts import data_range, searchsorted
from weft.frontend.aten.table import Row, require, rows
from weft.scalar import ops as s
from weft.scalar.monoid import SUM
from weft.scalar.sizes import Size
from weft.tensor import build
from weft.tensor.build import Number, Tensor, broadcast, cast, full, iota, reshape, select, slice_

Bounds = tuple[Tensor, Tensor]


def bounds_of(x: Tensor, given: Sequence[Number] | None) -> Bounds:
    """The least and the largest edge: the data's without a range, 1 apart where they are equal."""
    if given is not None:
        low, high = (build.literal(float(v), x.dtype) for v in given)
        require(float(given[0]) < float(given[1]), "its range is one number")
        return low, high
    if x.type.size == 0:
        return build.literal(0, x.dtype), build.literal(1, x.dtype)
    return data_range(x, 0.5)


def even_edges(bounds: Bounds, count: int) -> Tensor:
    """So many bins of one width: as linspace, from both ends."""
    low, high = (broadcast(reshape(b, (1,)), (count + 1,)) for b in bounds)
    at = cast(iota((count + 1,), 0), low.dtype)
    step = (high - low) / count
    return s.where(at < (count + 1) // 2, low + step * at, high - step * (count - at))


def _counted(
    columns: Sequence[Tensor], edges: Sequence[Tensor], weight: Tensor | None, density: bool
) -> Tensor:
    """[bins, ...]: the last bin of each has its right edge too; what is outside is left out."""
    counts = [e.shape[0] - 1 for e in edges]
    require(not any(isinstance(n, Size) for n in counts), "the number of bins is a size's")
    x, total = columns[0], math.prod(counts)
    flat, inside = full(x.shape, 0, i64), full(x.shape, True, boolean)
    for column, edge, n in zip(columns, edges, counts, strict=True):
        first, last = (broadcast(slice_(edge, 0, at, 1), x.shape) for at in (0, n))
        inside = inside & (column >= first) & (column <= last)
        place = s.minimum(searchsorted(edge, column, False, True) - 1, n - 1)
        flat = flat * n + place
    value = full(x.shape, 1, i64) if weight is None else weight
    if not x.type.size:
        return full(counts, 0, x.dtype)
    base = full((total,), 0, value.dtype)
    value = s.where(inside, value, 0)
    hist = build.scatter(SUM, base, 0, s.where(inside, flat, 0), value)
    out = reshape(cast(hist, x.dtype), counts)
    if density:
        out = out / build.total(out, range(out.rank), keep=True)
        for axis, (edge, n) in enumerate(zip(edges, counts, strict=True)):
            width = slice_(edge, 0, 1, n) - slice_(edge, 0, 0, n)
            out = out / build.broadcast_in(width, out.shape, (axis,))
    return out


def histogram(
    by_count: bool, x: Tensor, bins: Any = 100, *, range: Any = None, weight: Any = None,
    density: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    x = reshape(x, (-1,))
    edges = even_edges(bounds_of(x, range), bins) if by_count else bins
    weight = None if weight is None else reshape(weight, (-1,))
    return _counted([x], [edges], weight, density), edges


def _columns(x: Tensor) -> list[Tensor]:
    x = reshape(x, (-1, x.shape[-1]))
    return [select(x, 1, i) for i in range(x.shape[1])]


def edges_of(
    x: Tensor, bins: Sequence[int], *, range: Sequence[float] | None = None, **_: Any
) -> list[Tensor]:
    """Of each column of x; `range` has two numbers for each."""
    given = [None] * len(bins) if range is None else [*zip(range[::2], range[1::2], strict=True)]
    each = zip(_columns(x), bins, given, strict=True)
    return [even_edges(bounds_of(column, r), n) for column, n, r in each]


def histogramdd(
    by_count: bool, x: Tensor, bins: Any, *, range: Any = None, weight: Any = None,
    density: bool = False,
) -> Tensor:  # fmt: skip
    edges = edges_of(x, bins, range=range) if by_count else bins
    weight = None if weight is None else reshape(weight, (-1,))
    return _counted(_columns(x), edges, weight, density)


HISTOGRAMS = {
    "histogram.bin_ct": partial(histogram, True),
    "histogram.bins_tensor": partial(histogram, False),
    "_histogramdd_bin_edges": edges_of,
    "_histogramdd_from_bin_cts": partial(histogramdd, True),
    "_histogramdd_from_bin_tensors": partial(histogramdd, False),
}

ROWS: dict[str, Row] = rows("stored", HISTOGRAMS)
