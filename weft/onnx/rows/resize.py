"""Resize and Upsample: one axis at a time, a weighted sum of a few neighbours.

Resize(x, None, (1.0, 1.0, 2.0, 2.0), mode="linear")
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from weft.onnx.table import op
from weft.onnx.types import refuse

NEAREST: dict[str, Callable[[Tensor], Tensor]] = {
    "round_prefer_floor": lambda at: torch.ceil(at - 0.5),
    "round_prefer_ceil": lambda at: torch.floor(at + 0.5),
    "floor": torch.floor,
    "ceil": torch.ceil,
}


@dataclass(frozen=True)
class Axis:
    """One axis to resize: its sizes, the scale between them, the part of the input that counts."""

    before: Any
    after: Any
    scale: Any
    start: float = 0.0
    end: float = 1.0


def source(axis: Axis, mode: str, device: Any) -> Tensor:
    """Where in the input each element of the output lies."""
    at = torch.arange(axis.after, dtype=torch.float64, device=device)
    whole = axis.scale * axis.before  # the size of the output before it was made an integer
    if mode == "align_corners":
        return at * 0 if whole == 1 else at * (axis.before - 1) / (whole - 1)
    if mode == "asymmetric":
        return at / axis.scale
    if mode == "tf_crop_and_resize":
        last = axis.before - 1
        if whole == 1:
            return at * 0 + (axis.end - axis.start) * last / 2 + axis.start * last
        return at * ((axis.end - axis.start) * last / (whole - 1)) + axis.start * last
    if mode == "tf_half_pixel_for_nn":  # of opset 11
        return (at + 0.5) / axis.scale
    if mode == "pytorch_half_pixel" and axis.after == 1:
        return at * 0 - 0.5
    found = (at + 0.5) / axis.scale - 0.5
    if mode == "half_pixel_symmetric":
        return found + axis.before / 2 * (1 - axis.after / whole)
    if mode not in ("half_pixel", "pytorch_half_pixel"):
        refuse(f"unknown coordinate_transformation_mode {mode!r}")
    return found


def cubic(distance: Tensor, a: float) -> Tensor:
    """Keys' kernel."""
    d = distance.abs()
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((d - 5) * d + 8) * d * a - 4 * a
    return torch.where(d <= 1, near, torch.where(d < 2, far, 0))


def triangle(distance: Tensor, a: float) -> Tensor:
    return (1 - distance.abs()).clamp(min=0)


def weights(
    at: Tensor, axis: Axis, kernel: Callable[..., Tensor], reach: int, a: float, antialias: bool
) -> tuple[Tensor, Tensor]:
    """The neighbours of each position [after, n], and their weights."""
    squeeze = min(axis.scale, 1.0) if antialias else 1.0
    first = math.floor(-reach / squeeze) + 1
    offsets = (
        torch.arange(first, 2 - first, device=at.device)
        if antialias
        else torch.arange(1 - reach, reach + 1, device=at.device)
    )
    near = torch.floor(at)
    near = torch.where(near == at, near - 1, near)  # an element itself is the right one of a pair
    places = near[:, None] + offsets
    found = kernel((places - at[:, None]) * squeeze, a)
    return places.to(torch.int64), found / found.sum(1, keepdim=True)


def resize_axis(x: Tensor, dim: int, axis: Axis, words: dict[str, Any]) -> Tensor:
    mode, coordinates = words["mode"], words["coordinate_transformation_mode"]
    at = source(axis, coordinates, x.device)
    last = axis.before - 1
    shape = (-1, *(1,) * (x.dim() - 1 - dim))
    if mode == "nearest":
        near = NEAREST[words["nearest_mode"]](at).to(torch.int64).clamp(0, last)
        found = x.index_select(dim, near)
    else:
        kernel, reach = (triangle, 1) if mode == "linear" else (cubic, 2)
        places, by = weights(
            at, axis, kernel, reach, words["cubic_coeff_a"], bool(words["antialias"])
        )
        if words["exclude_outside"]:
            by = torch.where((places < 0) | (places > last), 0, by)
            by = by / by.sum(1, keepdim=True)
        parts = [
            x.index_select(dim, places[:, k].clamp(0, last)) * by[:, k].reshape(shape).to(x.dtype)
            for k in range(by.shape[1])
        ]
        found = sum(parts[1:], parts[0])
    if coordinates == "tf_crop_and_resize":
        outside = ((at < 0) | (at > last)).reshape(shape)
        found = torch.where(outside, words["extrapolation_value"], found)
    return found


def resized(x: Tensor, axes: list[tuple[int, Axis]], words: dict[str, Any]) -> Tensor:
    dtype = x.dtype
    floats = words["mode"] == "nearest" or x.is_floating_point()
    found = x if floats else x.double()
    for dim, axis in axes:
        same = axis.scale == 1 and axis.after == axis.before and (axis.start, axis.end) == (0, 1)
        found = found if same else resize_axis(found, dim, axis, words)
    if not floats:
        info = torch.iinfo(dtype)
        found = found.round().clamp(info.min, info.max)
    return found.to(dtype)


def extents(sizes: list[Any], scales: Any, wanted: Any, policy: str) -> list[tuple[Any, Any]]:
    """The new size of each axis, and its scale."""
    if wanted is None or not len(wanted):
        return [(math.floor(n * s), s) for n, s in zip(sizes, scales, strict=True)]
    each = [w / n for w, n in zip(wanted, sizes, strict=True)]
    if policy == "stretch":
        return list(zip(wanted, each, strict=True))
    scale = min(each) if policy == "not_larger" else max(each)
    return [(int(scale * n + 0.5), scale) for n in sizes]


@op("Resize", since=11, wants=(1, 2, 3))
def resize(
    x: Tensor,
    roi: Any = None,
    scales: Any = None,
    sizes: Any = None,
    *,
    antialias: int = 0,
    axes: tuple[int, ...] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Tensor:
    words = {
        "antialias": antialias, "cubic_coeff_a": cubic_coeff_a, "exclude_outside": exclude_outside,
        "coordinate_transformation_mode": coordinate_transformation_mode, "mode": mode,
        "nearest_mode": nearest_mode, "extrapolation_value": extrapolation_value,
    }  # fmt: skip
    dims = [a % x.dim() for a in axes] if axes is not None else list(range(x.dim()))
    news = extents([x.shape[d] for d in dims], scales, sizes, keep_aspect_ratio_policy)
    count = len(dims)
    inside = [(roi[i], roi[count + i]) if roi else (0.0, 1.0) for i in range(count)]
    each = [
        (d, Axis(x.shape[d], after, scale, *part))
        for d, (after, scale), part in zip(dims, news, inside, strict=True)
    ]
    return resized(x, each, words)


@op("Resize", wants=(1,))
def resize_10(x: Tensor, scales: Any, *, mode: str = "nearest") -> Tensor:
    return upsample(x, scales, mode=mode)


@op("Upsample", wants=(1,))
def upsample(
    x: Tensor,
    scales: Any = None,
    *,
    mode: str = "nearest",
    height_scale: float = 1.0,
    width_scale: float = 1.0,
) -> Tensor:
    scales = scales if scales is not None else (1.0, 1.0, height_scale, width_scale)
    mode = "linear" if mode == "bilinear" else mode
    return resize(
        x,
        None,
        scales,
        mode=mode,
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
