"""Quantised types: exact integers, rounded and saturated as ONNX says.

QuantizeLinear(x, self.scale, self.zero_point)      # u8
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from weft.onnx.rows.casts import cast
from weft.onnx.rows.layers import conv
from weft.onnx.table import op
from weft.onnx.types import NARROW, name_of, refuse, stored

UINT8 = 2


def along(v: Tensor, x: Tensor, axis: int, block_size: int) -> Tensor:
    """A scale or zero point: of the whole of x, of each slice of an axis, or of each block."""
    if v.numel() == 1 and v.dim() <= 1:
        return v.reshape(())
    if v.dim() == 1 and not block_size:
        return v.reshape(-1, *(1,) * (x.dim() - 1 - axis % x.dim()))
    if v.dim() != x.dim():
        refuse(f"a scale of shape {list(v.shape)} does not fit {list(x.shape)}")
    size = x.shape[axis]
    return v.repeat_interleave(block_size or -(-size // v.shape[axis]), axis).narrow(axis, 0, size)


def limits(element: int) -> tuple[int, int]:
    name = name_of(element)
    if name in NARROW:
        return NARROW[name]
    info = torch.iinfo(stored(element))
    return info.min, info.max


@op("QuantizeLinear")
def quantize(
    x: Tensor,
    scale: Tensor,
    zero: Tensor | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
    types: Any,
) -> Tensor:
    """x / scale, rounded to the nearest even integer, plus the zero point, within the type."""
    known = types[0][2] if zero is not None else UINT8
    element = output_dtype or types[1][0] or known
    if element is None:
        refuse("the type of the zero point cannot be inferred")
    kind = stored(precision) if precision else scale.dtype
    kind = torch.float32 if kind is torch.float8_e8m0fnu else kind
    wide = x.to(kind) / along(scale, x, axis, block_size).to(kind)
    if name_of(element).startswith("FLOAT"):
        return cast(wide.float(), to=element, saturate=saturate)
    low, high = limits(element)
    whole = torch.round(wide.float() if kind is not torch.float64 else wide)
    whole = whole.to(torch.float64)
    if zero is not None:
        whole = whole + along(zero.to(torch.float64), x, axis, block_size)
    return whole.clamp(low, high).to(torch.int64).to(stored(element))


@op("DequantizeLinear")
def dequantize(
    x: Tensor,
    scale: Tensor,
    zero: Tensor | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Tensor:
    """(x - zero point) * scale: integers subtract as i32."""
    kind = stored(output_dtype) if output_dtype else scale.dtype
    wide = x.to(torch.float32) if x.is_floating_point() else x.to(torch.int32)
    if zero is not None:
        wide = wide - along(zero.to(wide.dtype), x, axis, block_size)
    exact = torch.promote_types(kind, torch.float32)
    return (wide.to(exact) * along(scale, x, axis, block_size).to(exact)).to(kind)


@op("DynamicQuantizeLinear")
def dynamic_quantize(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """To u8 by the least and the largest element, with 0 among the values."""
    low, high = x.amin().clamp(max=0), x.amax().clamp(min=0)
    scale = (high - low) / 255
    safe = torch.where(scale == 0, 1, scale)
    zero = torch.round((-low / safe).clamp(0, 255))
    found = (torch.round(x / safe) + zero).clamp(0, 255)
    return found.to(torch.uint8), scale, zero.to(torch.uint8)


def centred(x: Tensor, zero: Tensor | None, column: bool) -> Tensor:
    """x - zero point as i32; one of several is for each column, or each row."""
    wide = x.to(torch.int32)
    if zero is None:
        return wide
    zero = zero.to(torch.int32)
    several = zero.dim() == 1 and zero.numel() > 1 and not column
    return wide - (zero.unsqueeze(-1) if several else zero)


@op("MatMulInteger")
def matmul_integer(
    a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None
) -> Tensor:
    return torch.matmul(centred(a, a_zero, False), centred(b, b_zero, True))


def requantized(whole: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    """Integers times a scale, rounded, plus the zero point, in its type."""
    info = torch.iinfo(zero.dtype)
    found = torch.round(whole.double() * scale.double()) + zero.double()
    return found.clamp(info.min, info.max).to(zero.dtype)


@op("QLinearMatMul")
def qlinear_matmul(
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
) -> Tensor:
    whole = torch.matmul(centred(a, a_zero, False), centred(b, b_zero, True))
    rows = a_scale.unsqueeze(-1) if a_scale.numel() > 1 and a_scale.dim() == 1 else a_scale
    return requantized(whole, rows.double() * b_scale.double() / y_scale.double(), y_zero)


def by_channel(v: Tensor, rank: int) -> Tensor:
    return v.reshape(-1, *(1,) * rank) if v.numel() > 1 else v.reshape(())


def integer_conv(x: Tensor, w: Tensor, x_zero: Any, w_zero: Any, words: Any) -> Tensor:
    """Sums of products of 8-bit integers are exact in f64."""
    x = x.double() if x_zero is None else x.double() - x_zero
    w = w.double() if w_zero is None else w.double() - by_channel(w_zero, w.dim() - 1)
    return conv(x, w, **words).to(torch.int32)


@op("ConvInteger")
def conv_integer(
    x: Tensor, w: Tensor, x_zero: Tensor | None = None, w_zero: Tensor | None = None, **words: Any
) -> Tensor:
    return integer_conv(x, w, x_zero, w_zero, words)


@op("QLinearConv")
def qlinear_conv(
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor,
    w: Tensor,
    w_scale: Tensor,
    w_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
    bias: Tensor | None = None,
    **words: Any,
) -> Tensor:
    rank = w.dim() - 2
    whole = integer_conv(x, w, x_zero, w_zero, words)
    whole = whole if bias is None else whole + by_channel(bias, rank)
    scale = x_scale.double() * by_channel(w_scale.double(), rank) / y_scale.double()
    return requantized(whole, scale, y_zero)
