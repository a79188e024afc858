"""Calls on quantised values as other calls of torch: what its own Python asks numbers of.

CALLS["quantized_decomposed.quantize_per_tensor.tensor"](x, scale, zero_point, 0, 255, torch.uint8)
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from weft.frontend.observers import OBSERVERS


def _one(value: Tensor, name: str) -> Tensor:
    if value.numel() != 1:
        raise ValueError(f"a {name} of {value.numel()} elements, where one is for the whole tensor")
    return value.reshape(())


def quantize(
    x: Tensor, scale: Tensor, zero_point: Tensor, low: Any, high: Any, dtype: torch.dtype
) -> Tensor:
    """Codes of `dtype` of a tensor's values; the inverse of the scale is found in f64, as it is of
    Python's number."""
    inverse = (1.0 / _one(scale, "scale").double()).to(torch.float32)
    codes = torch.round(x.to(torch.float32) * inverse) + _one(zero_point, "zero point")
    return torch.minimum(torch.maximum(codes, _end(low, codes)), _end(high, codes)).to(dtype)


def _end(value: Any, like: Tensor) -> Tensor:
    return torch.as_tensor(value).to(like.dtype).reshape(())


def dequantize(
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    low: Any,
    high: Any,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """The values that codes stand for, as f32 or `out_dtype`."""
    out_dtype = out_dtype or torch.float32
    back = (x.to(out_dtype) - _one(zero_point, "zero point")) * _one(scale, "scale")
    return back.to(out_dtype)


def scale_and_zero_point(
    x: Tensor, low: int, high: int, eps: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Those by which codes from `low` to `high` reach from the least value, or 0, to the largest.

    The scale is at least eps: f64[1]. The zero point is an i64[1].
    """
    least, most = x.amin().clamp(max=0), x.amax().clamp(min=0)
    scale = _at_least((most - least) / float(high - low), eps)
    zero_point = (low - torch.round(least / scale).to(torch.int)).clamp(low, high)
    return scale.double(), zero_point.to(torch.int64)


def symmetric_scale(
    x: Tensor, low: int, high: int, eps: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """The scale of the largest size: f64[1]. The zero point is 0, or 128 of u8: i64[1]."""
    most = torch.maximum(x.amax().clamp(min=0), -x.amin().clamp(max=0))
    scale = _at_least(most / (float(high - low) / 2), eps)
    zero = 128 if dtype == torch.uint8 else 0
    return scale.double(), torch.full((1,), zero, dtype=torch.int64, device=x.device)


def _at_least(scale: Tensor, eps: float) -> Tensor:
    return torch.maximum(scale, torch.full((1,), eps, dtype=torch.float32, device=scale.device))


def convert(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x.to(dtype, copy=True)


CALLS: dict[str, Callable[..., Any]] = {
    f"quantized_decomposed.{function.__name__}_per_tensor.{form}": function
    for function in (quantize, dequantize)
    for form in ("tensor", "tensor2")
} | {
    "quantized_decomposed.choose_qparams.tensor": scale_and_zero_point,
    "quantized_decomposed.choose_qparams_symmetric.tensor": symmetric_scale,
    "quantized_decomposed.convert_element_type.no_fuse": convert,
    **OBSERVERS,
}
