"""Casts, with what ONNX says of narrow floats: saturation, rounding, no infinities.

Cast(x, to=TensorProto.FLOAT8E4M3FN)      # 500.0 becomes 448
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from weft.onnx.rows.pointwise import is_text
from weft.onnx.table import op
from weft.onnx.types import NARROW, name_of, stored


def positives(exponents: int, mantissas: int) -> tuple[float, ...]:
    """The values >= 0 of a float without infinities and NaNs, of so many bits, by their bits."""
    bias, ones = 2 ** (exponents - 1) - 1, 2**mantissas
    pairs = [divmod(code, ones) for code in range(2**exponents * ones)]
    return tuple((m / ones + (e > 0)) * 2.0 ** (max(e, 1) - bias) for e, m in pairs)


SHORT = (torch.uint8, torch.int8, torch.int16, torch.uint16, torch.uint32)
MINIFLOATS = {
    "FLOAT4E2M1": positives(2, 1), "FLOAT6E2M3": positives(2, 3), "FLOAT6E3M2": positives(3, 2),
}  # fmt: skip


def number_cast(x: Any, *, to: int, saturate: int = 1, round_mode: str = "up") -> Any:
    """To INT64 and BOOL; other types are tensors."""
    kind = {"INT64": int, "BOOL": bool}.get(name_of(to))
    if kind is None:
        return NotImplemented
    values = [number_as(v, kind) for v in (x if isinstance(x, tuple) else (x,))]
    return tuple(values) if isinstance(x, tuple) else values[0]


def number_as(v: Any, kind: type) -> Any:
    return v if kind is int and not isinstance(v, bool) else kind(v)


@op("Cast", numbers=number_cast)
def cast(x: Any, *, to: int, saturate: int = 1, round_mode: str = "up") -> Any:
    name = name_of(to)
    if is_text(x):
        return x if name == "STRING" else from_text(x, to)
    if name == "STRING":
        return to_text(x)
    if name in NARROW:
        return to_narrow(x, name)
    if name in MINIFLOATS:
        return to_minifloat(x.float(), MINIFLOATS[name])
    if name == "FLOAT8E8M0":
        return to_e8m0(x.float(), saturate, round_mode)
    if name.startswith("FLOAT8"):
        return to_fp8(x, stored(to), saturate)
    if x.is_floating_point() and stored(to) in SHORT:
        x = x.to(torch.int64)  # what is out of range wraps, on any machine
    return x.to(stored(to))


@op("CastLike")
def cast_like(x: Any, like: Any, *, types: Any, saturate: int = 1, round_mode: str = "up") -> Any:
    return cast(x, to=types[0][1] or types[1][0], saturate=saturate, round_mode=round_mode)


def to_text(x: Tensor) -> Any:
    """Floats as the shortest text that reads back as they are."""
    array = x.float().numpy() if x.dtype is torch.bfloat16 else x.numpy()
    texts = [str(v) for v in array.reshape(-1)]
    return np.array(texts, object).reshape(array.shape)


def from_text(x: Any, to: int) -> Tensor:
    kind = stored(to)
    if kind.is_floating_point:
        values = torch.tensor([float(v) for v in x.reshape(-1)], dtype=torch.float64)
    else:
        values = torch.tensor([int(v) for v in x.reshape(-1)], dtype=torch.int64)
    return values.reshape(x.shape).to(kind)


def to_narrow(x: Tensor, name: str) -> Tensor:
    """The lowest bits of an integer, sign extended where the type has one; truncated floats."""
    low, high = NARROW[name]
    span = high - low + 1
    whole = x.to(torch.int32) if x.dtype is not torch.bool else x.int()
    return (torch.remainder(whole - low, span) + low).to(torch.int8 if low else torch.uint8)


def to_minifloat(x: Tensor, values: tuple[float, ...]) -> Tensor:
    """The nearest value, of two the one whose last bit is 0; NaN becomes -0, as in ml_dtypes."""
    x = torch.where(x.isnan(), -0.0, x)
    size = x.abs().clamp(max=values[-1])
    table = torch.tensor(values, device=x.device)
    middles = (table[1:] + table[:-1]) / 2
    below, above = torch.bucketize(size, middles), torch.bucketize(size, middles, right=True)
    index = torch.where(below % 2 == 0, below, above)
    return torch.copysign(table[index], x)


def to_fp8(x: Tensor, dtype: torch.dtype, saturate: int) -> Tensor:
    """The nearest value; beyond the largest that one with `saturate`, else infinity or NaN."""
    wide = x.float()
    largest = torch.finfo(dtype).max
    if saturate:
        wide = torch.where(wide.isnan(), wide, wide.clamp(-largest, largest))
    elif dtype is torch.float8_e4m3fn:  # torch saturates; half an ulp above the largest still fits
        wide = torch.where(wide.abs() > 464, math.nan, wide)
    return wide.to(dtype)


def to_e8m0(x: Tensor, saturate: int, round_mode: str) -> Tensor:
    """A power of two: the exponent of the absolute value, rounded up, down or to the nearest."""
    bits = x.abs().view(torch.int32)
    exponent, mantissa = bits >> 23, bits & 0x7FFFFF
    if round_mode == "up":
        more = (mantissa > 0) & ~((exponent == 0) & (mantissa <= 0x400000))
    elif round_mode == "nearest":
        more = (mantissa > 0x400000) | ((mantissa == 0x400000) & (exponent > 0))
    else:
        more = torch.zeros_like(bits, dtype=torch.bool)
    found = exponent + more
    found = found.clamp(max=254 if saturate else 255)
    found = torch.where(x.isfinite(), found, 255)  # all that is not finite is NaN
    return found.to(torch.uint8).view(torch.float8_e8m0fnu)


@op("BitCast")
def bit_cast(x: Tensor, *, to: int) -> Tensor:
    return x.view(stored(to)) if x.dim() else x.reshape(1).view(stored(to)).reshape(())
