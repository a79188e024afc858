"""Bounds of terms whose values are whole numbers: roundings of these have no effect.

wholes(f32(q) - 8.0)            # (-8, 247) for q of u8, None for a term of any other values
is_exact(f32(q) - 8.0, bf16)    # bf16 has all whole numbers up to 256
"""

import math
from collections.abc import Callable
from weakref import WeakKeyDictionary

import ml_dtypes
import numpy as np

from weft.core.node import Node, bottom_up
from weft.core.types import DType, boolean
from weft.scalar.intervals import INTERVALS, Interval
from weft.scalar.ops import CASTS, ROUNDS, function_of, value_of

BYTES_DOT = 4 * 255 * 128  # the most that four products of bytes add up to
KEPT = ("add", "subtract", "multiply", "minimum", "maximum", "where")


def is_exact(term: Node, dtype: DType) -> bool:
    """Whether a float dtype has all values of a term."""
    source = term.args[0].type.dtype if function_of(term) == str(term.type.dtype) else dtype
    if source.is_float and source.bits < dtype.bits:
        return source.bits == 8  # bf16 has not all of f16, nor the other way round
    found = wholes(term)
    return found is not None and _is_held(found, dtype)


def wholes(term: Node) -> Interval | None:
    """The least interval this finds of whole values; None where they may be others, or round."""
    return bottom_up(term, _known, _find)  # type: ignore[arg-type]


_known: WeakKeyDictionary[Node, Interval | None] = WeakKeyDictionary()


def _find(term: Node) -> Interval | None:
    found, dtype = _of_values(term), term.type.dtype
    if dtype.is_float:
        return found if found and _is_held(found, dtype.compute) else None
    every = _range(dtype)
    inside = found and every and every[0] <= found[0] and found[1] <= every[1]
    return found if inside else every


def _of_values(term: Node) -> Interval | None:
    """The interval before integers wrap and floats round."""
    name, value, args = function_of(term) or "", value_of(term), term.args
    if value is not None:
        return (value, value) if math.isfinite(value) and value == math.floor(value) else None
    if name in ("dot_bytes", "dot_turned"):
        return -BYTES_DOT, BYTES_DOT
    known = [i for i in (_known[a] for a in args[-2:]) if i is not None]
    if name not in METHODS or len(known) < len(args[-2:]):
        return None
    return METHODS[name](*known)


def _rounded(dtype: DType) -> Callable[[Interval], Interval | None]:
    return lambda a: a if not dtype.is_float or _is_held(a, dtype) else None


def _and(a: Interval, b: Interval) -> Interval | None:
    return (0, min(a[1], b[1])) if min(a[0], b[0]) >= 0 else None


def _shifted(a: Interval, by: Interval) -> Interval | None:
    return (0, a[1] // 2 ** by[0]) if min(a[0], by[0]) >= 0 else None


def _is_held(found: Interval, dtype: DType) -> bool:
    """Whether a float dtype has every whole number of the interval."""
    return max(map(abs, found)) <= 2 ** (ml_dtypes.finfo(dtype.numpy).nmant + 1)


def _range(dtype: DType) -> Interval | None:
    if dtype is boolean:
        return 0, 1
    return (np.iinfo(dtype.numpy).min, np.iinfo(dtype.numpy).max) if dtype.is_integer else None


# Function -> the interval of its values from those of its last two arguments.
METHODS: dict[str, Callable[..., Interval | None]] = {
    **{name: INTERVALS[name] for name in KEPT},
    **{str(f): _rounded(d) for by in (CASTS, ROUNDS) for d, f in by.items()},
    "and": _and,
    "shift_right": _shifted,
}
