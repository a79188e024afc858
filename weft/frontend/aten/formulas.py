"""Formulas of the pointwise ATen ops that take more than a line; `pointwise.py` has the rows.

gelu(x) = 0.5 * x * (1 + erf(x * math.sqrt(0.5)))
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from weft.core.types import boolean
from weft.scalar.ops import Function, checked_divisor, divide, lt, subtract
from weft.tensor.build import (
    Number,
    Operand,
    Tensor,
    cast,
    eq,
    erf,
    exp2,
    expm1,
    floordiv,
    floormod,
    fmod,
    literal,
    log,
    log1p,
    map_,
    maximum,
    minimum,
    ne,
    power,
    reciprocal,
    round_even,
    rsqrt,
    sqrt,
    tanh,
    trunc,
    truncdiv,
    where,
)

INFINITY, NAN = math.inf, math.nan


def scaled(x: Operand, by: Number) -> Operand:
    return x if by == 1 else x * by


def is_nan(x: Operand) -> Tensor:
    return ne(x, x)


def truth(x: Operand) -> Operand:
    """x as a bool."""
    return cast(x, boolean) if isinstance(x, Tensor) else bool(x)


def rounding(function: Function) -> Callable[[Tensor], Tensor]:
    """A rounding function, which leaves integers as they are."""
    return lambda x: map_(function, x) if x.dtype.is_float else x


def one_if(condition: Tensor, like: Tensor) -> Tensor:
    return cast(condition, like.dtype)


def sign(x: Tensor) -> Tensor:
    positive = one_if(x > 0, x)
    return positive if x.dtype.kind in ("uint", "bool") else positive - one_if(x < 0, x)


def clamp(x: Tensor, low: Operand | None = None, high: Operand | None = None) -> Tensor:
    x = x if low is None else maximum(x, low)
    return x if high is None else minimum(x, high)


def is_negative(x: Tensor) -> Tensor:
    """The sign bit, which -0.0 has too."""
    return (x < 0) | (eq(x, 0) & (reciprocal(x) < 0)) if x.dtype.is_float else x < 0


def copysign(x: Tensor, y: Operand) -> Tensor:
    size = abs(x)
    if not isinstance(y, Tensor):
        return -size if math.copysign(1, y) < 0 else size
    return where(is_negative(y), -size, size)


def asinh(x: Tensor) -> Tensor:
    a = abs(x)
    near = log1p(a + a * a / (1 + sqrt(a * a + 1)))
    return copysign(where(a > 1e9, log(a) + math.log(2), near), x)


def acosh(x: Tensor) -> Tensor:
    t = x - 1
    return where(x > 1e9, log(x) + math.log(2), log1p(t + sqrt(t * (x + 1))))


def atanh(x: Tensor) -> Tensor:
    a = abs(x)
    return copysign(0.5 * log1p(2 * a / (1 - a)), x)


def hypot(x: Tensor, y: Tensor) -> Tensor:
    """Scaled by the larger side, so that squares do not overflow."""
    a, b = abs(x), abs(y)
    large, small = maximum(a, b), minimum(a, b)
    ratio = where(eq(large, 0), 0.0, small / large)
    infinite = eq(a, INFINITY) | eq(b, INFINITY)
    return where(infinite, INFINITY, large * sqrt(ratio * ratio + 1))


def pick(best: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """fmax and fmin: a number beats NaN."""
    return lambda x, y: where(is_nan(x), y, where(is_nan(y), x, best(x, y)))


def logical(combine: Callable[[Any, Any], Any]) -> Callable[..., Tensor]:
    return lambda x, y: combine(truth(x), truth(y))


# --- division and powers ------------------------------------------------------------------------


def divisor(x: Operand, y: Operand) -> Operand:
    """y as what divides x: no zero, for integers."""
    dtype = x.dtype if isinstance(x, Tensor) else y.dtype  # type: ignore[union-attr]
    y = y if isinstance(y, Tensor) else literal(y, dtype)
    return map_(checked_divisor, y) if dtype.is_integer else y


def floor_divide(x: Operand, y: Operand) -> Tensor:
    """Python's //; on floats by fmod, as rounding x / y alone can be one off."""
    anchor = x if isinstance(x, Tensor) else y
    assert isinstance(anchor, Tensor)
    if not anchor.dtype.is_float:
        return floordiv(x, divisor(x, y))
    rest = fmod(x, y)
    quotient = map_(subtract, x, rest) / y
    crosses = ne(rest, 0.0) & ne(map_(lt, y, 0.0), rest < 0)
    whole = round_even(where(crosses, quotient - 1, quotient))
    return where(eq(y, 0.0), map_(divide, x, y), whole)


def divide_mode(x: Operand, y: Operand, rounding_mode: str | None = None) -> Tensor:
    if rounding_mode == "floor":
        return floor_divide(x, y)
    anchor = x if isinstance(x, Tensor) else y
    assert isinstance(anchor, Tensor)
    if rounding_mode == "trunc":
        return trunc(map_(divide, x, y)) if anchor.dtype.is_float else truncdiv(x, divisor(x, y))
    return map_(divide, x, y)


def power_of(x: Operand, y: Operand) -> Tensor:
    if isinstance(x, Tensor) and not isinstance(y, Tensor):
        return power_by(x, y)
    assert isinstance(y, Tensor)
    if not isinstance(x, Tensor) and x == 2 and y.dtype.is_float:
        return exp2(y)
    if y.dtype.is_float:
        return power(x, y)
    x = x if isinstance(x, Tensor) else literal(x, y.dtype)
    odd = where(eq(floormod(y, 2), 0), one_if(eq(x, x), x), x)
    inverse = where(eq(abs(x), 1), odd, 0)  # 1 / x rounded to zero
    return where(y < 0, inverse, power(x, maximum(y, 0))) if y.dtype.kind == "int" else power(x, y)


def power_by(x: Tensor, exponent: Number) -> Tensor:
    """x to a constant power: products, roots and their reciprocals where torch uses them."""
    if exponent == 0:
        return one_if(eq(x, x) | ne(x, x), x)
    if float(exponent).is_integer() and 0 < abs(exponent) <= 8:
        product = repeated_product(x, abs(int(exponent)))
        return product if exponent > 0 else reciprocal(product)
    if abs(exponent) == 0.5:
        return sqrt(x) if exponent > 0 else rsqrt(x)
    return power(x, exponent)


def repeated_product(x: Tensor, n: int) -> Tensor:
    if n == 1:
        return x
    half = repeated_product(x, n // 2)
    return half * half if n % 2 == 0 else half * half * x


def round_decimals(x: Tensor, decimals: int = 0) -> Tensor:
    if not x.dtype.is_float:
        return x
    ten = float(10 ** abs(decimals))
    return round_even(x * ten) / ten if decimals >= 0 else round_even(x / ten) * ten


# --- activations --------------------------------------------------------------------------------


def elu(x: Tensor, alpha: Number = 1, scale: Number = 1, input_scale: Number = 1) -> Tensor:
    negative = scaled(expm1(scaled(x, input_scale)), alpha * scale)
    return where(x > 0, scaled(x, scale), negative)


GELU_SLOPE, GELU_CUBE = math.sqrt(2 / math.pi), 0.044715


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    if approximate == "tanh":
        return 0.5 * x * (1 + tanh(GELU_SLOPE * (x + GELU_CUBE * (x * x * x))))
    return 0.5 * x * (1 + erf(x * math.sqrt(0.5)))
