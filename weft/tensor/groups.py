"""Groups of tensors that share a kernel, with their prices: the state that fusion changes.

groups = Groups(graph, price, target)
kernel = groups.kernel((y,))            # the kernel of y, with what it reads, its weight and cost
groups.put(kernel)                      # replaces the kernels that stored its outputs
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from operator import attrgetter

from weft.core.node import Graph, Node, bottom_up
from weft.scalar.choices import Choices
from weft.scalar.nest import Block, Buffer
from weft.scalar.sizes import hint
from weft.targets.machine import Machine
from weft.tensor import ops
from weft.tensor.alike import Prices
from weft.tensor.lower import Group, lower_group, root_shape
from weft.tensor.overlap import Overlap
from weft.tensor.recurrence import CALLS
from weft.tensor.sorts import Buffers

Price = Callable[[Block], float]
# Of a scatter, its buffers and the one that it makes: nests that take as long, if it may go so.
Segments = Callable[[Node, Buffers, Buffer], list[Block]]
NEVER = float("inf")


def forced_to_store(graph: Graph) -> set[Node]:
    """Tensors that need a buffer: outputs, scans, scatters, operands and results of calls.

    So do operands of sorts, whose nests have no place for the loops of a reduction, with one.
    """
    kinds, nodes = CALLS | ops.Part | ops.ALONE, [*graph.nodes()]
    read = (a for n in nodes if isinstance(n.op, CALLS) for a in n.args)
    found = (*graph.outputs, *read, *(n for n in nodes if isinstance(n.op, kinds)))
    stored = {n for n in found if not isinstance(n.op, ops.Input)}
    folded = set[Node]()  # with a reduction in its kernel
    for n in nodes:
        if isinstance(n.op, ops.Reduce) or any(a in folded and a not in stored for a in n.args):
            folded.add(n)
    return stored.union(
        a for n in nodes if isinstance(n.op, ops.Sort | ops.Select) for a in n.args if a in folded
    )


def far_bytes(graph: Graph, target: Machine) -> dict[Node, int]:
    """The bytes of inputs and outputs that no cache holds: all of a program that has more.

    A price knows its kernel alone, and takes what a cache could hold to be there: a step of an
    optimiser would be cut into kernels that each read little. Not of what is read in parts.
    """
    ends = dict.fromkeys((*graph.inputs, *graph.outputs))
    found = {n: hint(n.type.size) * n.type.dtype.bytes for n in ends}
    if sum(found.values()) > target.l3:
        users = graph.users()
        found = {n: k for n, k in found.items() if not any(_takes_part(u, n) for u in users[n])}
    return found if sum(found.values()) > target.l3 else {}


def _takes_part(user: Node, n: Node) -> bool:
    """Whether a tensor is read at some places alone, as a table is, or a slice."""
    table = isinstance(user.op, ops.Gather) and user.args[0] is n
    return table or (isinstance(user.op, ops.View) and hint(user.type.size) < hint(n.type.size))


def weight(node: Node) -> float:
    """Vector instructions of a node's own op, for one element."""
    if isinstance(node.op, ops.Map):
        return node.op.function.cost
    return node.op.monoid.cost if isinstance(node.op, ops.Reduce | ops.Scan) else 0.0


@dataclass(eq=False)
class Kernel:
    """One group of outputs, with the stored tensors that its nest reads and its price.

    `bit` identifies the kernel: a bit of its own, or after a join the bits of all its parts.
    `above` has the bits of all kernels that this one depends on, directly or not.
    """

    outputs: Group
    place: int  # index of its first output in `graph.nodes()`
    reads: frozenset[Node] = frozenset()
    weight: float = 0.0  # vector instructions for one element
    cost: float = 0.0  # microseconds
    bit: int = 0
    above: int = 0


place = attrgetter("place")  # of a kernel


