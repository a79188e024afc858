"""Samples of images between their elements: grids, regions, deformed windows.

GridSample(x, grid, mode="linear")
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from weft.onnx.rows.layers import Ints
from weft.onnx.table import op
from weft.onnx.types import refuse

MODES = {
    "linear": "bilinear", "bilinear": "bilinear", "nearest": "nearest",
    "cubic": "bicubic", "bicubic": "bicubic",
}  # fmt: skip


@op("GridSample")
def grid_sample(
    x: Tensor,
    grid: Tensor,
    *,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
) -> Tensor:
    if mode not in MODES or x.dim() not in (4, 5) or (x.dim() == 5 and MODES[mode] == "bicubic"):
        refuse(f"torch samples no grid of mode {mode} over {x.dim() - 2} axes")
    return F.grid_sample(x, grid.to(x.dtype), MODES[mode], padding_mode, bool(align_corners))


@op("AffineGrid", wants=(1,))
def affine_grid(theta: Tensor, size: Any, *, align_corners: int = 0) -> Tensor:
    return F.affine_grid(theta, list(size), bool(align_corners))


def corners(at: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The elements around each position, and their weights; 0 beyond the border's neighbours."""
    inside = (at >= -1) & (at <= size)
    at = at.clamp(min=0)
    low = at.floor().clamp(max=size - 1)
    part = torch.where(low >= size - 1, 0, at - low)
    high = (low + 1).clamp(max=size - 1)
    return low.long(), high.long(), (1 - part) * inside, part * inside


@op("RoiAlign")
def roi_align_10(
    x: Tensor,
    rois: Tensor,
    batches: Tensor,
    *,
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
    coordinate_transformation_mode: str = "output_half_pixel",
) -> Tensor:
    """Means, or maxima, of samples in each bin of each region [x1, y1, x2, y2]."""
    half = coordinate_transformation_mode == "half_pixel"
    found = []
    for n in range(rois.shape[0]):
        ends = rois[n] * spatial_scale - (0.5 if half else 0.0)
        size = ends[2:] - ends[:2] if half else (ends[2:] - ends[:2]).clamp(min=1)
        image = x.index_select(0, batches[n].reshape(1).long())[0]
        sides = []
        for axis, bins in ((1, output_height), (0, output_width)):
            each = size[axis] / bins
            count = sampling_ratio if sampling_ratio > 0 else max(math.ceil(float(each)), 0)
            places = torch.arange(bins * count, device=x.device, dtype=x.dtype)
            at = ends[axis] + (places + 0.5) * each / max(count, 1)
            sides.append((*corners(at, image.shape[2 - axis]), count))
        found.append(pooled(image, sides, mode, (output_height, output_width)))
    return torch.stack(found) if found else x.new_zeros(0, x.shape[1], output_height, output_width)


def pooled(image: Tensor, sides: list[Any], mode: str, bins: tuple[int, int]) -> Tensor:
    (y0, y1, wy0, wy1, rows), (x0, x1, wx0, wx1, columns) = sides
    if rows == 0 or columns == 0:
        return image.new_zeros(image.shape[0], *bins)
    parts = [
        image.index_select(1, y).index_select(2, x) * wy[:, None] * wx
        for y, wy in ((y0, wy0), (y1, wy1))
        for x, wx in ((x0, wx0), (x1, wx1))
    ]
    if mode == "max":
        every = torch.stack(parts).amax(0)
        return every.reshape(image.shape[0], bins[0], rows, bins[1], columns).amax((2, 4))
    every = parts[0] + parts[1] + parts[2] + parts[3]
    return every.reshape(image.shape[0], bins[0], rows, bins[1], columns).mean((2, 4))


