"""What a fusion costs where collectives are on their way: work that would then have to wait.

overlap = Overlap(graph, target)
overlap.lost([a, b])        # us of what could run while a collective of the other does
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_, or_
from typing import Any

from weft.core.node import Graph, Node
from weft.library.collectives import WAIT
from weft.scalar.sizes import hint
from weft.targets.machine import Machine
from weft.tensor.ops import Extern


class Overlap:
    """The collectives that each tensor comes after or before, as bits, and how long each takes."""

    def __init__(self, graph: Graph, target: Machine) -> None:
        self.times: list[float] = []  # by bit: us
        self.behind: dict[Node, int] = {}  # whose results it needs
        self.ahead: dict[Node, int] = {}  # which need it
        nodes = [*graph.nodes()]
        waits = [n for n in nodes if isinstance(n.op, Extern) and n.op.target == WAIT]
        if not waits:
            return
        self.times = [target.transfer_us(hint(n.type.size) * n.type.dtype.bytes) for n in waits]
        bits = {n: 1 << i for i, n in enumerate(waits)}
        for node in nodes:
            found = reduce(or_, (self.behind[a] for a in node.args), 0)
            self.behind[node] = found | bits.get(node, 0)
        for node in reversed(nodes):
            ahead = self.ahead.setdefault(node, 0) | bits.get(node, 0)
            for a in node.args:
                self.ahead[a] = self.ahead.get(a, 0) | ahead

    def lost(self, kernels: Sequence[Any]) -> float:
        """The time of kernels that would wait for collectives, or have them wait, for the others.

        Those come after, or before, fewer collectives than all of these together.
        """
        if not self.times:
            return 0.0
        sides = [[self._all(side, k) for k in kernels] for side in (self.behind, self.ahead)]
        every = [reduce(or_, own) for own in sides]
        found = 0.0
        for k, behind, ahead in zip(kernels, *sides, strict=True):
            idle = self._time(every[0] & ~behind) + self._time(every[1] & ~ahead)
            found += min(k.cost, idle)
        return found

    def hidden(self, kernel: Any, readers: Sequence[Any]) -> float:
        """The time of a kernel of which all readers come after waits that it does not need."""
        if not self.times or not readers:
            return 0.0
        every = reduce(and_, (self._all(self.behind, k) for k in readers))
        return min(kernel.cost, self._time(every & ~self._all(self.behind, kernel)))

    def _all(self, side: Mapping[Node, int], kernel: Any) -> int:
        return reduce(or_, (side[n] for n in kernel.outputs))

    def _time(self, bits: int) -> float:
        return sum(us for bit, us in enumerate(self.times) if bits >> bit & 1)
