"""Formulas of the pointwise ATen ops that take more than a line; `pointwise.py` has the rows.

gelu(x) = 0.5 * x * (1 + erf(x * math.sqrt(0.5)))
"""

import math
from collections.abc import Callable
from typing import Any

from weft.core.types import DType, bf16, boolean, f64, i32, i64
from weft.frontend.aten.table import require
from weft.scalar import ops as s
from weft.scalar.ops import Function
from weft.tensor import build as t
from weft.tensor.build import Number, Operand, Tensor


def scaled(x: Operand, by: Number) -> Operand:
    return x if by == 1 else x * by


def is_nan(x: Operand) -> Tensor:
    return s.ne(x, x)


def truth(x: Operand) -> Operand:
    """x as a bool."""
    return t.cast(x, boolean) if isinstance(x, Tensor) else bool(x)


def rounding(function: Function) -> Callable[[Tensor], Tensor]:
    """A rounding function, which leaves integers as they are."""
    return lambda x: function(x) if x.dtype.is_float else x


def sign(x: Tensor) -> Tensor:
    return s.where(x > 0, 1, s.where(x < 0, t.literal(-1, x.dtype), 0))


def clamp(x: Tensor, low: Operand | None, high: Operand | None) -> Tensor:
    x = x if low is None else s.maximum(x, low)
    return x if high is None else s.minimum(x, high)


def extreme(best: Function) -> Callable[..., Tensor]:
    """Of tensors: a number among them is no bound, so that a tie shares a gradient."""

    def row(*pair: Tensor) -> Tensor:
        shape = t.broadcast_shape(*(x.shape for x in pair))
        return best(*(x if x.rank else t.view(x, shape, ()) for x in pair))

    return row


def is_negative(x: Tensor) -> Tensor:
    """The sign bit, which -0.0 has too."""
    return (x < 0) | (s.eq(x, 0) & (s.reciprocal(x) < 0)) if x.dtype.is_float else x < 0


def copysign(x: Tensor, y: Operand) -> Tensor:
    size, y = abs(x), y if isinstance(y, Tensor) else t.literal(y, x.dtype)
    return s.where(is_negative(y), -size, size)


def asinh(x: Tensor) -> Tensor:
    a = abs(x)
    near = s.log1p(a + a * a / (1 + s.sqrt(a * a + 1)))
    return copysign(s.where(a > 1e9, s.log(a) + math.log(2), near), x)


def acosh(x: Tensor) -> Tensor:
    over = x - 1
    root = s.sqrt(over) * s.sqrt(x + 1)  # NaN below 1
    return s.where(x > 1e9, s.log(x) + math.log(2), s.log1p(over + root))


def atanh(x: Tensor) -> Tensor:
    a = abs(x)
    return copysign(0.5 * s.log1p(2 * a / (1 - a)), x)


def hypot(x: Tensor, y: Tensor) -> Tensor:
    """Scaled by the larger side, so that squares do not overflow."""
    a, b = abs(x), abs(y)
    large, small = s.maximum(a, b), s.minimum(a, b)
    ratio = s.where(s.eq(large, 0), 0.0, small / large)
    infinite = s.eq(a, math.inf) | s.eq(b, math.inf)
    return s.where(infinite, math.inf, large * s.sqrt(ratio * ratio + 1))


