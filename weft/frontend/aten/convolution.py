"""Rows of convolution and its gradients, any number of axes, groups, strides and dilations.

out[n, o, y] = sum over c, k of x[n, group(o) + c, y*stride + k*dilation - pad] * w[o, c, k]
"""

from functools import partial
from typing import Any

from weft.core.node import Node
from weft.core.types import at_least
from weft.frontend.aten.table import Row, namesakes, per_axis, require, rows
from weft.frontend.aten.windows import Extents, Reads, Window
from weft.scalar.ops import apply, constant
from weft.tensor.build import Tensor, all_of, reshape, total, view, within
from weft.tensor.ops import position


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


ROWS: dict[str, Row] = rows("widened", namesakes(convolution, convolution_backward))
