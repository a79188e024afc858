"""Windows as views: what convolution and pooling multiply or fold.

position*stride + tap*dilation - pad, from an output position to the input that it reads by a tap
"""

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import Any

from weft.core.node import Node
from weft.frontend.aten.table import per_axis
from weft.scalar.affine import from_linear, linear, plus, times
from weft.scalar.ops import apply, constant, eq, floordiv, floormod
from weft.tensor.build import Extents, Number, Tensor, affine, all_of, view, within
from weft.tensor.ops import position, positions

Lead = Sequence[Node]
# From the first axes of positions and of taps: along each axis the place that is read, and the tap.
Reads = Callable[[int, int], Iterable[tuple[Node, Node]]]
Fold = Callable[[Extents, Extents, Reads], Tensor]  # of positions, taps: [lead, positions]


@dataclass(frozen=True)
class Phases:
    """Input positions along one axis by the taps that read them.

    Tap k at output i reads i * stride + k * dilation - pad. Divided by what stride and dilation
    have in common: the taps of a position are phase + m * step, and turn is position // stride.
    """

    first: int  # phase, and how many there are
    count: int
    taps: int  # of each
    stride: int
    pad: int
    common: int
    step: int
    by: int  # the dilation

    def read(self, phase: Node, turn: Node, tap: Node) -> tuple[Node, Node]:
        """The output that reads a position, and by which of all taps, of a phase's m-th tap."""
        start = -(-self.pad // self.common)  # of the first position that any tap reads
        own = plus(linear(phase), ({}, self.first))
        back = from_linear(*plus(times(own, ({}, self.by)), ({}, -start)))
        back = apply(floordiv, back, constant(self.step))
        place = plus(plus(linear(turn), linear(back), -1), linear(tap), -self.by)
        return from_linear(*place), from_linear(*plus(own, linear(tap), self.step))

    def place(self, position: Node) -> tuple[Node, Node, Node]:
        """The phase and the turn of a position, and whether it has them here."""
        padded, common = apply("add", position, constant(self.pad)), constant(self.common)
        number = linear(apply(floordiv, padded, common))
        number = from_linear(*times(number, ({}, pow(self.by, -1, self.step))))
        phase = apply(floormod, number, constant(self.step))
        phase = from_linear(*plus(linear(phase), ({}, -self.first)))
        read = apply(eq, apply(floormod, padded, common), constant(0))
        valid = all_of([within(phase, self.count), read])
        return phase, apply(floordiv, position, constant(self.stride)), valid


@dataclass(frozen=True)
class Window:
    """How a window moves over the last axes of a tensor, by ATen's arguments, in its order.

    One number for a field is the same for every axis; without a stride windows lie side by side.
    With `ceil_mode` a last one may hang over the end, but it starts inside.
    """

    kernel: Extents
    stride: Any
    pad: Any
    dilation: Any
    ceil_mode: bool = False

    def __post_init__(self) -> None:
        moves = {"stride": self.stride or self.kernel, "pad": self.pad, "dilation": self.dilation}
        for name, value in moves.items():  # from now on a number per axis
            object.__setattr__(self, name, per_axis(value, self.rank))

    @property
    def rank(self) -> int:
        return len(self.kernel)

    def reach(self, i: int) -> int:
        """Elements from its first tap to its last, both included."""
        return self.dilation[i] * (self.kernel[i] - 1) + 1

    def sizes(self, extents: Extents) -> tuple[int, ...]:
        """How many windows fit."""
        out: list[int] = []
        for i, n in enumerate(extents):
            span = n + 2 * self.pad[i] - self.reach(i)
            count = -(-span // self.stride[i]) if self.ceil_mode else span // self.stride[i]
            past = self.ceil_mode and count * self.stride[i] >= n + self.pad[i]
            out.append(count if past else count + 1)
        return tuple(out)

    def reads(self, at: int, tap: int) -> Iterator[tuple[Node, Node]]:
        """Along each axis the place that is read, and the tap: of axes from `at` and `tap` on."""
        for i, pad in enumerate(self.pad):
            moves = {at + i: self.stride[i], tap + i: self.dilation[i]}
            yield affine(moves, -pad), position(tap + i)

    def gather(
        self, x: Tensor, shape: Extents, lead: Lead, at: Extents, taps: Extents, fill: Number = 0
    ) -> Tensor:
        """x[lead..., gathered...]; `at` and `taps` name the output axes of positions and taps."""
        index = [place for place, _ in self.reads(at[0], taps[0])]
        inside = [within(i, n) for i, n in zip(index, x.shape[len(lead) :], strict=True)]
        return view(x, shape, [*lead, *index], all_of(inside), fill)

    def transposed(self, sizes: Extents, fold: Fold) -> Tensor:
        """[lead, sizes]: at each place what the windows over it sum.

        One sum for all places that so many taps read, and so on; those of a phase are read by the
        same (Shi et al., Is the deconvolution layer the same as a convolutional layer?, 2016).
        """
        pieces = product(*map(self.phases, range(self.rank)))
        return reduce(operator.add, (in_phases(piece, sizes, fold) for piece in pieces))

    def phases(self, i: int) -> list[Phases]:
        """The phases of axis i, in one piece for each number of taps that they have."""
        common = math.gcd(self.stride[i], self.dilation[i])
        step, by = self.stride[i] // common, self.dilation[i] // common
        most, rest = divmod(self.kernel[i], step)
        facts = (self.stride[i], self.pad[i], common, step, by)
        found = Phases(0, rest, most + 1, *facts), Phases(rest, step - rest, most, *facts)
        return [p for p in found if p.count and p.taps]


def in_phases(piece: Sequence[Phases], sizes: Extents, fold: Fold) -> Tensor:
    """What `fold` gives at the positions of some phases, and 0 at the others."""
    turns = [-(-size // p.stride) for size, p in zip(sizes, piece, strict=True)]
    several = [i for i, p in enumerate(piece) if p.count > 1]

    def read(at: int, tap: int) -> Iterable[tuple[Node, Node]]:
        turn = at + len(several)
        for i, p in enumerate(piece):
            phase = position(at + several.index(i)) if i in several else constant(0)
            yield p.read(phase, position(turn + i), position(tap + i))

    parts, taps = [*(piece[i].count for i in several), *turns], [p.taps for p in piece]
    out = fold(parts, taps, read)
    lead = out.rank - len(parts)
    found = (p.place(position(lead + i)) for i, p in enumerate(piece))
    phases, turned, valid = zip(*found, strict=True)
    index = [*positions(lead), *(phases[i] for i in several), *turned]
    return view(out, (*out.shape[:lead], *sizes), index, all_of(valid))