def pick(best: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """fmax and fmin: a number beats NaN."""
    return lambda x, y: s.where(is_nan(x), y, s.where(is_nan(y), x, best(x, y)))


def logical(combine: Callable[[Any, Any], Any]) -> Callable[..., Tensor]:
    return lambda x, y: combine(truth(x), truth(y))


# --- bits of floats -------------------------------------------------------------------------------


def frexp(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mantissa and exponent: x * 2**-e, which is exact, of x scaled by 2**100 at either end."""
    word, digits, bias = (i64, 52, 1023) if x.dtype is f64 else (i32, 23, 127)
    small, large = abs(x) < 2.0**-100, abs(x) > 2.0**100
    near = x * s.where(small, 2.0**100, s.where(large, 2.0**-100, t.full(x.shape, 1, x.dtype)))
    field = (1 << (x.dtype.numpy.itemsize * 8 - 1 - digits)) - 1
    biased = s.bitand(s.shift_right(s.FUNCTIONS["bits"](near), digits), field)
    whole = s.ne(x, 0) & (abs(x) < math.inf)
    scale = s.FUNCTIONS["float_of"](s.shift_left(2 * bias - 1 - biased, digits))
    moved = s.where(small, -100, s.where(large, 100, t.full(x.shape, 0, word)))
    exponent = s.where(whole, biased - (bias - 1) + moved, 0)
    return s.where(whole, near * scale, x), exponent


def nextafter(x: Tensor, y: Tensor) -> Tensor:
    """The next number of x's dtype from x on towards y."""
    require(x.dtype is bf16 or x.dtype.numpy.itemsize >= 4, "the next f16 is some bits of f32 away")
    step = 1 << 16 if x.dtype is bf16 else 1
    x, y = t.widen(x), t.widen(y)
    float_of, word = s.FUNCTIONS["float_of"], s.FUNCTIONS["bits"](x)
    out = s.where(s.eq(s.lt(x, y), x > 0), word + step, word - step)
    least = copysign(float_of(t.full(x.shape, step, word.dtype)), y)
    found = s.where(s.eq(x, 0), least, float_of(out))
    return s.where(is_nan(x), x, s.where(is_nan(y) | s.eq(x, y), y, found))


# --- division and powers ------------------------------------------------------------------------


def dtype_of(x: Operand, y: Operand) -> DType:
    """The dtype of the one or two tensors among two operands."""
    return (x if isinstance(x, Tensor) else y).dtype  # type: ignore[union-attr]


def divisor(x: Operand, y: Operand) -> Operand:
    """y as what divides x: no zero, for integers."""
    dtype = dtype_of(x, y)
    y = y if isinstance(y, Tensor) else t.literal(y, dtype)
    return s.checked_divisor(y) if dtype.is_integer else y


def floor_divide(x: Operand, y: Operand) -> Tensor:
    """Python's //; on floats by fmod, as rounding x / y alone can be one off."""
    y = divisor(x, y)
    if not dtype_of(x, y).is_float:
        return s.floordiv(x, y)
    rest = s.fmod(x, y)
    quotient = s.subtract(x, rest) / y
    crosses = s.ne(rest, 0.0) & s.ne(s.lt(y, 0.0), rest < 0)
    whole = s.round_even(s.where(crosses, quotient - 1, quotient))
    return s.where(s.eq(y, 0.0), s.divide(x, y), whole)


def divide_mode(x: Operand, y: Operand, rounding_mode: str | None = None) -> Tensor:
    if rounding_mode == "floor":
        return floor_divide(x, y)
    if rounding_mode == "trunc" and not dtype_of(x, y).is_float:
        return s.truncdiv(x, divisor(x, y))
    quotient = s.divide(x, y)
    return s.trunc(quotient) if rounding_mode == "trunc" else quotient


def power_of(x: Operand, y: Operand) -> Tensor:
    if isinstance(x, Tensor) and not isinstance(y, Tensor):
        return power_by(x, y)
    assert isinstance(y, Tensor)
    if not isinstance(x, Tensor) and x == 2 and y.dtype.is_float:
        return s.exp2(y)
    if y.dtype.kind != "int":
        return s.power(x, y)
    x = x if isinstance(x, Tensor) else t.literal(x, y.dtype)
    odd = s.where(s.eq(s.floormod(y, 2), 0), t.cast(s.eq(x, x), x.dtype), x)
    inverse = s.where(s.eq(abs(x), 1), odd, 0)  # 1 / x rounded to zero
    return s.where(y < 0, inverse, s.power(x, s.maximum(y, 0)))


def power_by(x: Tensor, exponent: Number) -> Tensor:
    """x to a constant power: products, roots and their reciprocals where torch uses them."""
    if exponent == 0:
        return t.cast(s.eq(x, x) | s.ne(x, x), x.dtype)
    if float(exponent).is_integer() and 0 < abs(exponent) <= 8:
        product = repeated_product(x, abs(int(exponent)))
        return product if exponent > 0 else s.reciprocal(product)
    if abs(exponent) == 0.5:
        return s.sqrt(x) if exponent > 0 else s.rsqrt(x)
    return s.power(x, exponent)


def repeated_product(x: Tensor, n: int) -> Tensor:
    if n == 1:
        return x
    half = repeated_product(x, n // 2)
    return half * half if n % 2 == 0 else half * half * x


def round_decimals(x: Tensor, decimals: int = 0) -> Tensor:
    if not x.dtype.is_float:
        return x
    ten = float(10 ** abs(decimals))
    return s.round_even(x * ten) / ten if decimals >= 0 else s.round_even(x / ten) * ten


# --- special functions --------------------------------------------------------------------------


def spherical_bessel_j0(x: Tensor) -> Tensor:
    whole = s.where(s.eq(x, 0), 1, s.sin(x) / x)
    return s.where(s.eq(abs(x), math.inf), 0, whole)


def polygamma(n: int, x: Tensor) -> Tensor:
    """Derivatives of digamma: (-1)^(n + 1) n! zeta(n + 1, x); the first one by reflection below."""
    zeta, n = s.FUNCTIONS["zeta"], int(n)
    if n == 0:
        return s.FUNCTIONS["digamma"](x)
    one = t.literal(n + 1, x.dtype)
    if n > 1:
        factor = math.factorial(n) if n < 171 else math.inf
        return float(factor if n % 2 else -factor) * zeta(one, x)
    below = x < 0.5
    root = math.pi / s.sin(math.pi * (x - s.round_even(x)))
    psi = zeta(one, s.where(below, 1 - x, x))
    return s.where(s.eq(x, math.inf), 0, s.where(below, root * root - psi, psi))


def angle(x: Tensor) -> Tensor:
    """0, pi of a negative number, NaN of NaN."""
    return s.where(is_nan(x), x, s.where(x < 0, t.literal(math.pi, x.dtype), 0))


# --- activations --------------------------------------------------------------------------------


def softshrink(x: Tensor, bound: Number) -> Tensor:
    return s.where(x > bound, x - bound, s.where(x < -bound, x + bound, x * 0))


GELU_SLOPE, GELU_CUBE = math.sqrt(2 / math.pi), 0.044715


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    if approximate == "tanh":
        return 0.5 * x * (1 + s.tanh(GELU_SLOPE * (x + GELU_CUBE * (x * x * x))))
    return 0.5 * x * (1 + s.erf(x * math.sqrt(0.5)))
