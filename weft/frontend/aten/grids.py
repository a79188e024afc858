"""Rows of grid sampling, and its gradients: an image read between its places, where a grid says.

out[n, c, p] = sum over k of weight[n, k, p] * x[n, c, place[n, k, p]]       # two taps of each axis

The last axis of a grid counts the image's axes from the last one. Places and weights are as ATen
has them: of GridSamplerKernel.cpp in two dimensions, of GridSampler.h in three.
"""

import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from weft.core.types import DType, i32, i64
from weft.frontend.aten.indexing import read
from weft.frontend.aten.resampling import far, near
from weft.frontend.aten.table import Row, require, rows
from weft.scalar.monoid import SUM
from weft.scalar.ops import (
    absolute,
    eq,
    floor,
    fma,
    fmod,
    maximum,
    minimum,
    round_even,
    where,
)
from weft.scalar.sizes import is_short
from weft.tensor import build
from weft.tensor.build import Tensor, broadcast_in, cast, full, index_of, literal, reshape, total
from weft.tensor.ops import position

LINEAR, NEAREST, CUBIC = 0, 1, 2  # modes, by how many taps of each axis:
TAPS = (2, 1, 4)
ZEROS, BORDER, REFLECTION = 0, 1, 2  # paddings
A = -0.75  # of Keys' cubic


@dataclass(frozen=True)
class Axis:
    """One axis of an image of `size` places; `flat`: of two."""

    size: int
    mode: int
    padding: int
    align: bool
    flat: bool

    def scaled(self, x: Tensor) -> Tensor:
        """-1 and 1 are the first and the last place, or else the outer ends of these."""
        span = self.span(x)
        if self.align:
            return (x + 1.0) * (span * 0.5) if self.flat else (x + 1.0) * 0.5 * span
        if self.flat:
            return fma(x + 1.0, span * 0.5, literal(-0.5, x.dtype))
        return fma(x + 1.0, span, literal(-1.0, x.dtype)) * 0.5

    def span(self, x: Tensor) -> Tensor:
        return literal(self.size - 1 if self.align else self.size, x.dtype)

    def last(self, at: Tensor) -> Tensor:
        return literal(self.size - 1, at.dtype)

    def inside(self, at: Tensor) -> Tensor:
        return (at >= 0.0) & (at <= self.last(at))

    def place(self, at: Tensor, word: DType) -> Tensor:
        return minimum(maximum(cast(at, word), 0), literal(self.size - 1, word))

    def reflected(self, at: Tensor) -> tuple[Tensor, Tensor]:
        """Turned back at both ends as often as needed; and whether it runs backwards there."""
        low = 0.0 if self.align else 0.5
        off, turn = at + low, self.span(at) * 2.0
        ahead = fmod(absolute(off), turn)  # NaN of no span
        return minimum(ahead, turn - ahead) - low, (ahead > turn - ahead) ^ (off < 0.0)

    def clipped(self, at: Tensor) -> Tensor:
        """NaN is the first place in two dimensions, the last in three."""
        last = self.last(at)
        if self.flat:
            return where(at > 0.0, minimum(at, last), 0.0)
        return where(at < last, maximum(at, 0.0), last)

    def padded(self, at: Tensor) -> tuple[Tensor, Tensor | float]:
        """A coordinate of the image, and how it grows with that which is asked for: 0 at ends."""
        if self.padding == ZEROS:
            if not self.flat:  # reads nothing at infinity, and at NaN
                near_it = (at > -1.0) & (at < literal(self.size, at.dtype))
                at = where(near_it, at, -2.0)
            return at, 1.0
        slope: Tensor | float = 1.0
        if self.padding == REFLECTION:
            at, back = self.reflected(at)
            slope = where(back, literal(-1.0, at.dtype), 1.0)
        within = (at > 0.0) & (at < self.last(at))
        return self.clipped(at), where(within, slope, literal(0.0, at.dtype))


@dataclass(frozen=True)
class Tap:
    """Of one axis, coordinates that are read, by how much, and how that grows with the grid's.

    All [n, taps, places]: the image's axes have one axis of taps each, 1 but for their own.
    """

    axis: Axis
    at: Tensor
    weight: Tensor | None = None
    slope: Tensor | None = None


def tap_of(axis: Axis, numbers: Tensor, turn: Tensor) -> Tap:
    """Of a grid's numbers [n, taps, places]; `turn` counts the taps of the axis."""
    at = axis.scaled(numbers)
    grows = axis.span(at) * 0.5
    if axis.mode == CUBIC:
        lower = floor(at)
        off = at - lower - (turn - 1.0)
        weight, slope = keys(absolute(off))
        read_at, _ = axis.padded(lower + (turn - 1.0))
        return Tap(axis, read_at, weight, where(off < 0.0, -slope, slope) * grows)
    at, slope = axis.padded(at)
    if axis.mode == NEAREST:
        return Tap(axis, round_even(at))
    lower, first = floor(at), eq(turn, 0.0)
    beyond = at - lower
    grows = grows * slope
    weight = where(first, 1.0 - beyond, beyond)
    return Tap(axis, lower + turn, weight, where(first, -grows, grows))


def keys(x: Tensor) -> tuple[Tensor, Tensor]:
    """Keys' cubic from 0 to 2, and its derivative."""
    inner = fma(x, 3 * (A + 2), -2 * (A + 3)) * x
    outer = fma(fma(x, 3 * A, -10 * A), x, 8 * A)
    return where(x <= 1.0, near(x, A), far(x, A)), where(x <= 1.0, inner, outer)


