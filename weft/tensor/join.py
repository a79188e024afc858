"""Joins kernels over one iteration space that share tensors into one kernel.

Joining(groups).greedily()  # best pair first, wherever the joined kernel is cheaper
"""

import heapq
import itertools
from bisect import bisect_left
from collections.abc import Iterable

from weft.scalar.sizes import hint
from weft.tensor import ops
from weft.tensor.groups import NEVER, Groups, Kernel, place
from weft.tensor.lower import root_shape
from weft.tensor.recomputed import recomputes

NEAREST = 16  # readers of a tensor, before and after a kernel, that it is paired with


def join_everything(groups: Groups) -> None:
    """Join kernels over one iteration space wherever that is legal, whatever they cost."""
    joining = Joining(groups)
    while True:
        pairs = itertools.combinations(filter(is_joinable, groups.all()), 2)
        joined = ((joining.both(*pair), *pair) for pair in pairs if joining.is_legal(*pair))
        legal = next((parts for parts in joined if not recomputes(parts[0], groups)), None)
        if legal is None:
            return
        joining.join(*legal)


def is_joinable(kernel: Kernel) -> bool:
    """Whether other outputs may be computed in the kernel's loops."""
    return not isinstance(kernel.outputs[0].op, ops.Extern | ops.Scan | ops.Scatter | ops.Part)


class Joining:
    """Joins kernels of some groups."""

    def __init__(self, groups: Groups) -> None:
        """Find the kernels that each kernel depends on."""
        self.groups = groups
        self.heap: list[tuple[int, int, int, int, int, Kernel, Kernel]] = []
        self.declined: list[tuple[Kernel, Kernel]] = []
        self.tick = itertools.count()
        for i, outputs in enumerate(groups.ordered()):
            kernel = groups.kernels[outputs[0]]
            kernel.bit = 1 << i
            for before in self._makers(kernel):
                kernel.above |= before.bit | before.above

    def greedily(self) -> None:
        """Join pairs that share most bytes first, where the joined kernel is cheaper.

        Of pairs with equal bytes the one with fewer outputs comes first: many siblings join as in a
        tournament. A pair is lowered and priced when its turn comes. Each kernel is paired with the
        NEAREST readers of each tensor that it reads or writes: the number of pairs grows with that
        of kernels, not with its square.
        """
        groups = self.groups
        for a in groups.all():
            self._push(a, (b for b in self._near(a) if b.place > a.place))
        self._drain()
        declined, self.declined = self.declined, []
        for a, b in declined:
            self._joined(a, b, late=True)
        self._drain()

    def _drain(self) -> None:
        while self.heap:
            *_, a, b = heapq.heappop(self.heap)
            self._joined(a, b)

    def _joined(self, a: Kernel, b: Kernel, late: bool = False) -> None:
        """Join two current kernels, where that is cheaper; late, where it is wanted."""
        groups, name = self.groups, self._name(a, b)
        current = all(groups.kernels.get(k.outputs[0]) is k for k in (a, b))
        if not current or self._makes_cycle(a, b):
            return
        joined = self.both(a, b)
        cheaper = joined.cost < a.cost + b.cost and not recomputes(joined, groups)
        sound = late and joined.cost < NEVER and not recomputes(joined, groups)
        if (sound and groups.choices.wanted(name)) or (cheaper and groups.choices.settle(name)):
            self.join(joined, a, b)
            self._push(joined, self._near(joined))
        else:
            self.declined.append((a, b))

    def _name(self, a: Kernel, b: Kernel) -> str:
        pair = sorted((a, b), key=place)
        return ".".join(("join", *(self.groups.name(k.outputs[0]) for k in pair)))

    def _push(self, a: Kernel, others: Iterable[Kernel]) -> None:
        for b in others:
            if self._is_small(a, b) and self.is_legal(a, b):
                size = len(a.outputs) + len(b.outputs)
                first, second = sorted((a.place, b.place))
                entry = (-self._shared(a, b), size, first, second, next(self.tick), a, b)
                heapq.heappush(self.heap, entry)

    def _shared(self, a: Kernel, b: Kernel) -> int:
        """Bytes of the tensors that both read or write."""
        shared = {*a.reads, *a.outputs} & {*b.reads, *b.outputs}
        return sum(hint(n.type.size) * n.type.dtype.bytes for n in shared)

    def _is_small(self, a: Kernel, b: Kernel) -> bool:
        """Whether the joined kernel keeps the target's limits of code and operands."""
        operands = {*a.reads, *b.reads, *a.outputs, *b.outputs}
        return self.groups.is_short(a, b) and len(operands) <= self.groups.target.kernel_buffers

    def _near(self, kernel: Kernel) -> list[Kernel]:
        """Kernels that read a tensor it reads or writes, or write one it reads."""
        if not is_joinable(kernel):
            return []
        found: dict[Kernel, None] = dict.fromkeys(self._makers(kernel))
        for node in sorted((*kernel.reads, *kernel.outputs), key=self.groups.order.__getitem__):
            readers = self.groups.readers(node)
            at = bisect_left(readers, kernel.place, key=place)
            found |= dict.fromkeys(readers[max(at - NEAREST, 0) : at + NEAREST + 1])
        return sorted([k for k in found if k is not kernel and is_joinable(k)], key=place)

    def _makers(self, kernel: Kernel) -> list[Kernel]:
        kernels = self.groups.kernels
        return [kernels[n] for n in kernel.reads if n in kernels]

    def is_legal(self, a: Kernel, b: Kernel) -> bool:
        return root_shape((*a.outputs, *b.outputs)) is not None and not self._makes_cycle(a, b)

    def _makes_cycle(self, a: Kernel, b: Kernel) -> bool:
        """Whether one depends on the other through a third kernel."""
        both = ((third, y) for x, y in ((a, b), (b, a)) for third in self._makers(x))
        return any(third is not y and third.above & y.bit for third, y in both)

    def both(self, a: Kernel, b: Kernel) -> Kernel:
        """The joined kernel; it stores what another kernel reads and what must be stored."""
        own = sorted((*a.outputs, *b.outputs), key=self.groups.order.__getitem__)
        read = {n for n in own if any(k not in (a, b) for k in self.groups.readers(n))}
        outputs = tuple(n for n in own if n in read or n in self.groups.forced)
        joined = self.groups.kernel(outputs, own)
        joined.bit = a.bit | b.bit
        joined.above = (a.above | b.above) & ~joined.bit
        return joined

    def join(self, joined: Kernel, a: Kernel, b: Kernel) -> None:
        """Replace both by the joined kernel; kernels below it now depend on what either did."""
        for node in (*a.outputs, *b.outputs):
            self.groups.remove(node)
        self.groups.put(joined)
        below = [joined]
        while below:
            for reader in {k: None for n in below.pop().outputs for k in self.groups.readers(n)}:
                above = reader.above | joined.above
                if above != reader.above:
                    reader.above = above
                    below.append(reader)
