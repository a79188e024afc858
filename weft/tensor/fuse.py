"""Fusion: which tensors get a buffer, and which of them share a kernel.

groups = partition(graph, price, fuse="greedy")     # price(nest) -> microseconds
Each tensor starts stored in a kernel of its own; the change that saves most is made first, and
none is made that the price does not favour: inlining a tensor into every kernel that reads it,
or joining two kernels over one iteration space. After bullet's greedy fusion, with prices.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Literal

from weft.core.graph import Graph
from weft.core.node import Node, bottom_up
from weft.scalar.nest import Block, Buffer
from weft.tensor import ops
from weft.tensor.lower import lower_group, root_shape

Group = tuple[Node, ...]
Price = Callable[[Block], float]
Structure = tuple[tuple[int, ...], ...]  # of a kernel: ops, and the types of what it reads
Fuse = Literal["none", "greedy", "all"]
NEVER = float("inf")


def partition(graph: Graph, price: Price, fuse: Fuse = "greedy") -> list[Group]:
    """Groups of stored tensors, each one kernel (or one library call), in order of data flow."""
    state = _Partition(graph, price)
    state.store_initially(fuse)
    if fuse == "greedy":
        state.inline_greedily()
        state.join_greedily()
    elif fuse == "all":
        state.join_everything()
    return state.ordered()


def forced(graph: Graph) -> set[Node]:
    """Tensors that must have a buffer: outputs, calls, scans, scatters and what calls read."""
    found = {n for n in graph.outputs if not isinstance(n.op, ops.Input)}
    for node in graph.nodes():
        if isinstance(node.op, ops.Extern):
            found.update(a for a in node.args if not isinstance(a.op, ops.Input))
        if isinstance(node.op, ops.Extern | ops.Part | ops.Scan | ops.Scatter):
            found.add(node)
    return found


@dataclass(eq=False)
class _Kernel:
    """One group, with the stored tensors its nest reads, its price, and its place in the order."""

    outputs: Group
    reads: frozenset[Node] = frozenset()
    cost: float = 0.0
    bit: int = 0  # its own bit in the sets of kernels
    above: int = 0  # the kernels it needs, directly or not


@dataclass(eq=False)
class _Partition:
    graph: Graph
    price: Price
    stored: set[Node] = field(default_factory=set)
    kernels: dict[Node, _Kernel] = field(default_factory=dict)  # by each of its outputs
    reading: dict[Node, dict[_Kernel, None]] = field(default_factory=dict)  # by what they read
    prices: dict[Structure, float] = field(default_factory=dict)
    numbers: dict[Hashable, int] = field(default_factory=dict)  # of ops and types
    merged: dict[tuple[_Kernel, _Kernel], float] = field(default_factory=dict)  # costs

    def __post_init__(self) -> None:
        self.forced = forced(self.graph)
        self.users = self.graph.users()
        self.order = {n: i for i, n in enumerate(self.graph.nodes())}
        self.inputs = set(self.graph.inputs)

    # ---- what stands stored at first

    def store_initially(self, fuse: Fuse) -> None:
        for node in self.order:
            if node in self.forced or (fuse != "all" and self._starts_stored(node, fuse)):
                self.stored.add(node)
        for node in sorted(self.stored, key=self.order.__getitem__):
            if not isinstance(node.op, ops.Part):
                parts = [u for u in self.users[node] if isinstance(u.op, ops.Part)]
                self._put(self._kernel((node, *parts)))

    def _starts_stored(self, node: Node, fuse: Fuse) -> bool:
        if not isinstance(node.op, ops.Map | ops.Reduce | ops.Gather) or not node.type.rank:
            return False
        if self._is_contraction(node) or self._is_generated(node):
            return False
        users = self.users[node]
        direct = len(users) == 1 and isinstance(users[0].op, ops.Map | ops.Reduce)
        return fuse == "none" or isinstance(node.op, ops.Reduce) or not direct

    def _is_contraction(self, node: Node) -> bool:
        """Products that are folded at once."""
        users = self.users[node]
        return ops.is_expansion(node) and all(isinstance(u.op, ops.Reduce) for u in users)

    def _is_generated(self, node: Node) -> bool:
        """Computed from coordinates and scalars alone: no memory would be saved."""
        return isinstance(node.op, ops.Map) and all(
            isinstance(s.op, ops.Index | ops.Scalar) for s in ops.sources(node)
        )

    # ---- kernels

    def _kernel(self, outputs: Group, without: Iterable[Node] = ()) -> _Kernel:
        """The kernel of these outputs when the stored tensors, `without` some, have buffers."""
        if isinstance(outputs[0].op, ops.Extern):
            return _Kernel(outputs, frozenset(outputs[0].args))
        own = {*outputs, *without}
        reads: dict[Node, None] = {}
        number: dict[Node, int] = {}
        structure: list[tuple[int, ...]] = []

        def is_read(node: Node) -> bool:
            return node not in own and (node in self.stored or node in self.inputs)

        def add(node: Node) -> int:
            if is_read(node):
                reads[node] = None
                structure.append((self._number(node.type),))
            else:
                structure.append((self._number(node.op), *(number[a] for a in node.args)))
            return len(structure) - 1

        for output in outputs:
            bottom_up(output, number, add, lambda n: () if is_read(n) else n.args)
        key = (*structure, tuple(number[o] for o in outputs))
        if key not in self.prices:
            self.prices[key] = self._price(outputs, reads)
        return _Kernel(outputs, frozenset(reads) - set(outputs), self.prices[key])

    def _number(self, fact: Hashable) -> int:
        return self.numbers.setdefault(fact, len(self.numbers))

    def _price(self, outputs: Group, reads: Iterable[Node]) -> float:
        if len(outputs) > 1 and root_shape(outputs) is None:
            return NEVER
        buffers = {n: Buffer(f"t{self.order[n]}", n.type) for n in (*reads, *outputs)}
        return self.price(lower_group(outputs, buffers, buffers))

    def _put(self, kernel: _Kernel) -> None:
        """Take the kernel in, in the place of those that had its outputs."""
        for node in kernel.outputs:
            self._drop(self.kernels.get(node))
            self.kernels[node] = kernel
        for node in kernel.reads:
            self.reading.setdefault(node, {})[kernel] = None

    def _drop(self, kernel: _Kernel | None) -> None:
        if kernel is not None:
            for node in kernel.reads:
                self.reading[node].pop(kernel, None)

    def all(self) -> list[_Kernel]:
        return list(dict.fromkeys(self.kernels.values()))

    def readers(self, node: Node) -> list[_Kernel]:
        return list(self.reading.get(node, ()))

    # ---- inlining

    def inline_greedily(self) -> None:
        """Take the inlining that saves most, until none saves anything."""
        heap: list[tuple[float, int, int, Node, tuple[_Kernel, ...]]] = []

        tick = itertools.count()

        def push(node: Node) -> None:
            if node in self.stored and node not in self.forced:
                own, readers = self.kernels[node], self.readers(node)
                saved = self._saved_by_inlining(node, readers)
                if saved > 0:
                    priced = (own, *readers)
                    heapq.heappush(heap, (-saved, self.order[node], next(tick), node, priced))

        for node in self.stored:
            push(node)
        while heap:
            _, _, _, node, readers = heapq.heappop(heap)
            if node not in self.stored:
                continue
            if (self.kernels[node], *self.readers(node)) != readers:
                push(node)
                continue
            for touched in self._inline(node, readers[1:]):
                push(touched)

    def _saved_by_inlining(self, node: Node, readers: Iterable[_Kernel]) -> float:
        own, after = self.kernels[node], 0.0
        before = own.cost
        for kernel in readers:
            if isinstance(kernel.outputs[0].op, ops.Extern):
                return -NEVER
            pair = (own, kernel)  # all that the kernel of both depends on
            if pair not in self.merged:
                self.merged[pair] = self._kernel(kernel.outputs, (node,)).cost
            before += kernel.cost
            after += self.merged[pair]
        return before - after

    def _inline(self, node: Node, readers: Iterable[_Kernel]) -> set[Node]:
        """Do it; the stored tensors whose own inlining has a new price."""
        self.stored.discard(node)
        own = self.kernels.pop(node)
        self._drop(own)
        touched: set[Node] = set(own.reads)
        for kernel in readers:
            changed = self._kernel(kernel.outputs)
            self._put(changed)
            touched |= changed.reads | set(changed.outputs)
        return touched & self.stored

    # ---- joining

    def join_greedily(self) -> None:
        """Join kernels over one iteration space that share what they read, best pair first."""
        heap: list[tuple[float, int, int, int, _Kernel, _Kernel]] = []
        tick = itertools.count()

        def push(a: _Kernel, others: Iterable[_Kernel]) -> None:
            for b in others:
                saved = self._saved_by_joining(a, b)
                if saved > 0:
                    first, second = sorted((self.order[a.outputs[0]], self.order[b.outputs[0]]))
                    heapq.heappush(heap, (-saved, first, second, next(tick), a, b))

        self._order_kernels()
        place = {k: i for i, k in enumerate(self.all())}
        for a in place:
            push(a, [b for b in self._near(a) if place[b] > place[a]])
        while heap:
            *_, a, b = heapq.heappop(heap)
            current = (self.kernels[a.outputs[0]], self.kernels[b.outputs[0]])
            if current == (a, b) and not self._makes_cycle(a, b):
                joined = self._join(a, b)
                push(joined, self._near(joined))

    @staticmethod
    def _joinable(kernel: _Kernel) -> bool:
        alone = ops.Extern | ops.Scan | ops.Scatter | ops.Part
        return not isinstance(kernel.outputs[0].op, alone)

    def _near(self, kernel: _Kernel) -> list[_Kernel]:
        """Kernels that read what it reads or makes, or make what it reads."""
        if not self._joinable(kernel):
            return []
        found = {k: None for n in (*kernel.reads, *kernel.outputs) for k in self.readers(n)}
        found |= {self.kernels[n]: None for n in kernel.reads if n in self.kernels}
        near = [k for k in found if k is not kernel and self._joinable(k)]
        return sorted(near, key=lambda k: self.order[k.outputs[0]])

    def _saved_by_joining(self, a: _Kernel, b: _Kernel) -> float:
        if not self._is_legal(a, b):
            return 0.0
        outputs = self._both(a, b)
        return a.cost + b.cost - self._kernel(outputs, outputs).cost

    def _is_legal(self, a: _Kernel, b: _Kernel) -> bool:
        return root_shape(self._both(a, b)) is not None and not self._makes_cycle(a, b)

    def _both(self, a: _Kernel, b: _Kernel) -> Group:
        return tuple(sorted((*a.outputs, *b.outputs), key=self.order.__getitem__))

    def _order_kernels(self) -> None:
        """Work out, for every kernel, which others it needs."""
        for i, outputs in enumerate(self.ordered()):
            kernel = self.kernels[outputs[0]]
            kernel.bit, kernel.above = 1 << i, self._above(kernel.reads)

    def _above(self, reads: Iterable[Node]) -> int:
        above = 0
        for before in (self.kernels[n] for n in reads if n in self.kernels):
            above |= before.bit | before.above
        return above

    def _makes_cycle(self, a: _Kernel, b: _Kernel) -> bool:
        """Whether one needs the other through a third kernel."""
        return any(
            self.kernels[n] is not y and self.kernels[n].above & y.bit
            for x, y in ((a, b), (b, a))
            for n in x.reads
            if n in self.kernels
        )

    def _join(self, a: _Kernel, b: _Kernel) -> _Kernel:
        outputs = self._both(a, b)
        joined = self._kernel(outputs, outputs)
        joined.bit = a.bit | b.bit
        joined.above = (a.above | b.above) & ~joined.bit
        self._put(joined)
        for kernel in self.all():
            if kernel.above & joined.bit:
                kernel.above |= joined.bit | joined.above
        return joined

    def join_everything(self) -> None:
        """One kernel for all outputs over the same space, wherever that is legal."""
        self._order_kernels()
        while True:
            pairs = itertools.combinations(filter(self._joinable, self.all()), 2)
            legal = next((pair for pair in pairs if self._is_legal(*pair)), None)
            if legal is None:
                return
            self._join(*legal)

    # ---- the result

    def ordered(self) -> list[Group]:
        """Kernels such that each comes after those it reads."""

        def place(kernel: _Kernel) -> int:
            return self.order[kernel.outputs[0]]

        def before(kernel: _Kernel) -> list[_Kernel]:
            read = {self.kernels[n] for n in kernel.reads if n in self.kernels}
            return sorted(read - {kernel}, key=place, reverse=True)

        done: dict[_Kernel, Group] = {}
        for kernel in sorted(self.all(), key=place):
            bottom_up(kernel, done, lambda k: k.outputs, before)
        return list(done.values())
