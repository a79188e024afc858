"""Rows of the pointwise ATen ops, casts and selections.

"silu": lambda x: x * sigmoid(x)          # operands arrive in the dtype torch computes in
"""

from typing import Any

from weft.core.types import boolean
from weft.frontend.aten import formulas as f
from weft.frontend.aten.table import Row, namesakes, require, rows
from weft.scalar import ops as scalar
from weft.scalar import special
from weft.tensor.build import Operand, Tensor, broadcast, cast

# What ATen and the scalar functions call by one name.
NAMESAKES = """exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan
atan2 sinh cosh tanh erf erfc lgamma relu sigmoid"""

# Special functions: ATen's name is special_ and the function's, or one of these.
SPECIAL = {
    "modified_bessel_i0": "i0 special_modified_bessel_i0",
    "modified_bessel_i1": "special_i1 special_modified_bessel_i1",
    "digamma": "digamma",
    "erfinv": "erfinv",
    "gammainc": "igamma",
    "gammaincc": "igammac",
    "zeta": "special_zeta special_zeta.other_scalar,self_scalar",
}
ONE, TWO = special.SPECIAL

ARITHMETIC = {
    **{name: scalar.FUNCTIONS[name] for name in NAMESAKES.split()},
    **{SPECIAL.get(name, f"special_{name}"): scalar.FUNCTIONS[name] for name in ONE},
    **{
        SPECIAL.get(n, f"special_{n} special_{n}.x_scalar,n_scalar"): scalar.FUNCTIONS[n]
        for n in TWO
    },
    "special_spherical_bessel_j0": f.spherical_bessel_j0,
    "polygamma": f.polygamma,
    "angle": f.angle,
    "add.Tensor,Scalar": lambda x, y, alpha=1: x + f.scaled(y, alpha),
    "sub.Tensor,Scalar": lambda x, y, alpha=1: x - f.scaled(y, alpha),
    "remainder.Tensor,Scalar,Scalar_Tensor": lambda x, y: scalar.floormod(x, f.divisor(x, y)),
    "fmod.Tensor,Scalar": lambda x, y: scalar.fmod(x, f.divisor(x, y)),
    "pow.Tensor_Scalar,Tensor_Tensor,Scalar": f.power_of,
    "neg": lambda x: -x,
    "abs": abs,
    **{name: f.rounding(scalar.FUNCTIONS[name]) for name in ("floor", "ceil", "trunc")},
    "round round.decimals": f.round_decimals,
    "maximum": f.extreme(scalar.maximum),
    "minimum": f.extreme(scalar.minimum),
    "fmax": f.pick(scalar.maximum),
    "fmin": f.pick(scalar.minimum),
    "clamp clamp.Tensor": f.clamp,
    "copysign.Tensor,Scalar": f.copysign,
    **namesakes(f.sign, f.hypot, f.asinh, f.acosh, f.atanh),
    "softshrink_backward hardshrink_backward": lambda g, x, d: scalar.where(abs(x) <= d, 0, g),
}

# An activation's bounds and slopes, a factor and a divisor: eager does not round these.
SCALED = {
    "mul.Tensor,Scalar": lambda x, y: x * y,
    "div.Tensor,Scalar": scalar.divide,
    "div.Tensor_mode,Scalar_mode": f.divide_mode,
    "silu": lambda x: x * scalar.sigmoid(x),
    **namesakes(f.gelu, f.softshrink),
}

COMPARISONS = {
    **{f"{n}.Tensor,Scalar": scalar.FUNCTIONS[n] for n in ("eq", "ne", "lt", "le", "gt", "ge")},
    "isnan": f.is_nan,
    "signbit": lambda x: f.is_negative(x) if x.dtype.kind in ("float", "int") else False,
    **{f"logical_{name}": f.logical(scalar.FUNCTIONS[name]) for name in ("and", "or", "xor")},
    "logical_not": lambda x: ~cast(x, boolean),
}

BITS = {
    "bitwise_and.Tensor,Scalar,Scalar_Tensor": scalar.bitand,
    "bitwise_or.Tensor,Scalar,Scalar_Tensor": scalar.bitor,
    "bitwise_xor.Tensor,Scalar,Scalar_Tensor": scalar.bitxor,
    "bitwise_not": lambda x: ~x,
    "bitwise_left_shift.Tensor,Tensor_Scalar,Scalar_Tensor": scalar.shift_left,
    "bitwise_right_shift.Tensor,Tensor_Scalar,Scalar_Tensor": scalar.shift_right,
    "__lshift__.Tensor,Scalar": scalar.shift_left,
    "__rshift__.Tensor,Scalar": scalar.shift_right,
}

# --- casts and selections: nothing is computed --------------------------------------------------


def same(x: Tensor, *_: Any, **__: Any) -> Tensor:
    """The result's dtype is the torch level's; only the value passes here."""
    return x


def dropout(x: Tensor, p: float, train: bool | None) -> tuple[Tensor, Operand]:
    require(not train or p == 0, "a random mask is drawn by torch")
    return x, True


SELECTIONS = {
    "nextafter": f.nextafter,
    "where.self": lambda condition, x, y: scalar.where(f.truth(condition), x, y),
    "masked_fill.Scalar,Tensor": lambda x, m, value: scalar.where(f.truth(m), value, x),
}
CASTS = {
    "_to_copy clone alias detach lift_fresh lift_fresh_copy": same,
    "copy": lambda into, x, *_: broadcast(x, into.shape),
    "fill.Scalar,Tensor": lambda x, value: value,
    "native_dropout": dropout,
}

ROWS: dict[str, Row] = {
    **rows("wrapped", COMPARISONS | BITS | ARITHMETIC),
    "prims.fma.default": Row(scalar.fma, "wrapped"),
    **rows("promoted", SCALED),
    **rows("widened", {"frexp.Tensor": f.frexp}),
    **rows("converted", SELECTIONS),
    **rows("stored", CASTS),
}
