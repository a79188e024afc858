"""Fake quantisation by the moving extremes of what it sees, as calls of torch's own.

OBSERVERS["aten.fused_moving_avg_obs_fake_quant.default"](x, on, on, least, most, scale, zero, ...)
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

aten = torch.ops.aten


SMALL = np.float32(6.1e-5)  # the least scale


def chosen(
    least: Tensor, most: Tensor, low: int, high: int, symmetric: bool
) -> tuple[Tensor, Tensor]:
    """The scale, f32, and zero point, i32, of codes from `low` to `high` for values between two.

    Those of FBGEMM's ChooseQuantizationParams, which eager calls on CPUs: the scale is an f32, the
    zero point that of the end whose error is less, and a symmetric range reaches as far both ways.
    """
    levels = high - low
    if symmetric:
        ends = float(-(levels // 2 + 1)), float(levels // 2)
        size = torch.maximum((least / ends[0]).abs(), (most / ends[1]).abs()).double()
        across = (least < 0) & (most > 0)
        least = torch.where(across, (size * ends[0]).float(), least)
        most = torch.where(across, (size * ends[1]).float(), most)
    least, most = least.clamp(max=0), most.clamp(min=0)
    scale = ((most.double() - least.double()) / levels).float()
    scale = torch.where((scale == 0) | (1 / scale).isinf(), 0.1, scale)
    least, most, scale = _not_small(least, most, scale, float(SMALL * np.float32(levels)))
    below, above = least.double() / scale.double(), most.double() / scale.double()
    nearer = abs(low) + below.abs() < abs(high) + above.abs()
    start = torch.where(nearer, low - below, high - above)
    if symmetric:
        start = torch.where((least < 0) & (most > 0), (low + high) / 2, start)
    return scale, start.clamp(low, high).round().to(torch.int32)


def _not_small(
    least: Tensor, most: Tensor, scale: Tensor, reach: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The range of the least scale that there may be, where the scale is less."""
    small = scale < float(SMALL)
    more = float(SMALL) / scale
    low = torch.where(least == 0, least, torch.where(most == 0, -reach, least * more))
    high = torch.where(least == 0, reach, torch.where(most == 0, most, most * more))
    ends = torch.where(small, low, least), torch.where(small, high, most)
    return *ends, torch.where(small, float(SMALL), scale)


def observed(
    x: Tensor,
    observer_on: Tensor,
    fake_quant_on: Tensor,
    running_min: Tensor,
    running_max: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    averaging_const: float,
    quant_min: int,
    quant_max: int,
    ch_axis: int,
    per_row_fake_quant: bool = False,
    symmetric_quant: bool = False,
) -> tuple[Tensor, ...]:
    """The rounded values, which of them are in range, and the new state of the observer."""
    state = (running_min, running_max, scale, zero_point)
    _require(x, state, ch_axis, per_row_fake_quant)
    seen = x.flatten(1) if per_row_fake_quant else x
    ends = (1,) if per_row_fake_quant else tuple(range(x.dim()))
    watches, rounds = (t.reshape(()) != 0 for t in (observer_on, fake_quant_on))
    weight = torch.tensor(averaging_const, dtype=torch.float32).item()
    least, most = (
        torch.where(watches, _moved(before, now.reshape(before.shape), weight), before)
        for before, now in ((running_min, seen.amin(ends)), (running_max, seen.amax(ends)))
    )
    new = chosen(least, most, quant_min, quant_max, symmetric_quant)
    scale, zero_point = (
        torch.where(rounds, value.reshape(before.shape).to(before.dtype), before)
        for value, before in zip(new, state[2:], strict=True)
    )
    if per_row_fake_quant:
        rounded = aten.fake_quantize_per_channel_affine_cachemask
        out, mask = rounded(x, scale, zero_point, ch_axis, quant_min, quant_max)
        out, mask = torch.where(rounds, out, x), mask | ~rounds
    else:
        rounded = aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams
        enabled = rounds.reshape(1).to(torch.int64)
        out, mask = rounded(x, scale, zero_point, enabled, quant_min, quant_max)
    return out, mask, least, most, scale, zero_point


def _require(x: Tensor, state: tuple[Tensor, ...], axis: int, by_rows: bool) -> None:
    if x.dtype != torch.float32:
        raise ValueError(f"an observer of {x.dtype}, where eager's takes torch.float32")
    if by_rows and axis != 0:
        raise ValueError(f"an observer of channels along axis {axis}, where eager's takes axis 0")
    wanted = x.shape[0] if by_rows else 1
    for t in state:
        if t.numel() != wanted:
            raise ValueError(f"an observer of {wanted} channels with a state of {t.numel()}")


def _moved(before: Tensor, now: Tensor, weight: float) -> Tensor:
    step = (weight * (now - before).double()).float()  # rounded, as no fma leaves a product
    return torch.where(before.isinf(), now, before + step)


def helper(x: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    """As `observed`, which writes the new state where the old one was."""
    out, mask, *new = observed(x, *rest)
    for before, now in zip(rest[2:6], new, strict=True):
        before.copy_(now)
    return out, mask


OBSERVERS: dict[str, Callable[..., Any]] = {
    "aten._fused_moving_avg_obs_fq_helper.default": helper,
    "aten._fused_moving_avg_obs_fq_helper_functional.default": observed,
    "aten.fused_moving_avg_obs_fake_quant.default": lambda *args: helper(*args)[0],
}