@op("RoiAlign", since=16)
def roi_align(
    x: Tensor,
    rois: Tensor,
    batches: Tensor,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Tensor:
    return roi_align_10(
        x, rois, batches, mode=mode, output_height=output_height, output_width=output_width,
        sampling_ratio=sampling_ratio, spatial_scale=spatial_scale,
        coordinate_transformation_mode=coordinate_transformation_mode,
    )  # fmt: skip


@op("MaxRoiPool")
def max_roi_pool(
    x: Tensor, rois: Tensor, *, pooled_shape: Ints, spatial_scale: float = 1.0
) -> Tensor:
    """Maxima of bins of each region [batch, x1, y1, x2, y2], in whole elements."""
    found = []
    for batch, *ends in rois.tolist():
        left, top, right, bottom = (math.floor(v * spatial_scale + 0.5) for v in ends)
        region = x[int(batch)]
        height, width = max(bottom - top + 1, 1), max(right - left + 1, 1)
        rows = bin_edges(top, height, pooled_shape[0], x.shape[2])
        columns = bin_edges(left, width, pooled_shape[1], x.shape[3])
        cells = [
            region[:, a:b, c:d].amax((1, 2)) if b > a and d > c else region.new_zeros(x.shape[1])
            for a, b in rows
            for c, d in columns
        ]
        found.append(torch.stack(cells, 1).reshape(x.shape[1], *pooled_shape))
    return torch.stack(found)


def bin_edges(start: int, length: int, bins: int, size: int) -> list[tuple[int, int]]:
    edges = [(i * length // bins, -(-(i + 1) * length // bins)) for i in range(bins)]
    return [tuple(min(max(start + e, 0), size) for e in pair) for pair in edges]  # pyright: ignore


def bilinear(images: Tensor, y: Tensor, x: Tensor, height: int, width: int) -> Tensor:
    """Flat images [n, c, height * width] at positions [n, k], with zeros around: [n, c, k]."""
    top, left = y.floor(), x.floor()
    found = images.new_zeros(*images.shape[:2], y.shape[1])
    for row, by_row in ((top, top + 1 - y), (top + 1, y - top)):
        for column, by_column in ((left, left + 1 - x), (left + 1, x - left)):
            inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            at = (row * width + column).masked_fill(~inside, 0).long()
            values = torch.gather(images, 2, at[:, None].expand(found.shape))
            found = found + values * (by_row * by_column * inside)[:, None]
    return found


@op("DeformConv")
def deform_conv(
    x: Tensor,
    weight: Tensor,
    offset: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    dilations: Ints = (1, 1),
    group: int = 1,
    kernel_shape: Ints | None = None,
    offset_group: int = 1,
    pads: Ints = (0, 0, 0, 0),
    strides: Ints = (1, 1),
) -> Tensor:
    """A convolution whose window's elements each lie at an offset of their own, over 2 axes."""
    if x.dim() != 4:
        refuse(f"DeformConv over {x.dim() - 2} axes: there is a row for 2")
    n, c, h, w = x.shape
    kh, kw = weight.shape[2:]
    oh, ow = offset.shape[2:]
    moves = offset.reshape(n * offset_group, kh * kw, 2, oh, ow)
    inner = [torch.arange(k, device=x.device) * d for k, d in zip((kh, kw), dilations, strict=True)]
    outer = [
        torch.arange(o, device=x.device) * s - p
        for o, s, p in zip((oh, ow), strides, pads[:2], strict=True)
    ]
    base_y = inner[0].repeat_interleave(kw)[:, None, None] + outer[0][:, None]
    base_x = inner[1].repeat(kh)[:, None, None] + outer[1]
    at_y, at_x = base_y + moves[:, :, 0], base_x + moves[:, :, 1]
    images = x.reshape(n * offset_group, c // offset_group, h * w)
    columns = bilinear(images, at_y.flatten(1), at_x.flatten(1), h, w)
    columns = columns.reshape(n, offset_group, c // offset_group, kh * kw, oh * ow)
    if mask is not None:
        columns = columns * mask.reshape(n, offset_group, 1, kh * kw, oh * ow)
    columns = columns.reshape(n, group, c // group * kh * kw, oh * ow)
    found = weight.reshape(group, weight.shape[0] // group, -1) @ columns
    found = found.reshape(n, weight.shape[0], oh, ow)
    return found if bias is None else found + bias[:, None, None]
