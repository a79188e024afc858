"""Convolutions and pooling: paddings of ONNX, each side by itself, on calls of torch.

Conv(x, self.weight, self.bias, pads=(1, 1, 1, 1))
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from weft.onnx.table import op
from weft.onnx.types import refuse

Ints = tuple[int, ...]
CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
MAX_POOLS: Any = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVERAGE_POOLS: Any = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


def paddings(
    auto_pad: str,
    pads: Ints | None,
    sizes: Any,
    kernel: Any,
    strides: Ints,
    dilations: Ints,
    cuts: bool = False,
) -> list[tuple[Any, Any]]:
    """What stands before and after each axis; with `cuts` also fewer elements than none."""
    rank = len(kernel)
    if auto_pad == "VALID" or (auto_pad == "NOTSET" and pads is None):
        return [(0, 0)] * rank
    if auto_pad == "NOTSET":
        assert pads is not None
        return list(zip(pads[:rank], pads[rank:], strict=True))
    found = []
    for n, k, s, d in zip(sizes, kernel, strides, dilations, strict=True):
        total = (-(-n // s) - 1) * s + (k - 1) * d + 1 - n
        total = total if cuts else max(total, 0)
        before = halved(total + (auto_pad == "SAME_LOWER"))
        found.append((before, total - before))
    return found


def halved(n: Any) -> Any:
    return n // 2 if n >= 0 else -(-n // 2)


def flat(pads: list[tuple[Any, Any]]) -> list[Any]:
    """As F.pad takes them: the last axis first."""
    return [n for pair in reversed(pads) for n in pair]


def padded(x: Tensor, pads: list[tuple[Any, Any]], value: float = 0.0) -> tuple[Tensor, list[Any]]:
    """Paddings that are the same on both sides are left to the call, others made here."""
    if all(before == after for before, after in pads):
        return x, [before for before, _ in pads]
    return F.pad(x, flat(pads), value=value), [0] * len(pads)


@op("Conv")
def conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Tensor:
    rank = weight.dim() - 2
    strides, dilations = strides or (1,) * rank, dilations or (1,) * rank
    sides = paddings(auto_pad, pads, x.shape[2:], weight.shape[2:], strides, dilations)
    x, both = padded(x, sides)
    if rank not in CONVOLUTIONS:
        refuse(f"convolutions over {rank} axes: torch has those over 1, 2 and 3")
    return CONVOLUTIONS[rank](x, weight, bias, strides, both, dilations, group)


@op("ConvTranspose")
def conv_transpose(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    output_padding: Ints | None = None,
    output_shape: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Tensor:
    """The whole of what the windows reach, then cut by the paddings, or to the output's shape."""
    rank = weight.dim() - 2
    strides, dilations = strides or (1,) * rank, dilations or (1,) * rank
    extra = output_padding or (0,) * rank
    spans = [(k - 1) * d + 1 for k, d in zip(weight.shape[2:], dilations, strict=True)]
    sides = list(zip(pads[:rank], pads[rank:], strict=True)) if pads else [(0, 0)] * rank
    if output_shape is not None or auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        wanted = output_shape or [n * s for n, s in zip(x.shape[2:], strides, strict=True)]
        sides = []
        for n, s, e, span, w in zip(
            x.shape[2:], strides, extra, spans, wanted[-rank:], strict=True
        ):
            total = (n - 1) * s + e + span - w
            half = max(total, 0) // 2  # what an output is larger by stands behind it
            upper = auto_pad == "SAME_UPPER" or total < 0
            sides.append((half, total - half) if upper else (total - half, half))
    grown = flat([(-before, e - after) for (before, after), e in zip(sides, extra, strict=True)])
    late = bias is not None and any(n > 0 for n in grown)  # the bias is of these elements too
    found = TRANSPOSED[rank](x, weight, None if late else bias, strides, 0, 0, group, dilations)
    found = F.pad(found, grown) if any(grown) else found
    return found + bias.reshape(-1, *(1,) * rank) if bias is not None and late else found


# Pooling. With ceil_mode windows that begin beyond the input and its first padding are left out.


Sides = list[tuple[Any, Any]]


