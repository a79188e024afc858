"""Rows of tensors made from nothing: their dtype and shape are the torch level's.

"zeros": lambda size, **_: 0             # a number fills the result
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from weft.core.types import f64
from weft.frontend.aten.table import Row, rows
from weft.scalar.ops import apply, eq
from weft.tensor.build import Number, Tensor, cast, index_of, iota, where
from weft.tensor.ops import position


def arange(start: Number, end: Number, step: Number = 1, **_: Any) -> Tensor:
    """start + i * step, in f64 unless all are integers."""
    i = iota((max(0, math.ceil((end - start) / step)),), 0)
    if not all(isinstance(v, int) for v in (start, end, step)):
        i, start, step = cast(i, f64), float(start), float(step)
    scaled = i if step == 1 else i * step
    return scaled if start == 0 else scaled + start


def linspace(start: Number, end: Number, steps: int, **_: Any) -> Tensor:
    """From both ends, so that the last element is `end` exactly."""
    i = cast(iota((steps,), 0), f64)
    if steps < 2:
        return i + float(start)
    step = (end - start) / (steps - 1)
    return where(i < steps // 2, i * step + float(start), float(end) - (steps - 1.0 - i) * step)


def eye(n: int, m: int | None = None, **_: Any) -> Tensor:
    return index_of((n, n if m is None else m), apply(eq, position(0), position(1)))


def filled(*args: Any, fill_value: Number | None = None, **_: Any) -> Number:
    """The value is the last argument of full, full_like and new_full."""
    return args[-1] if fill_value is None else fill_value


ZERO: Callable[..., Number] = lambda *_, **__: 0
ONE: Callable[..., Number] = lambda *_, **__: 1

FACTORIES: dict[str, Callable[..., Any]] = {
    "zeros zeros_like new_zeros zero": ZERO,
    "empty.memory_format empty_like empty_strided empty_permuted new_empty new_empty_strided": ZERO,
    "ones ones_like new_ones": ONE,
    "full full_like new_full": filled,
    "scalar_tensor": lambda value, **_: value,
    "arange": lambda end, **_: arange(0, end),
    "arange.start": arange,
    "arange.start_step": arange,
    "linspace": linspace,
    "eye": eye,
    "eye.m": eye,
}

ROWS: dict[str, Row] = rows("stored", FACTORIES)