@dataclass(eq=False)
class Groups:
    graph: Graph
    price: Price
    target: Machine
    choices: Choices = field(default_factory=Choices)
    kept: Collection[Node] = ()  # tensors with a buffer, whatever else the price would have
    stored: set[Node] = field(default_factory=set)
    kernels: dict[Node, Kernel] = field(default_factory=dict)  # by each of its outputs
    # Kernels by a tensor that they read, in graph order.
    reading: dict[Node, list[Kernel]] = field(default_factory=dict)
    segments: Segments | None = None  # nests of a scatter by segments, if some go so
    # That were found, which several graphs may share.
    prices: Prices = field(default_factory=Prices)

    def __post_init__(self) -> None:
        self.order = {n: i for i, n in enumerate(self.graph.nodes())}
        self.inputs = set(self.graph.inputs)
        self.forced = forced_to_store(self.graph).union(self.kept)
        self.far = far_bytes(self.graph, self.target)
        self.overlap = Overlap(self.graph, self.target)

    def name(self, node: Node) -> str:
        """What a choice calls a tensor."""
        return self.graph.names.get(node) or f"t{self.order[node]}"

    def kernel(self, outputs: Group, without: Iterable[Node] = ()) -> Kernel:
        """The kernel that computes the outputs from stored tensors, with those `without` inlined.

        Kernels that are alike (`Prices.key`) are lowered and priced once. A kernel `without`
        tensors is a trial: its cost is infinite where it is too long.
        """
        start = self.order[outputs[0]]
        if isinstance(outputs[0].op, CALLS):
            return Kernel(outputs, start, frozenset(outputs[0].args))
        own = {*outputs, *without}
        nodes: dict[Node, bool] = {}  # whether it is read

        def is_read(node: Node) -> bool:
            return node not in own and (node in self.stored or node in self.inputs)

        for output in outputs:
            bottom_up(output, nodes, is_read, lambda n: () if is_read(n) else n.args)
        reads = [n for n, read in nodes.items() if read]
        heavy = sum(map(weight, nodes)) - sum(map(weight, reads)) + len(reads) + len(outputs)
        kernel = Kernel(outputs, start, frozenset(reads).difference(outputs), heavy)
        if without and not self.is_short(kernel):
            kernel.cost = NEVER
            return kernel
        key = self.prices.key(nodes, outputs)
        found = self.prices.get(key)
        found = self.prices[key] = self._price(outputs, reads) if found is None else found
        kernel.cost = max(found, self._far_us({*reads, *outputs}))
        return kernel

    def is_short(self, *kernels: Kernel) -> bool:
        """Whether one kernel of all these is no longer than `target.kernel_instructions`."""
        return sum(k.weight for k in kernels) <= self.target.kernel_instructions

    def _far_us(self, touched: Collection[Node]) -> float:
        """The least time of a kernel that moves these from or to memory."""
        far, target = sum(self.far.get(n, 0) for n in touched), self.target
        return far / (target.memory_bytes_per_ns * target.cores * 1e3)

    def _price(self, outputs: Group, reads: Iterable[Node]) -> float:
        first = outputs[0]
        if len(outputs) > 1 and root_shape(outputs) is None:
            return NEVER
        buffers = {n: Buffer(f"t{self.order[n]}", n.type) for n in (*reads, *outputs)}
        us = self.price(lower_group(outputs, buffers, buffers))
        if self.segments is not None and isinstance(first.op, ops.Scatter):
            ways = self.segments(first, buffers, buffers[first])
            us = min(us, sum(map(self.price, ways))) if ways else us
        return us

    def put(self, kernel: Kernel) -> None:
        """Add the kernel, in place of those that stored its outputs."""
        for node in kernel.outputs:
            self.remove(node)
            self.stored.add(node)
        for node in kernel.outputs:
            self.kernels[node] = kernel
        for node in kernel.reads:
            insort(self.reading.setdefault(node, []), kernel, key=place)

    def remove(self, node: Node) -> None:
        """Remove the kernel that stores the node, which then has no buffer."""
        self.stored.discard(node)
        kernel = self.kernels.pop(node, None)
        for read in () if kernel is None else kernel.reads:
            readers = self.reading[read]
            at = bisect_left(readers, kernel.place, key=place)  # type: ignore[union-attr]
            if at < len(readers) and readers[at] is kernel:
                readers.pop(at)

    def depend(self, a: Kernel, b: Kernel) -> bool:
        """Whether what one kernel makes is computed from what the other does."""
        first, last = sorted((a, b), key=place)
        found, left = set[Node](), [*last.outputs]
        while left:
            node = left.pop()
            if node in first.outputs:
                return True
            if node not in found and self.order[node] > first.place:
                found.add(node)
                left += node.args
        return False

    def readers(self, node: Node) -> list[Kernel]:
        """Kernels that read the tensor, in graph order."""
        return self.reading.get(node, [])

    def all(self) -> list[Kernel]:
        return list(dict.fromkeys(self.kernels.values()))

    def ordered(self) -> list[Group]:
        """The groups of all kernels, each after the kernels whose outputs it reads."""

        def before(kernel: Kernel) -> list[Kernel]:
            read = {self.kernels[n] for n in kernel.reads if n in self.kernels}
            return sorted(read - {kernel}, key=place, reverse=True)

        done: dict[Kernel, Group] = {}
        for kernel in sorted(self.all(), key=place):
            bottom_up(kernel, done, lambda k: k.outputs, before)
        return list(done.values())