def pool_geometry(
    x: Tensor,
    kernel: Ints,
    strides: Ints | None,
    dilations: Ints | None,
    auto_pad: str,
    pads: Ints | None,
    ceil: int,
) -> tuple[Ints, Ints, Sides, Sides]:
    """Strides, dilations, paddings, and paddings with what the last windows reach beyond them."""
    ones = (1,) * len(kernel)
    strides, dilations = strides or ones, dilations or ones
    sides = paddings(auto_pad, pads, x.shape[2:], kernel, strides, dilations, cuts=True)
    grown: Sides = []
    for (before, after), n, k, s, d in zip(
        sides, x.shape[2:], kernel, strides, dilations, strict=True
    ):
        span, whole = (k - 1) * d + 1, n + before + after
        count = (-(-(whole - span) // s) if ceil else (whole - span) // s) + 1
        if ceil and (count - 1) * s >= n + before:
            count -= 1
        grown.append((before, after + max((count - 1) * s + span - whole, 0)))
    return strides, dilations, sides, grown


def symmetric(sides: Sides, kernel: Ints) -> bool:
    """Whether torch pools with such paddings."""
    return all(b == a and 0 <= 2 * b <= k for (b, a), k in zip(sides, kernel, strict=True))


def window_sums(x: Tensor, kernel: Ints, strides: Ints, dilations: Ints) -> Tensor:
    """The sum of each window of each channel."""
    window = torch.ones(1, 1, *kernel, dtype=x.dtype, device=x.device)
    images = x.reshape(x.shape[0] * x.shape[1], 1, *x.shape[2:])
    sums = CONVOLUTIONS[len(kernel)](images, window, None, strides, 0, dilations)
    return sums.reshape(*x.shape[:2], *sums.shape[2:])


@op("MaxPool")
def max_pool(
    x: Tensor,
    *,
    kernel_shape: Ints,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Ints | None = None,
    pads: Ints | None = None,
    storage_order: int = 0,
    strides: Ints | None = None,
    outputs: int = 1,
) -> tuple[Tensor, ...]:
    strides, dilations, sides, grown = pool_geometry(
        x, kernel_shape, strides, dilations, auto_pad, pads, ceil_mode
    )
    if outputs > 1:
        return max_pool_with_places(x, kernel_shape, strides, dilations, grown, storage_order)
    pool, dtype = MAX_POOLS[len(kernel_shape)], x.dtype
    lowest = -math.inf if dtype.is_floating_point else torch.iinfo(dtype).min
    if symmetric(sides, kernel_shape) and grown == sides and dtype.is_floating_point:
        return (pool(x, kernel_shape, strides, [before for before, _ in sides], dilations),)
    if not dtype.is_floating_point:  # 8 bits are exact as floats
        x, lowest = x.to(torch.int64).double(), float(lowest)
    wide = F.pad(x, flat(grown), value=lowest)
    return (pool(wide, kernel_shape, strides, 0, dilations).to(dtype),)


def max_pool_with_places(
    x: Tensor, kernel: Ints, strides: Ints, dilations: Ints, grown: Sides, storage_order: int
) -> tuple[Tensor, Tensor]:
    """Also the flat position of each maximum in the whole of x; by columns with storage_order."""
    wide = F.pad(x.double() if not x.is_floating_point() else x, flat(grown), value=-math.inf)
    found: Any = MAX_POOLS[len(kernel)](wide, kernel, strides, 0, dilations, return_indices=True)
    best, at = found
    places = torch.zeros_like(at)
    scale = 1
    axes = list(range(len(kernel)))
    divisor = [math.prod(wide.shape[3 + a :]) for a in axes]
    for axis in axes if storage_order else reversed(axes):
        coordinate = at // divisor[axis] % wide.shape[2 + axis] - grown[axis][0]
        places = places + coordinate * scale
        scale *= x.shape[2 + axis]
    image = torch.arange(x.shape[0] * x.shape[1], device=x.device) * scale
    image = image.reshape(x.shape[0], x.shape[1], *(1,) * len(kernel))
    return best.to(x.dtype), places + image


@op("AveragePool")
def average_pool(
    x: Tensor,
    *,
    kernel_shape: Ints,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Tensor:
    """Sums of windows over how many elements of x, or of x and its padding, each holds."""
    strides, dilations, sides, grown = pool_geometry(
        x, kernel_shape, strides, dilations, auto_pad, pads, ceil_mode
    )
    alone = all(d == 1 for d in dilations) and grown == sides
    if alone and symmetric(sides, kernel_shape):
        both = [before for before, _ in sides]
        return AVERAGE_POOLS[len(kernel_shape)](
            x, kernel_shape, strides, both, count_include_pad=bool(count_include_pad)
        )
    inside, wide = torch.ones_like(x[:1, :1]), flat(grown)
    beyond = wide
    if count_include_pad:
        inside = F.pad(inside, flat(sides), value=1)
        beyond = flat([(0, g - s) for (_, g), (_, s) in zip(grown, sides, strict=True)])
    sums = window_sums(F.pad(x, wide), kernel_shape, strides, dilations)
    return sums / window_sums(F.pad(inside, beyond), kernel_shape, strides, dilations)


@op("LpPool")
def lp_pool(
    x: Tensor,
    *,
    kernel_shape: Ints,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Ints | None = None,
    p: int = 2,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Tensor:
    strides, dilations, _, grown = pool_geometry(
        x, kernel_shape, strides, dilations, auto_pad, pads, ceil_mode
    )
    powers = F.pad(x.abs().pow(p), flat(grown))
    return window_sums(powers, kernel_shape, strides, dilations).pow(1 / p)


def spatial(x: Tensor) -> Ints:
    return tuple(range(2, x.dim()))


op("GlobalAveragePool")(lambda x: torch.mean(x, spatial(x), keepdim=True))
op("GlobalMaxPool")(lambda x: torch.amax(x, spatial(x), keepdim=True))


@op("GlobalLpPool")
def global_lp_pool(x: Tensor, *, p: int = 2) -> Tensor:
    return x.abs().pow(p).sum(spatial(x), keepdim=True).pow(1 / p)


@op("MaxUnpool", wants=(2,))
def max_unpool(
    x: Tensor,
    places: Tensor,
    shape: Any = None,
    *,
    kernel_shape: Ints,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Tensor:
    """Each element at its flat position in the whole of the smallest input that gives x."""
    rank = len(kernel_shape)
    strides, pads = strides or (1,) * rank, pads or (0,) * (2 * rank)
    sizes = [
        (n - 1) * s - pads[i] - pads[rank + i] + k
        for i, (n, s, k) in enumerate(zip(x.shape[2:], strides, kernel_shape, strict=True))
    ]
    inferred = [*x.shape[:2], *sizes]
    at = places.reshape(-1)
    if shape is not None and list(shape) != inferred:
        at = moved(at, inferred, list(shape))
    target = inferred if shape is None else list(shape)
    empty = torch.zeros(math.prod(target), dtype=x.dtype, device=x.device)
    return empty.scatter(0, at, x.reshape(-1)).reshape(target)


def moved(at: Tensor, old: list[Any], new: list[Any]) -> Tensor:
    """Flat positions in one shape as those in another that contains it."""
    found, scale = torch.zeros_like(at), 1
    for size, other in zip(reversed(old), reversed(new), strict=True):
        found, at, scale = found + at % size * scale, at // size, scale * other
    return found


@op("CausalConvWithState")
def causal_conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    past: Tensor | None = None,
    *,
    activation: str = "none",
) -> tuple[Tensor, Tensor]:
    """A convolution of each channel with what came before it; also what the next one needs."""
    width = weight.shape[2] - 1
    before = x.new_zeros(*x.shape[:2], width) if past is None else past
    padded_x = torch.cat([before, x], 2)
    found = F.conv1d(padded_x, weight, bias, groups=x.shape[1])
    found = F.silu(found) if activation in ("silu", "swish") else found
    return found, padded_x[:, :, padded_x.shape[2] - width :]


@op("Col2Im", wants=(1, 2))
def col2im(
    x: Tensor,
    image: Ints,
    block: Ints,
    *,
    dilations: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Tensor:
    """Sums columns of blocks at the places that these come from, over any number of axes."""
    rank = len(image)
    dilations, strides, pads = (
        dilations or (1,) * rank,
        strides or (1,) * rank,
        pads or (0,) * 2 * rank,
    )
    wide = [n + pads[i] + pads[rank + i] for i, n in enumerate(image)]
    place = torch.zeros(1, 1, dtype=torch.int64, device=x.device)  # [block, column]
    for axis in range(rank):
        span = (block[axis] - 1) * dilations[axis] + 1
        count = (wide[axis] - span) // strides[axis] + 1
        inner = torch.arange(block[axis], device=x.device) * dilations[axis]
        outer = torch.arange(count, device=x.device) * strides[axis]
        place = place[:, None, :, None] * wide[axis] + (inner[:, None] + outer)[None, :, None, :]
        place = place.reshape(place.shape[0] * place.shape[1], -1)
    channels = x.shape[1] // math.prod(block)
    columns = x.reshape(x.shape[0], channels, -1)
    empty = x.new_zeros(x.shape[0], channels, math.prod(wide))
    found = empty.scatter_add(2, place.reshape(1, 1, -1).expand(columns.shape), columns)
    found = found.reshape(x.shape[0], channels, *wide)
    for axis in range(rank):
        found = found.narrow(2 + axis, pads[axis], image[axis])
    return found
