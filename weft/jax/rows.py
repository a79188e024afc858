"""The table of JAX's primitives: a function of tensors for each, which families fill.

@row("add")
def add(x, y, **_): ...          # a row takes the operands, and by name the primitive's parameters,
                                 # `out`, the type of its first result, and `names`, the dtypes
                                 # of its operands in JAX
A result may have another dtype: the plan casts it to what JAX gives.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch


class Out(NamedTuple):
    """The type of a result: torch's dtype holds its values, JAX's name may be another."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    name: str


Row = Callable[..., Any]
R = TypeVar("R", bound=Row)
ROWS: dict[str, Row] = {}
# What of a primitive has no row: its parameters and the ranks of its operands -> that, or "".
MISSING: dict[str, Callable[[dict[str, Any], list[int]], str]] = {}


def row(*names: str) -> Callable[[R], R]:
    """Adds a function to the table under these names."""

    def add(fn: R) -> R:
        ROWS.update(dict.fromkeys(names, fn))
        return fn

    return add


def is_float(x: torch.Tensor) -> bool:
    return x.is_floating_point() or x.is_complex()


def lowest(dtype: torch.dtype) -> Any:
    """The least value of a dtype."""
    if dtype is torch.bool:
        return False
    return -float("inf") if dtype.is_floating_point else torch.iinfo(dtype).min


def highest(dtype: torch.dtype) -> Any:
    if dtype is torch.bool:
        return True
    return float("inf") if dtype.is_floating_point else torch.iinfo(dtype).max
