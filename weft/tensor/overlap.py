"""What a fusion costs where collectives are on their way: work that would then have to wait.

overlap = Overlap(graph, target)
overlap.lost([a, b])        # us of kernels that could have run before a wait of the other
"""

from collections.abc import Sequence
from functools import reduce
from operator import and_, or_
from typing import Any

from weft.core.node import Graph, Node
from weft.library.collectives import WAIT
from weft.scalar.sizes import hint
from weft.targets.machine import Machine
from weft.tensor.ops import Extern


class Overlap:
    """The waits that each tensor comes after, as bits, and how long each may take."""

    def __init__(self, graph: Graph, target: Machine) -> None:
        self.times: list[float] = []  # by bit: us
        self.behind: dict[Node, int] = {}
        nodes = [*graph.nodes()]
        if not any(map(_is_wait, nodes)):
            return
        for node in nodes:
            found = reduce(or_, (self.behind[a] for a in node.args), 0)
            if _is_wait(node):
                found |= 1 << len(self.times)
                size = hint(node.type.size) * node.type.dtype.bytes
                self.times.append(target.transfer_us(size))
            self.behind[node] = found

    def lost(self, kernels: Sequence[Any]) -> float:
        """The time of kernels that come after fewer waits than all of these together."""
        if not self.times:
            return 0.0
        own = [self._waits(k) for k in kernels]
        every = reduce(or_, own)
        both = zip(kernels, own, strict=True)
        return sum(min(k.cost, self._time(every & ~waits)) for k, waits in both)

    def hidden(self, kernel: Any, readers: Sequence[Any]) -> float:
        """The time of a kernel of which all readers come after waits that it does not need."""
        if not self.times or not readers:
            return 0.0
        every = reduce(and_, map(self._waits, readers))
        return min(kernel.cost, self._time(every & ~self._waits(kernel)))

    def _waits(self, kernel: Any) -> int:
        return reduce(or_, (self.behind[n] for n in kernel.outputs))

    def _time(self, waits: int) -> float:
        return sum(us for bit, us in enumerate(self.times) if waits >> bit & 1)


def _is_wait(node: Node) -> bool:
    return isinstance(node.op, Extern) and node.op.target == WAIT
