"""Derivatives of the scalar functions, each in the same functions, so that they have their own.

SLOPES["tanh"](g, y, x)            # (g * (1 - y * y),): of g, what y = tanh(x) passes on to x
Where a function has several slopes torch's is taken: equal operands of a maximum share g by half,
a clamp (an operand is a number) passes all of it, relu and abs have none at 0. None: no gradient.
"""

import math
from collections.abc import Callable, Sequence

from weft.core.errors import UnsupportedOpError
from weft.scalar import ops as s
from weft.scalar.ops import CASTS, Function
from weft.tensor.build import Tensor, cast
from weft.tensor.ops import Scalar

Slopes = Sequence[Tensor | None]  # for each operand its gradient


def slopes(function: Function, g: Tensor, y: Tensor, *operands: Tensor) -> Slopes:
    """What each operand gets of g, the gradient of y = function(*operands)."""
    if function in CASTS.values():
        return (cast(g, operands[0].dtype),)
    if function.name not in SLOPES:
        told = "has no derivative at the tensor level: differentiate before what made it"
        raise UnsupportedOpError(f"the function {function} {told}, or use weft.custom_gradient")
    return SLOPES[function.name](g, y, *operands)


def _zero(condition: Tensor, g: Tensor) -> Tensor:
    """g, 0 where the condition holds."""
    return s.where(condition, 0, g)


def _best(loses: Function) -> Callable[..., Slopes]:
    """Of maximum and minimum; `loses` compares an operand with the other one.

    As torch's, a NaN passes g on to both operands, and a clamp's to none.
    """

    def slope(g: Tensor, y: Tensor, *pair: Tensor) -> Slopes:
        numbers = [isinstance(t.node.op, Scalar) for t in pair]
        if any(numbers):
            x, bound = pair if numbers[1] else pair[::-1]
            return [None if n else _zero(~_keeps(loses, x, bound), g) for n in numbers]
        shared = s.where(s.eq(*pair), g * 0.5, g)
        return [_zero(loses(*both), shared) for both in (pair, pair[::-1])]

    return slope


def _keeps(loses: Function, x: Tensor, bound: Tensor) -> Tensor:
    return (s.ge if loses is s.lt else s.le)(x, bound)


def _power(g: Tensor, y: Tensor, x: Tensor, exponent: Tensor) -> Slopes:
    by_x = s.where(s.eq(exponent, 0), 0, g * exponent * s.power(x, exponent - 1))
    if isinstance(exponent.node.op, Scalar):
        return by_x, None
    return by_x, _zero(s.eq(x, 0) & (exponent >= 0), g * y * s.log(x))


def _atan2(g: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Slopes:
    square = a * a + b * b
    share = _zero(s.eq(square, 0), g / square)
    return share * b, -(share * a)


SHIFT = 8  # digamma's series is summed this far up
SERIES = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12, -3617 / 8160)


def digamma(x: Tensor) -> Tensor:
    """The slope of lgamma: reflected below 1/2, raised by SHIFT, then Stirling's series."""
    low = x < 0.5
    z = s.where(low, 1 - x, x)
    below = 0.0 - sum((s.reciprocal(z + k) for k in range(1, SHIFT)), s.reciprocal(z))
    up = z + SHIFT
    square = s.reciprocal(up * up)
    series = square * 0.0
    for term in reversed(SERIES):
        series = (series + term) * square
    high = below + s.log(up) - 0.5 / up - series
    turn = s.tan((x - s.round_even(x)) * math.pi)
    return high - _zero(~low, math.pi / s.where(low, turn, 1))


def _product(g: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Slopes:
    return (g * a * 2, None) if a.node is b.node else (g * b, g * a)


ROOT_PI = 2 / math.sqrt(math.pi)

SLOPES: dict[str, Callable[..., Slopes]] = {
    "add": lambda g, y, a, b: (g, g),
    "subtract": lambda g, y, a, b: (g, -g),
    "multiply": _product,
    "divide": lambda g, y, a, b: (g / b, -(g * (y / b))),
    "fmod": lambda g, y, a, b: (g, -(g * s.trunc(a / b))),
    "floormod": lambda g, y, a, b: (g, -(g * s.round_even((a - y) / b))),
    "power": _power,
    "fma": lambda g, y, a, b, c: (g * b, g * a, g),
    "maximum": _best(s.lt),
    "minimum": _best(s.gt),
    "atan2": _atan2,
    "negate": lambda g, y, x: (-g,),
    "absolute": lambda g, y, x: (s.where(x > 0, g, s.where(x < 0, -g, g * 0)),),
    "sqrt": lambda g, y, x: (g / (y * 2),),
    "rsqrt": lambda g, y, x: (g * (y * y * y) * -0.5,),
    "reciprocal": lambda g, y, x: (-(g * (y * y)),),
    "relu": lambda g, y, x: (_zero(x <= 0, g),),
    "exp": lambda g, y, x: (g * y,),
    "exp2": lambda g, y, x: (g * y * math.log(2),),
    "expm1": lambda g, y, x: (g * (y + 1),),
    "log": lambda g, y, x: (g / x,),
    "log2": lambda g, y, x: (g / (x * math.log(2)),),
    "log10": lambda g, y, x: (g / (x * math.log(10)),),
    "log1p": lambda g, y, x: (g / (x + 1),),
    "tanh": lambda g, y, x: (g * (1 - y * y),),
    "erf": lambda g, y, x: (g * (s.exp(-(x * x)) * ROOT_PI),),
    "erfc": lambda g, y, x: (g * (s.exp(-(x * x)) * -ROOT_PI),),
    "sigmoid": lambda g, y, x: (g * (y * (1 - y)),),
    "lgamma": lambda g, y, x: (g * digamma(x),),
    "sin": lambda g, y, x: (g * s.cos(x),),
    "cos": lambda g, y, x: (-(g * s.sin(x)),),
    "tan": lambda g, y, x: (g * (y * y + 1),),
    "asin": lambda g, y, x: (g * s.rsqrt(1 - x * x),),
    "acos": lambda g, y, x: (-(g * s.rsqrt(1 - x * x)),),
    "atan": lambda g, y, x: (g / (x * x + 1),),
    "sinh": lambda g, y, x: (g * s.cosh(x),),
    "cosh": lambda g, y, x: (g * s.sinh(x),),
    **{name: lambda g, y, x: (None,) for name in ("floor", "ceil", "trunc", "round")},
    "where": lambda g, y, c, a, b: (None, s.where(c, g, 0), s.where(c, 0, g)),
    **{str(f): lambda g, y, x, f=f: (s.FUNCTIONS[str(f)](g),) for f in (s.round_f16, s.round_bf16)},
}

# Of no float, or a predicate: no gradient passes.
EXACT = {"int", "uint", "bool", "i64"}
FLAT = {f for f in s.FUNCTIONS.values() if f.result == "bool" or EXACT.issuperset(f.domain)}
