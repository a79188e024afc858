"""Fusion: which tensors get a buffer, and which of them share a kernel.

groups = partition(graph, price, fuse="greedy")     # price(nest) -> microseconds
Each tensor starts stored in a kernel of its own; the change that saves most is made first, and
none is made that the price does not favour: inlining a tensor into every kernel that reads it,
or joining two kernels over one iteration space. After bullet's greedy fusion, with prices.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

from weft.core.graph import Graph
from weft.core.node import Node
from weft.scalar.nest import Block, Buffer
from weft.tensor.lower import lower_group, root_shape
from weft.tensor.ops import (
    Extern,
    Gather,
    Index,
    Input,
    Map,
    Part,
    Reduce,
    Scalar,
    Scan,
    is_expansion,
    sources,
)

Group = tuple[Node, ...]
Price = Callable[[Block], float]
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
    """Tensors that must have a buffer: outputs, library calls, scans and what calls read."""
    found = {n for n in graph.outputs if not isinstance(n.op, Input)}
    for node in graph.nodes():
        if isinstance(node.op, Extern):
            found.update(a for a in node.args if not isinstance(a.op, Input))
        if isinstance(node.op, Extern | Part | Scan):
            found.add(node)
    return found


@dataclass(eq=False)
class _Kernel:
    """One group, with the stored tensors its nest reads and its price."""

    outputs: Group
    reads: frozenset[Node] = frozenset()
    inside: frozenset[Node] = frozenset()
    cost: float = 0.0


@dataclass(eq=False)
class _Partition:
    graph: Graph
    price: Price
    stored: set[Node] = field(default_factory=set)
    kernels: dict[Node, _Kernel] = field(default_factory=dict)  # by each of its outputs
    prices: dict[tuple[Group, frozenset[Node]], float] = field(default_factory=dict)

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
            if not isinstance(node.op, Part):
                parts = [u for u in self.users[node] if isinstance(u.op, Part)]
                self._put(self._kernel((node, *parts)))

    def _starts_stored(self, node: Node, fuse: Fuse) -> bool:
        if not isinstance(node.op, Map | Reduce | Gather) or not node.type.rank:
            return False
        if self._is_contraction(node) or self._is_generated(node):
            return False
        users = self.users[node]
        direct = len(users) == 1 and isinstance(users[0].op, Map | Reduce)
        return fuse == "none" or isinstance(node.op, Reduce) or not direct

    def _is_contraction(self, node: Node) -> bool:
        """Products that are folded at once."""
        return is_expansion(node) and all(isinstance(u.op, Reduce) for u in self.users[node])

    def _is_generated(self, node: Node) -> bool:
        """Computed from coordinates and scalars alone: no memory would be saved."""
        return isinstance(node.op, Map) and all(
            isinstance(s.op, Index | Scalar) for s in sources(node)
        )

    # ---- kernels

    def _kernel(self, outputs: Group, stored: set[Node] | None = None) -> _Kernel:
        """The kernel of these outputs when `stored` tensors have buffers."""
        stored = self.stored if stored is None else stored
        if isinstance(outputs[0].op, Extern):
            return _Kernel(outputs, frozenset(outputs[0].args), frozenset(outputs))
        reads: set[Node] = set()
        inside: set[Node] = set()
        stack = list(outputs)
        while stack:
            node = stack.pop()
            if node in inside:
                continue
            inside.add(node)
            for a in node.args:
                (reads.add if a in stored or a in self.inputs else stack.append)(a)
        boundary = frozenset(reads - set(outputs))
        return _Kernel(outputs, boundary, frozenset(inside), self._price(outputs, boundary))

    def _price(self, outputs: Group, reads: frozenset[Node]) -> float:
        key = (outputs, reads)
        if key not in self.prices:
            if len(outputs) > 1 and root_shape(outputs) is None:
                return NEVER
            buffers = {n: Buffer(f"t{self.order[n]}", n.type) for n in (*reads, *outputs)}
            self.prices[key] = self.price(lower_group(outputs, buffers, buffers))
        return self.prices[key]

    def _put(self, kernel: _Kernel) -> None:
        for node in kernel.outputs:
            self.kernels[node] = kernel

    def all(self) -> list[_Kernel]:
        return list(dict.fromkeys(self.kernels.values()))

    def readers(self, node: Node) -> list[_Kernel]:
        return [k for k in self.all() if node in k.reads]

    # ---- inlining

    def inline_greedily(self) -> None:
        """Take the inlining that saves most, until none saves anything."""
        heap: list[tuple[float, int, int, Node, tuple[_Kernel, ...]]] = []

        tick = itertools.count()

        def push(node: Node) -> None:
            if node in self.stored and node not in self.forced:
                readers = (self.kernels[node], *self.readers(node))  # what the saving was priced for
                saved = self._saved_by_inlining(node, readers[1:])
                if saved > 0:
                    heapq.heappush(heap, (-saved, self.order[node], next(tick), node, readers))

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
        own = self.kernels[node]
        before, after = own.cost, 0.0
        stored = self.stored - {node}
        for kernel in readers:
            if isinstance(kernel.outputs[0].op, Extern):
                return -NEVER
            before += kernel.cost
            after += self._kernel(kernel.outputs, stored).cost
        return before - after

    def _inline(self, node: Node, readers: Iterable[_Kernel]) -> set[Node]:
        """Do it; the stored tensors whose own inlining has a new price."""
        self.stored.discard(node)
        own = self.kernels.pop(node)
        touched: set[Node] = set(own.reads)
        for kernel in readers:
            changed = self._kernel(kernel.outputs)
            self._put(changed)
            touched |= changed.reads | set(changed.outputs)
        return touched & self.stored

    # ---- joining

    def join_greedily(self) -> None:
        """Join kernels over one iteration space that share what they read, best pair first."""
        while True:
            best, pair = 0.0, None
            kernels = [k for k in self.all() if self._joinable(k)]
            for i, a in enumerate(kernels):
                for b in kernels[i + 1 :]:
                    saved = self._saved_by_joining(a, b)
                    if saved > best:
                        best, pair = saved, (a, b)
            if pair is None:
                return
            self._join(*pair)

    @staticmethod
    def _joinable(kernel: _Kernel) -> bool:
        return not isinstance(kernel.outputs[0].op, Extern | Scan | Part)

    def _saved_by_joining(self, a: _Kernel, b: _Kernel) -> float:
        shared = (a.reads & b.reads) | (a.reads & set(b.outputs)) | (b.reads & set(a.outputs))
        if not shared or root_shape((*a.outputs, *b.outputs)) is None:
            return 0.0
        key = self._both(a, b)
        if self._depends(a, b) or self._depends(b, a):
            return 0.0
        return a.cost + b.cost - self._kernel(key, self.stored - set(key)).cost

    def _both(self, a: _Kernel, b: _Kernel) -> Group:
        return tuple(sorted((*a.outputs, *b.outputs), key=self.order.__getitem__))

    def _depends(self, a: _Kernel, b: _Kernel) -> bool:
        """Whether a needs b through a third kernel, so that joining them would make a cycle."""
        stack = [n for n in a.reads if n in self.kernels and self.kernels[n] is not b]
        seen: set[Node] = set()
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            kernel = self.kernels[node]
            if kernel is b:
                return True
            stack.extend(n for n in kernel.reads if n in self.kernels)
        return False

    def _join(self, a: _Kernel, b: _Kernel) -> None:
        outputs = self._both(a, b)
        self._put(self._kernel(outputs, self.stored - set(outputs)))

    def join_everything(self) -> None:
        """One kernel for all outputs over the same space, wherever that is legal."""
        merged = True
        while merged:
            merged = False
            kernels = [k for k in self.all() if self._joinable(k)]
            for i, a in enumerate(kernels):
                for b in kernels[i + 1 :]:
                    same = root_shape((*a.outputs, *b.outputs)) is not None
                    if same and not merged and not self._depends(a, b) and not self._depends(b, a):
                        self._join(a, b)
                        merged = True

    # ---- the result

    def ordered(self) -> list[Group]:
        """Kernels such that each comes after those it reads."""
        done: list[Group] = []
        placed: set[_Kernel] = set()
        for kernel in sorted(self.all(), key=lambda k: self.order[k.outputs[0]]):
            stack = [kernel]
            while stack:
                top = stack[-1]
                before = {self.kernels[n] for n in top.reads if n in self.kernels} - placed - {top}
                if before:
                    stack.extend(sorted(before, key=lambda k: self.order[k.outputs[0]]))
                    continue
                stack.pop()
                if top not in placed:
                    placed.add(top)
                    done.append(top.outputs)
        return done
