"""Rows of values rounded to steps of a scale, as training for quantisation has them.

fake_quantize(x, 0.1, 0, -128, 127)      # a multiple of 0.1, and whether x was within the range
"""

import math

import numpy as np

from weft.core.types import DType, f8e4m3fn, f32, i32
from weft.frontend.aten.formulas import is_nan
from weft.frontend.aten.table import Row, axis_of, require, rows
from weft.scalar.ops import ge, le, maximum, minimum, where
from weft.scalar.ops import round_even as nearest
from weft.tensor.build import (
    Operand,
    Tensor,
    broadcast_in,
    cast,
    matmul,
    reshape,
    transpose,
    widen,
)

BEYOND = 464.0  # the largest f32 that is rounded to an f8e4m3fn
BELOW = float(np.nextafter(np.float32(2**63), np.float32(0)))  # the last f32 that an i64 holds


def fake_quantize(
    x: Tensor, scale: Operand, zero_point: Operand, low: int, high: int, most: float = math.inf
) -> tuple[Tensor, Tensor]:
    """The inverse of a scale is an f32, by which x is multiplied, as in eager's kernels.

    NaN is the least value, as is what is above `most`.
    """
    inverse = 1.0 / scale if isinstance(scale, Tensor) else np.float32(1) / np.float32(scale)
    scale = scale if isinstance(scale, Tensor) else float(np.float32(scale))
    wide = x.dtype.compute
    inverse = cast(inverse, wide) if isinstance(inverse, Tensor) else float(inverse)
    at = nearest(cast(x, wide) * inverse) + zero_point
    at = where(is_nan(at) | (at > most), -math.inf, at)
    inside = ge(at, low) & le(at, high)
    return (minimum(maximum(at, low), high) - zero_point) * scale, inside


def by_tensors(
    x: Tensor, scale: Tensor, zero_point: Tensor, enabled: Tensor, low: int, high: int
) -> tuple[Tensor, Tensor]:
    """One scale and zero point, and whether values are rounded at all."""
    factor, zero = (reshape(t, ()) for t in (scale, zero_point))
    out, inside = fake_quantize(x, factor, cast(zero, x.dtype.compute), low, high)
    rounds = reshape(enabled, ()) > 0
    return where(rounds, out, cast(x, out.dtype)), inside | ~rounds


def by_channel(
    x: Tensor, scale: Tensor, zero_point: Tensor, axis: int, low: int, high: int
) -> tuple[Tensor, Tensor]:
    axes = (axis_of(axis, x.rank),)
    factor = broadcast_in(cast(scale, f32), x.shape, axes)
    zero = broadcast_in(cast(zero_point, x.dtype.compute), x.shape, axes)
    return fake_quantize(x, factor, zero, low, high, BELOW)


def rounded(zero_point: Tensor, low: int, high: int) -> Tensor:
    """The zero point that training has made: the nearest integer within the range."""
    return minimum(maximum(nearest(zero_point), low), high)


def learnable(
    x: Tensor, scale: Tensor, zero_point: Tensor, low: int, high: int, factor: float = 1.0
) -> Tensor:
    zero = rounded(reshape(cast(zero_point, f32), ()), low, high)
    return fake_quantize(x, reshape(scale, ()), cast(zero, x.dtype.compute), low, high)[0]


def learnable_by_channel(
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    axis: int,
    low: int,
    high: int,
    factor: float = 1.0,
) -> Tensor:
    return by_channel(x, scale, rounded(zero_point, low, high), axis, low, high)[0]


def int_mm(a: Tensor, b: Tensor) -> Tensor:
    """Sums of products of i8, exact in i32."""
    return matmul(cast(a, i32), cast(b, i32))


def int8_weights(x: Tensor, weight: Tensor, scales: Tensor) -> Tensor:
    """x times the transpose of i8 weights, each row of which has a scale."""
    wide = x.dtype.compute
    return matmul(widen(x), transpose(cast(weight, wide))) * cast(scales, wide)


def scaled_mm(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None,
    scale_result: Tensor | None,
    out_dtype: DType | None,
    use_fast_accum: bool = False,
) -> Tensor:
    """Products of floats of 8 bits, in f32: scaled by row and column, or as a whole, then shifted.

    Only a result of 8 bits is divided by its scale. As in eager, what f8e4m3fn cannot hold is NaN
    here, where a cast saturates.
    """
    kind, (rows_of_a, columns) = out_dtype or a.dtype, (a.shape[0], b.shape[1])
    whole = scale_a.type.size == 1 and scale_b.type.size == 1
    each = scale_a.shape == (rows_of_a, 1) and scale_b.shape == (1, columns)
    require(whole or each, "its scales are neither of the whole nor of rows and columns")
    factors = [cast(reshape(s, ()) if whole else s, f32) for s in (scale_a, scale_b)]
    out = matmul(widen(a), widen(b)) * factors[0] * factors[1]
    out = out if bias is None else out + cast(bias, f32)
    if kind.bits > 8:
        return out
    out = out if scale_result is None else out / reshape(scale_result, ())
    return where(abs(out) > BEYOND, math.nan, out) if kind is f8e4m3fn else out


ROWS: dict[str, Row] = rows(
    "stored",
    {
        "_int_mm": int_mm,
        "_scaled_mm": scaled_mm,
        "_weight_int8pack_mm": int8_weights,
        "_fake_quantize_learnable_per_tensor_affine": learnable,
        "_fake_quantize_learnable_per_channel_affine": learnable_by_channel,
        "fake_quantize_per_tensor_affine_cachemask": fake_quantize,
        "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams": by_tensors,
        "fake_quantize_per_channel_affine_cachemask": by_channel,
    },
)
