"""Rows of convolution and its gradients, any number of axes, groups, strides and dilations.

out[n, o, y] = sum over c, k of x[n, group(o) + c, y*stride + k*dilation - pad] * w[o, c, k]
"""

import operator
from collections.abc import Sequence
from functools import reduce
from itertools import product
from typing import Any

from weft.core.node import Node
from weft.core.types import at_least
from weft.frontend.aten.table import Row, namesakes, per_axis, require, rows
from weft.frontend.aten.windows import Extents, Phases, Window
from weft.scalar.ops import apply, constant
from weft.tensor.build import (
    Tensor,
    all_of,
    reshape,
    total,
    unsqueeze,
    view,
    within,
)
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
    if transposed and any(step > 1 for step in window.stride):
        return in_phases(x, weight, groups, window, sizes)
    shape = (x.shape[0], here * groups, *sizes, there, *window.kernel)
    source = channel_of(1, 2 + n, here, there)
    taps = range(3 + n, 3 + 2 * n)
    move = window.spread if transposed else window.gather
    windows = move(x, shape, [position(0), source], range(2, 2 + n), taps)
    local = apply("floormod", position(1), constant(at_least(1, ins)))
    filters = [source, local] if transposed else [position(1), position(2 + n)]
    chosen = view(weight, shape, [*filters, *map(position, taps)])
    return total(windows * chosen, range(2 + n, 3 + 2 * n))


def in_phases(x: Tensor, weight: Tensor, groups: int, window: Window, sizes: Extents) -> Tensor:
    """A transposed convolution: one with all positions that are read by so many taps, and so on.

    Positions of a phase are read by the same taps (Shi et al., Is the deconvolution layer the same
    as a convolutional layer?, 2016): no product is with a zero between the elements of x.
    """
    pieces = product(*map(window.phases, range(window.rank)))
    found = (_in_phases(x, weight, groups, piece, sizes) for piece in pieces)
    return reduce(operator.add, found)


def _in_phases(
    x: Tensor, weight: Tensor, groups: int, piece: Sequence[Phases], sizes: Extents
) -> Tensor:
    """What the positions of some phases get, and 0 for the others."""
    n, (outs, ins) = len(piece), weight.shape[:2]
    turns = [-(-size // p.stride) for size, p in zip(sizes, piece, strict=True)]
    kernel = [p.taps for p in piece]
    lead = (x.shape[0], ins * groups)
    shape = (*lead, *(p.count for p in piece), *turns, outs // groups, *kernel)
    inner = 2 + 2 * n
    axes = zip(*(map(position, range(a, a + n)) for a in (2, 2 + n, inner + 1)), strict=True)
    read = [p.read(*at) for p, at in zip(piece, axes, strict=True)]
    source = channel_of(1, inner, ins, outs // groups)
    inside = all_of([within(at, size) for (at, _), size in zip(read, x.shape[2:], strict=True)])
    windows = view(x, shape, [position(0), source, *(at for at, _ in read)], inside)
    local = apply("floormod", position(1), constant(at_least(1, ins)))
    chosen = view(weight, shape, [source, local, *(tap for _, tap in read)])
    out = total(windows * chosen, range(inner, inner + n + 1))
    found = [p.place(position(2 + i)) for i, p in enumerate(piece)]
    phases, turn, valid = zip(*found, strict=True)
    index = [position(0), position(1), *phases, *turn]
    return view(out, (*lead, *sizes), index, all_of(valid))


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
