"""Joining: kernels over one iteration space that share what they read become one.

join_greedily(groups)       # best pair first, where the price of the nest of both favours it
Pairs are ranked by the bytes that both touch, and equal ones by how short they are, so that many
siblings join as in a tournament; a pair's nest is lowered when its turn comes. Each kernel meets
the NEAREST readers of what it touches: pairs grow as kernels do, not as their square.
"""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_left
from collections.abc import Iterable

from weft.core.node import Node
from weft.tensor import ops
from weft.tensor.groups import Groups, Kernel, place
from weft.tensor.lower import root_shape

NEAREST = 16  # readers of a tensor, to either side, that a kernel may join


def join_greedily(groups: Groups) -> None:
    """Join kernels over one iteration space that share what they read, best pair first."""
    _Joining(groups).run()


def join_everything(groups: Groups) -> None:
    """One kernel for all outputs over the same space, wherever that is legal."""
    joining = _Joining(groups)
    while True:
        pairs = itertools.combinations(filter(is_joinable, groups.all()), 2)
        legal = next((pair for pair in pairs if joining.is_legal(*pair)), None)
        if legal is None:
            return
        joining.join(joining.both(*legal), *legal)


def is_joinable(kernel: Kernel) -> bool:
    """Whether other outputs may be computed in its loops."""
    alone = ops.Extern | ops.Scan | ops.Scatter | ops.Part
    return not isinstance(kernel.outputs[0].op, alone)


class _Joining:
    def __init__(self, groups: Groups) -> None:
        """Works out, for every kernel, which others it needs."""
        self.groups = groups
        self.heap: list[tuple[int, int, int, int, int, Kernel, Kernel]] = []
        self.tick = itertools.count()
        for i, outputs in enumerate(groups.ordered()):
            kernel = groups.kernels[outputs[0]]
            kernel.bit = 1 << i
            for before in self._makers(kernel):
                kernel.above |= before.bit | before.above

    def run(self) -> None:
        groups = self.groups
        for a in groups.all():
            self._push(a, (b for b in self._near(a) if b.place > a.place))
        while self.heap:
            *_, a, b = heapq.heappop(self.heap)
            current = all(groups.kernels.get(k.outputs[0]) is k for k in (a, b))
            if current and not self._makes_cycle(a, b):
                joined = self.both(a, b)
                if joined.cost < a.cost + b.cost:
                    self.join(joined, a, b)
                    self._push(joined, self._near(joined))

    def _push(self, a: Kernel, others: Iterable[Kernel]) -> None:
        for b in others:
            if self._is_small(a, b) and self.is_legal(a, b):
                size = len(a.outputs) + len(b.outputs)
                first, second = sorted((a.place, b.place))
                entry = (-self._shared(a, b), size, first, second, next(self.tick), a, b)
                heapq.heappush(self.heap, entry)

    def _shared(self, a: Kernel, b: Kernel) -> int:
        """Bytes that both touch."""
        shared = {*a.reads, *a.outputs} & {*b.reads, *b.outputs}
        return sum(n.type.size * n.type.dtype.bytes for n in shared)

    def _is_small(self, a: Kernel, b: Kernel) -> bool:
        """Whether both together have no more code and operands than a kernel should."""
        operands = {*a.reads, *b.reads, *a.outputs, *b.outputs}
        return self.groups.is_short(a, b) and len(operands) <= self.groups.target.operands

    def _near(self, kernel: Kernel) -> list[Kernel]:
        """Kernels that read what it reads or makes, or make what it reads."""
        if not is_joinable(kernel):
            return []
        found: dict[Kernel, None] = dict.fromkeys(self._makers(kernel))
        for node in sorted((*kernel.reads, *kernel.outputs), key=self.groups.order.__getitem__):
            readers = self.groups.readers(node)
            at = bisect_left(readers, kernel.place, key=place)
            found |= dict.fromkeys(readers[max(at - NEAREST, 0) : at + NEAREST + 1])
        near = [k for k in found if k is not kernel and is_joinable(k)]
        return sorted(near, key=place)

    def _makers(self, kernel: Kernel) -> list[Kernel]:
        kernels = self.groups.kernels
        return [kernels[n] for n in kernel.reads if n in kernels]

    def is_legal(self, a: Kernel, b: Kernel) -> bool:
        return root_shape((*a.outputs, *b.outputs)) is not None and not self._makes_cycle(a, b)

    def _makes_cycle(self, a: Kernel, b: Kernel) -> bool:
        """Whether one needs the other through a third kernel."""
        return any(
            third is not y and y.is_before(third)
            for x, y in ((a, b), (b, a))
            for third in self._makers(x)
        )

    def both(self, a: Kernel, b: Kernel) -> Kernel:
        """The kernel of both, which stores what another reads, or what has to be stored."""
        own = sorted((*a.outputs, *b.outputs), key=self.groups.order.__getitem__)
        outputs = tuple(n for n in own if self._is_stored(n, a, b))
        joined = self.groups.kernel(outputs, own)
        joined.bit = a.bit | b.bit
        joined.above = (a.above | b.above) & ~joined.bit
        return joined

    def _is_stored(self, node: Node, a: Kernel, b: Kernel) -> bool:
        readers = self.groups.readers(node)
        return node in self.groups.forced or any(k is not a and k is not b for k in readers)

    def join(self, joined: Kernel, a: Kernel, b: Kernel) -> None:
        """Put the kernel of both in their place; all below it need now what either needed."""
        for node in (*a.outputs, *b.outputs):
            self.groups.remove(node)
        self.groups.put(joined)
        below = [joined]
        while below:
            made = below.pop().outputs
            for reader in {k: None for n in made for k in self.groups.readers(n)}:
                above = reader.above | joined.above
                if above != reader.above:
                    reader.above = above
                    below.append(reader)
