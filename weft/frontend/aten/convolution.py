"""Rows of convolution and pooling, and their gradients: any number of axes, strides and dilations.

out[n, o, y] = sum over c, k of x[n, group(o) + c, y*stride + k*dilation - pad] * w[o, c, k]
max_pool2d: reduce{max}(windows of x), the argmax of the same windows gives the indices
"""

import math
from functools import partial
from typing import Any

from weft.core.node import Node
from weft.core.types import at_least, i64
from weft.frontend.aten.table import Row, namesakes, per_axis, require, rows
from weft.frontend.aten.windows import Extents, Reads, Window
from weft.scalar.monoid import MAX, MONOIDS, lowest
from weft.scalar.ops import apply, constant, eq, where
from weft.tensor import build
from weft.tensor.build import Number, Tensor, affine, all_of, index_of, reshape, total, view, within
from weft.tensor.ops import position, positions


def channels(groups: int, each: int, first: int = 1) -> tuple[tuple[int, ...], Node, Node]:
    """The axes of one side's channels, from `first` on: a group is one where it has several.

    Their shape; which group a channel is in, and its number there.
    """
    if groups > 1 and each > 1:
        return (groups, each), position(first), position(first + 1)
    size, channel = constant(at_least(1, each)), position(first)
    group, inside = (apply(f, channel, size) for f in ("floordiv", "floormod"))
    return (groups * each,), group, inside


def of_group(group: Node, each: int, inside: Node) -> Node:
    """The channel of that number in a group of `each`."""
    return apply("add", apply("multiply", group, constant(each)), inside)


