"""Rows of convolution and its gradients, any number of axes, groups, strides and dilations.

out[n, o, y] = sum over c, k of x[n, group(o) + c, y*stride + k*dilation - pad] * w[o, c, k]
"""

from typing import Any

from weft.core.node import Node
from weft.core.types import at_least
from weft.frontend.aten.table import Row, namesakes, per_axis, require, rows
from weft.frontend.aten.windows import Extents, Window
from weft.scalar.ops import apply, constant
from weft.tensor.build import Tensor, reshape, total, unsqueeze, view
from weft.tensor.ops import position


def channel_of(axis: int, inner: int, here: int, there: int) -> Node:
    """(a // here) * there + inner: a channel of the other side, in the group that a is in."""
    group = apply("floordiv", position(axis), constant(at_least(1, here)))
    return apply("add", apply("multiply", group, constant(there)), position(inner))


def convolved(
    x: Tensor, weight: Tensor, groups: int, window: Window, sizes: Extents, transposed: bool
) -> Tensor:
    """[N, C, size] by [O, C / groups, kernel] -> [N, O, sizes]: windows of x, a sum over taps.

    Transposed, [N, O, size] -> [N, C, sizes]: what each element was read by, and the same filters.
    """
    n, (outs, ins) = window.rank, weight.shape[:2]
    # Channels of a group, on this side and on the other.
    here, there = (ins, outs // groups) if transposed else (outs // groups, ins)
    shape = (x.shape[0], here * groups, *sizes, there, *window.kernel)
    source = channel_of(1, 2 + n, here, there)
    taps = range(3 + n, 3 + 2 * n)
    move = window.spread if transposed else window.gather
    windows = move(x, shape, [position(0), source], range(2, 2 + n), taps)
    local = apply("floormod", position(1), constant(at_least(1, ins)))
    filters = [source, local] if transposed else [position(1), position(2 + n)]
    chosen = view(weight, shape, [*filters, *map(position, taps)])
    return total(windows * chosen, range(2 + n, 3 + 2 * n))


def backward_to_weight(g: Tensor, x: Tensor, shape: Extents, window: Window) -> Tensor:
    """Sum over batch and output positions of g times the input each tap read."""
    n, (outs, ins) = window.rank, shape[:2]
    box = (*shape, g.shape[0], *g.shape[2:])
    groups = x.shape[1] // max(ins, 1)
    batch, at = 2 + n, range(3 + n, 3 + 2 * n)
    source = channel_of(0, 1, outs // max(groups, 1), ins)
    windows = window.gather(x, box, [position(batch), source], at, range(2, 2 + n))
    grads = view(g, box, [position(batch), position(0), *map(position, at)])
    return total(windows * grads, [batch, *at])


def convolution(x: Tensor, weight: Tensor, bias: Tensor | None, *how: Any) -> Tensor:
    """`how`: stride, padding, dilation, whether it is transposed, output padding, groups."""
    *moves, transposed, output_padding, groups = how
    if x.rank < weight.rank:  # no batch axis
        batched = convolution(unsqueeze(x, 0), weight, bias, *how)
        return reshape(batched, batched.shape[1:])
    n = weight.rank - 2
    window = Window.of(weight.shape[2:], *moves)
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
    window = Window.of(weight.shape[2:], *moves)
    to_input = to_weight = None
    if wanted[0]:
        to_input = convolved(g, weight, groups, window, x.shape[2:], not transposed)
    if wanted[1]:
        small, large = (x, g) if transposed else (g, x)
        to_weight = backward_to_weight(small, large, weight.shape, window)
    to_bias = total(g, [a for a in range(g.rank) if a != 1]) if wanted[2] else None
    return to_input, to_weight, to_bias


ROWS: dict[str, Row] = rows("widened", namesakes(convolution, convolution_backward))