# --- all axes -------------------------------------------------------------------------------------


def taps_of(x: Tensor, grid: Tensor, mode: int, padding: int, align: bool) -> list[Tap]:
    """Of each axis of the image, of those of all axes together."""
    require(0 not in x.shape, "there is nothing to sample")
    rank, wide = x.rank - 2, TAPS[mode]
    ones, taps = (1,) * rank, list[Tap]()
    for i, size in enumerate(x.shape[2:]):
        axis = Axis(size, mode, padding, align, rank == 2)
        shape = (1, *ones[:i], wide, *ones[i + 1 :], *ones)
        turn = cast(index_of(shape, position(1 + i)), x.dtype)
        numbers = build.select(grid, rank + 1, rank - 1 - i)
        numbers = reshape(numbers, (grid.shape[0], *ones, *grid.shape[1:-1]))
        taps.append(tap_of(axis, numbers, turn))
    return taps


def product_of(factors: Iterable[Tensor | None]) -> Tensor | None:
    known = [f for f in factors if f is not None]
    return reduce(operator.mul, known) if known else None


def inside(taps: Sequence[Tap]) -> Tensor:
    return reduce(operator.and_, (tap.axis.inside(tap.at) for tap in taps))


def places(taps: Sequence[Tap]) -> Tensor:
    """Positions in an image whose axes are one: i32 where these suffice, which vectors convert."""
    word = i32 if is_short(math.prod(tap.axis.size for tap in taps)) else i64
    flat = taps[0].axis.place(taps[0].at, word)
    for tap in taps[1:]:
        flat = flat * literal(tap.axis.size, word) + tap.axis.place(tap.at, word)
    return flat


def tap_axes(image: Tensor) -> range:
    return range(1, image.rank - 1)


def spread(x: Tensor, channels: int) -> Tensor:
    """[n, taps, places], the same in each channel, which is the last axis."""
    return broadcast_in(x, (*x.shape, channels), range(x.rank))


def channels_last(x: Tensor) -> Tensor:
    """[n, c, places] as [n, places, c]: lanes then read the channels of a place, one by one."""
    return build.contiguous(build.permute(x, [0, *range(2, x.rank), 1]))


def channels_first(x: Tensor) -> Tensor:
    """[n, places, c] as [n, c, places]."""
    return build.permute(x, [0, x.rank - 1, *range(1, x.rank - 1)])


def each_tap(g: Tensor, like: Tensor) -> Tensor:
    """[n, c, places], the same for each tap."""
    return broadcast_in(channels_last(g), like.shape, [0, *range(g.rank - 1, like.rank)])


def found(x: Tensor, taps: Sequence[Tap]) -> Tensor:
    """[n, taps, places, c]: what is read of an image; beyond it, 0."""
    n, channels, *image = x.shape
    whole, at = reshape(channels_last(x), (n, math.prod(image), channels)), places(taps)
    value = read(whole, (1,), [spread(at, channels)], (0, at.rank))
    return where(spread(inside(taps), channels), value, 0.0)


def grid_sampler(x: Tensor, grid: Tensor, *how: Any) -> Tensor:
    taps = taps_of(x, grid, *how)
    values, weight = found(x, taps), product_of(tap.weight for tap in taps)
    if weight is not None:
        values = values * spread(weight, x.shape[1])
    return channels_first(total(values, tap_axes(x)))


def grid_sampler_backward(
    g: Tensor, x: Tensor, grid: Tensor, mode: int, padding: int, align: bool, needed: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None]:
    taps = taps_of(x, grid, mode, padding, align)
    of_image = image_gradient(g, x, taps) if needed[0] else None
    of_grid = grid_gradient(g, x, taps) if needed[1] and mode != NEAREST else None
    return of_image, of_grid


def image_gradient(g: Tensor, x: Tensor, taps: Sequence[Tap]) -> Tensor:
    """Each tap adds its part to the place that it reads."""
    n, channels, *image = x.shape
    flat = spread(places(taps), channels)
    part = each_tap(g, flat)
    weight = product_of(tap.weight for tap in taps)
    if weight is not None:
        part = part * spread(weight, x.shape[1])
    part = where(spread(inside(taps), x.shape[1]), part, 0.0)
    base = full((n, math.prod(image), channels), 0, g.dtype)
    index, values = (reshape(t, (n, math.prod(t.shape[1:-1]), channels)) for t in (flat, part))
    sums = build.scatter(SUM, base, 1, index, values)
    return channels_first(reshape(sums, (n, *image, channels)))


def grid_gradient(g: Tensor, x: Tensor, taps: Sequence[Tap]) -> Tensor:
    """By each number of the grid: what the sum over channels of g times the values grows by."""
    values = found(x, taps)
    sums = total(values * each_tap(g, values), (values.rank - 1,))
    parts: list[Tensor] = []
    for own in reversed(taps):
        grows = product_of(tap.slope if tap is own else tap.weight for tap in taps)
        assert grows is not None
        grown = total(sums * grows, tap_axes(x))
        parts.append(build.unsqueeze(grown, grown.rank))
    return build.concat(parts, parts[0].rank - 1)


ROWS: dict[str, Row] = rows(
    "widened",
    {
        "grid_sampler_2d grid_sampler_3d": grid_sampler,
        "grid_sampler_2d_backward grid_sampler_3d_backward": grid_sampler_backward,
    },
)