def summed(
    x: Tensor, weight: Tensor, groups: int, turned: bool, parts: Extents, taps: Extents, read: Reads
) -> Tensor:
    """[N, O, parts]: a sum over the channels of a group and `taps`; with filters turned [N, C, ..].

    read(p, t) has for each axis of x the place that is read, and by which tap, of the axes of parts
    from p and of taps from t on.
    """
    outs, ins = weight.shape[:2]
    # Channels of a group, on this side and on the other.
    here, there = (ins, outs // groups) if turned else (outs // groups, ins)
    own, group, inside = channels(groups, here)
    first = 1 + len(own)
    inner = first + len(parts)
    shape = (x.shape[0], *own, *parts, there, *taps)
    places, chosen = zip(*read(first, inner + 1), strict=True)
    source = of_group(group, there, position(inner))
    valid = all_of([within(p, n) for p, n in zip(places, x.shape[2:], strict=True)])
    windows = view(x, shape, [position(0), source, *places], valid)
    filters = (source, inside) if turned else (of_group(group, here, inside), position(inner))
    products = windows * view(weight, shape, [*filters, *chosen])
    out = total(products, range(inner, len(shape)))
    return reshape(out, (x.shape[0], here * groups, *parts))


def convolved(
    x: Tensor, weight: Tensor, groups: int, window: Window, sizes: Extents, transposed: bool
) -> Tensor:
    """[N, C, size] by [O, C / groups, kernel] -> [N, O, sizes]: windows of x, a sum over taps.

    Transposed, [N, O, size] -> [N, C, sizes]: what each element was read by, and the same filters.
    """
    if transposed:
        return window.transposed(sizes, partial(summed, x, weight, groups, True))
    return summed(x, weight, groups, False, sizes, window.kernel, window.reads)


def backward_to_weight(g: Tensor, x: Tensor, shape: Extents, window: Window) -> Tensor:
    """Sum over batch and output positions of g times the input each tap read."""
    n, (outs, ins) = window.rank, shape[:2]
    groups = x.shape[1] // max(ins, 1)
    each = outs // max(groups, 1)
    own, group, inside = channels(groups, each, 0)
    first = len(own)
    batch, taps = first + n + 1, range(first + 1, first + n + 1)
    at = range(batch + 1, batch + n + 1)
    box = (*own, *shape[1:], g.shape[0], *g.shape[2:])
    source = of_group(group, ins, position(first))
    windows = window.gather(x, box, [position(batch), source], at, taps)
    grads = view(g, box, [position(batch), of_group(group, each, inside), *map(position, at)])
    return reshape(total(windows * grads, [batch, *at]), shape)


def convolution(x: Tensor, weight: Tensor, bias: Tensor | None, *how: Any) -> Tensor:
    """`how`: stride, padding, dilation, whether it is transposed, output padding, groups."""
    *moves, transposed, output_padding, groups = how
    require(x.rank == weight.rank, "a convolution without a batch axis")
    n = weight.rank - 2
    window = Window(weight.shape[2:], *moves)
    if transposed:
        extra = per_axis(output_padding, n)
        size = [
            (m - 1) * window.stride[i] - 2 * window.pad[i] + window.reach(i) + extra[i]
            for i, m in enumerate(x.shape[2:])
        ]
    else:
        size = window.sizes(x.shape[2:])
    out = convolved(x, weight, groups, window, size, transposed)
    return out if bias is None else out + reshape(bias, (-1, *(1,) * n))


def convolution_backward(
    g: Tensor, x: Tensor, weight: Tensor, bias_sizes: Extents | None, *how: Any
) -> tuple[Tensor | None, ...]:
    """A transposed convolution is the transpose of one, so the two swap roles.

    `how` is that of `convolution`, then which of the three gradients are wanted.
    """
    require(x.rank == weight.rank, "the gradient of a convolution without a batch axis")
    *moves, transposed, _, groups, wanted = how
    window = Window(weight.shape[2:], *moves)
    to_input = to_weight = None
    if wanted[0]:
        to_input = convolved(g, weight, groups, window, x.shape[2:], not transposed)
    if wanted[1]:
        small, large = (x, g) if transposed else (g, x)
        to_weight = backward_to_weight(small, large, weight.shape, window)
    to_bias = total(g, [a for a in range(g.rank) if a != 1]) if wanted[2] else None
    return to_input, to_weight, to_bias


# --- pooling ------------------------------------------------------------------------------------


def pooled(x: Tensor, window: Window, fill: Number) -> tuple[Tensor, range]:
    """[lead, sizes, kernel]: the last axes of x as windows, and which axes the taps are."""
    lead, taps = x.rank - window.rank, range(x.rank, x.rank + window.rank)
    shape = (*x.shape[:lead], *window.sizes(x.shape[lead:]), *window.kernel)
    return window.gather(x, shape, positions(lead), range(lead, x.rank), taps, fill), taps


def for_each_tap(x: Tensor, window: Window) -> Tensor:
    """[lead, windows] -> [lead, kernel, windows]."""
    lead = x.rank - window.rank
    box = (*x.shape[:lead], *window.kernel, *x.shape[lead:])
    return build.broadcast_in(x, box, (*range(lead), *range(x.rank, len(box))))


def returned(held: Tensor, window: Window, sizes: Extents) -> Tensor:
    """[lead, kernel, windows] -> [lead, sizes]: each place sums what windows hold for it."""
    lead = held.rank - 2 * window.rank

    def fold(parts: Extents, taps: Extents, read: Reads) -> Tensor:
        inner = lead + len(parts)
        places, chosen = zip(*read(lead, inner), strict=True)
        inside = zip(places, held.shape[-window.rank :], strict=True)
        valid = build.all_of([build.within(p, n) for p, n in inside])
        box = (*held.shape[:lead], *parts, *taps)
        whole = build.view(held, box, [*positions(lead), *chosen, *places], valid)
        return total(whole, range(inner, len(box)))

    return window.transposed(sizes, fold)


def max_pool(n: int, x: Tensor, kernel: Extents, *moves: Any) -> tuple[Tensor, Tensor]:
    """Values and their row-major positions in the last axes of x; `moves` as in `Window`."""
    window = Window(per_axis(kernel, n), *moves)
    least = lowest(x.dtype.numpy)
    windows, taps = pooled(x, window, least)
    values, tap = (build.reduce(m, windows, taps) for m in (MAX, MONOIDS["argmax"]))
    flat = build.literal(0, i64)
    for i in reversed(range(n)):  # the position in the window, split into one per axis
        axis, own = x.rank - n + i, tap % window.kernel[i]
        if window.pad[i]:  # where nothing is greater than padding, the first tap beyond it
            back = affine({axis: -window.stride[i]}, window.pad[i] + window.dilation[i] - 1)
            back = apply("floordiv", back, constant(window.dilation[i]))
            first = index_of(tap.shape, apply("maximum", back, constant(0)))
            own = where(eq(values, least), first, own)
        start = index_of(tap.shape, affine({axis: window.stride[i]}, -window.pad[i]))
        coordinate = start + own * window.dilation[i]
        flat = flat + coordinate * math.prod(x.shape[axis + 1 :])
        tap = tap // window.kernel[i]
    return values, flat


def max_pool_backward(g: Tensor, x: Tensor, *rest: Any) -> Tensor:
    """Each input sums the gradients of the windows over it whose maximum it was.

    `rest` is what `Window` takes, then the positions that the forward op gave.
    """
    *moves, indices = rest
    window, lead = Window(*moves), g.rank - len(rest[0])
    held, winners = (for_each_tap(t, window) for t in (g, indices))
    flat, first = dict[int, int](), 0  # the position that a window reads by a tap
    for i in range(window.rank):
        by = math.prod(x.shape[lead + i + 1 :])
        flat |= {lead + i: by * window.dilation[i], g.rank + i: by * window.stride[i]}
        first -= by * window.pad[i]
    held = where(eq(winners, index_of(held.shape, affine(flat, first))), held, 0)
    return returned(held, window, x.shape[lead:])


def col2im(x: Tensor, size: Extents, kernel: Extents, *moves: Any) -> Tensor:
    """[.., C * kernel, windows] -> [.., C, size]."""
    window = Window(kernel, *reversed(moves))  # which are dilation, padding and stride
    lead = (*x.shape[:-2], x.shape[-2] // math.prod(kernel))
    return returned(reshape(x, (*lead, *kernel, *window.sizes(size))), window, size)


# --- averages -----------------------------------------------------------------------------------


def averaging(n: int, x: Tensor, kernel: Extents, *how: Any) -> tuple[Window, Number | Node]:
    """The window, and how many elements an average is over: a term where it depends on place."""
    stride, padding, ceil_mode, count_include_pad, divisor_override = how
    require(x.dtype.is_float, "an average of integers")
    kernel = per_axis(kernel, n)
    window = Window(kernel, stride, padding, 1, ceil_mode)
    whole = not ceil_mode and (count_include_pad or not any(window.pad))
    if divisor_override is not None or whole:
        return window, math.prod(kernel) if divisor_override is None else divisor_override
    count: Node = constant(1)
    for i, m in enumerate(x.shape[x.rank - n :]):
        begin = {x.rank - n + i: window.stride[i]}
        margin = window.pad[i] if count_include_pad else 0
        first = apply("maximum", affine(begin, -window.pad[i]), constant(-margin))
        end = apply("minimum", affine(begin, kernel[i] - window.pad[i]), constant(m + margin))
        count = apply("multiply", count, apply("subtract", end, first))
    return window, count


def divided(x: Tensor, count: Number | Node) -> Tensor:
    if isinstance(count, Node):
        return x / build.cast(index_of(x.shape, count), x.dtype)
    return x * (1 / count)


def avg_pool(n: int, x: Tensor, *how: Any) -> Tensor:
    """`how` is as in `averaging`, from the kernel on."""
    window, count = averaging(n, x, *how)
    return divided(total(*pooled(x, window, 0)), count)


def avg_pool_backward(g: Tensor, x: Tensor, kernel: Extents, *rest: Any) -> Tensor:
    """Each input has its share of every average it was in; `rest` is as in `averaging`."""
    window, count = averaging(len(kernel), x, kernel, *rest)
    return returned(for_each_tap(divided(g, count), window), window, x.shape[-window.rank :])


WINDOWED = {
    **{f"max_pool{n}d_with_indices": partial(max_pool, n) for n in (2, 3)},
    "max_pool2d_with_indices_backward max_pool3d_with_indices_backward": max_pool_backward,
    **{f"avg_pool{n}d": partial(avg_pool, n) for n in (2, 3)},
    **namesakes(convolution, convolution_backward, col2im),
    "avg_pool2d_backward avg_pool3d_backward": avg_pool_backward,
}

ROWS: dict[str, Row] = rows("widened", WINDOWED)
