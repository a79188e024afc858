"""Rows of what is put in order: sort, topk, kthvalue, median, searchsorted.

values, positions = sort(key, axis, False, [iota(key.shape, axis)])     # one Sort, of two results
"""

from typing import Any

from weft.frontend.aten.table import Row, axis_of, rows
from weft.tensor import build
from weft.tensor.build import Tensor, iota


def sort_stable(
    x: Tensor, stable: Any = None, dim: int = -1, descending: bool = False
) -> tuple[Tensor, Tensor | int]:
    """Always stable."""
    if x.rank == 0:
        return x, 0
    axis = axis_of(dim, x.rank)
    values, positions = build.sort(x, axis, descending, [iota(x.shape, axis)])
    return values, positions


def sort(x: Tensor, dim: int = -1, descending: bool = False) -> tuple[Tensor, Tensor | int]:
    return sort_stable(x, None, dim, descending)


SORTS = {"sort": sort, "sort.stable": sort_stable}

ROWS: dict[str, Row] = rows("stored", SORTS)
