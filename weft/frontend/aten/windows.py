"""Windows as views: what convolution and pooling multiply or fold.

gathered: position*stride + tap*dilation - pad, from an output position to the input it reads
spread:   (position + pad - tap*dilation) / stride, from an input position back to the outputs
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from weft.core.node import Node
from weft.frontend.aten.table import per_axis
from weft.scalar.ops import apply, constant, eq, floordiv, floormod
from weft.tensor.build import Number, Tensor, affine, all_of, view, within

Extents = Sequence[int]
Each = int | Extents  # one number is the same for every axis


@dataclass(frozen=True)
class Window:
    """How a window moves over the last axes of a tensor, a number per axis.

    With `ceil_mode` a last one may hang over the end, but it starts inside.
    """

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    pad: tuple[int, ...]
    dilation: tuple[int, ...]
    ceil_mode: bool = False

    @staticmethod
    def of(
        kernel: Extents, stride: Extents, pad: Each, dilation: Each, ceil_mode: bool = False
    ) -> Window:
        n = len(kernel)
        moves = per_axis(stride or kernel, n), per_axis(pad, n), per_axis(dilation, n)
        return Window(tuple(kernel), *moves, ceil_mode)

    @property
    def rank(self) -> int:
        return len(self.kernel)

    def sizes(self, extents: Extents) -> tuple[int, ...]:
        """How many windows fit."""
        out: list[int] = []
        for i, n in enumerate(extents):
            span = n + 2 * self.pad[i] - self.dilation[i] * (self.kernel[i] - 1) - 1
            count = -(-span // self.stride[i]) if self.ceil_mode else span // self.stride[i]
            past = self.ceil_mode and count * self.stride[i] >= n + self.pad[i]
            out.append(count if past else count + 1)
        return tuple(out)

    def gathered(self, i: int, at: int, tap: int) -> Node:
        """Input coordinate i, from the output's axis `at` and the tap's axis."""
        return affine({at: self.stride[i], tap: self.dilation[i]}, -self.pad[i])

    def spread(self, i: int, at: int, tap: int) -> tuple[Node, Node]:
        """Output coordinate i, from the input's axis `at`; and whether it is a whole number."""
        back = affine({at: 1, tap: -self.dilation[i]}, self.pad[i])
        step = constant(self.stride[i])
        whole = apply(eq, apply(floormod, back, step), constant(0))
        return apply(floordiv, back, step), whole


def gather_windows(
    x: Tensor,
    shape: Extents,
    lead: Sequence[Node],
    at: Extents,
    taps: Extents,
    window: Window,
    fill: Number = 0,
) -> Tensor:
    """x[lead..., gathered...]; `at` and `taps` name the output axes of positions and taps."""
    index = [window.gathered(i, at[i], taps[i]) for i in range(window.rank)]
    inside = [within(i, n) for i, n in zip(index, x.shape[len(lead) :], strict=True)]
    return view(x, shape, [*lead, *index], all_of(inside), fill)


def spread_windows(
    x: Tensor,
    shape: Extents,
    lead: Sequence[Node],
    at: Extents,
    taps: Extents,
    window: Window,
) -> Tensor:
    """x[lead..., spread...], zero where no output reads that input."""
    index: list[Node] = list(lead)
    valid: list[Node] = []
    for i in range(window.rank):
        place, whole = window.spread(i, at[i], taps[i])
        valid += [within(place, x.shape[len(index)]), whole]
        index.append(place)
    return view(x, shape, index, all_of(valid))
