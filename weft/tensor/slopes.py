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
from weft.tensor.build import Tensor, cast, map_
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


def _by_last(slope: Callable[[float, Tensor], Tensor]) -> Callable[..., Slopes]:
    """Of a function whose first operand has to be a number, as in torch."""

    def slopes_of(g: Tensor, y: Tensor, a: Tensor, x: Tensor) -> Slopes:
        if not isinstance(a.node.op, Scalar):
            told = "zeta and the incomplete gammas have no derivative by their first operand"
            raise UnsupportedOpError(f"{told}: give a number there, or use weft.custom_gradient")
        return None, g * slope(a.node.op.value, x)  # a number, which it stays in a second slope

    return slopes_of


def _density(a: float, x: Tensor) -> Tensor:
    """Of a gamma distribution."""
    return s.exp(s.log(x) * (a - 1) - x - math.lgamma(a))


def _over(y: Tensor, x: Tensor) -> Tensor:
    """y / x; at 0 the half that Bessel functions of order 1 have there."""
    return s.where(s.eq(x, 0), 0.5, y / x)


def _signed(x: Tensor, y: Tensor) -> Tensor:
    """y with the sign of x."""
    return s.where(x > 0, y, s.where(x < 0, -y, y * 0))


def _product(g: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Slopes:
    return (g * a * 2, None) if a.node is b.node else (g * b, g * a)


ROOT_PI = 2 / math.sqrt(math.pi)
F = s.FUNCTIONS

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
    "lgamma": lambda g, y, x: (g * F["digamma"](x),),
    "digamma": lambda g, y, x: (g * map_(F["zeta"], 2.0, x),),
    "zeta": _by_last(lambda a, x: map_(F["zeta"], a + 1, x) * -a),
    "gammainc": _by_last(_density),
    "gammaincc": _by_last(lambda a, x: -_density(a, x)),
    "erfcx": lambda g, y, x: (g * (x * y * 2 - ROOT_PI),),
    "erfinv": lambda g, y, x: (g * (s.exp(y * y) * (1 / ROOT_PI)),),
    "ndtri": lambda g, y, x: (g * (s.exp(y * y * 0.5) * math.sqrt(2 * math.pi)),),
    "modified_bessel_i0": lambda g, y, x: (g * F["modified_bessel_i1"](x),),
    "modified_bessel_i1": lambda g, y, x: (g * (F["modified_bessel_i0"](x) - _over(y, x)),),
    "i0e": lambda g, y, x: (g * (F["i1e"](x) - _signed(x, y)),),
    "i1e": lambda g, y, x: (g * (F["i0e"](x) - _signed(x, y) - _over(y, x)),),
    "modified_bessel_k0": lambda g, y, x: (-(g * F["modified_bessel_k1"](x)),),
    "modified_bessel_k1": lambda g, y, x: (-(g * (F["modified_bessel_k0"](x) + y / x)),),
    "scaled_modified_bessel_k0": lambda g, y, x: (g * (y - F["scaled_modified_bessel_k1"](x)),),
    "scaled_modified_bessel_k1": lambda g, y, x: (
        g * (y - F["scaled_modified_bessel_k0"](x) - y / x),
    ),
    "bessel_j0": lambda g, y, x: (-(g * F["bessel_j1"](x)),),
    "bessel_j1": lambda g, y, x: (g * (F["bessel_j0"](x) - _over(y, x)),),
    "bessel_y0": lambda g, y, x: (-(g * F["bessel_y1"](x)),),
    "bessel_y1": lambda g, y, x: (g * (F["bessel_y0"](x) - y / x),),
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
    **{str(f): lambda g, y, x, f=f: (F[str(f)](g),) for f in s.ROUNDS.values()},
}

# Of no float, or a predicate: no gradient passes.
EXACT = {"int", "uint", "bool", "i64"}
WORDS = {F["bits"], F["float_of"]}  # what a sort moves
FLAT = {f for f in F.values() if f.result == "bool" or EXACT.issuperset(f.domain)} | WORDS
