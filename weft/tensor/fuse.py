"""Fusion: which tensors get a buffer, and which of them share a kernel.

groups = partition(graph, price, target)        # price(nest) -> microseconds
Each tensor starts stored in a kernel of its own; the change that saves most is made first, and
none is made that the price does not favour: inlining a tensor into every kernel that reads it,
or joining two kernels over one iteration space (tensor/join.py). After bullet's greedy fusion,
with prices. No kernel gets longer than the target's caches of instructions: work grows as the
number of tensors does.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Sequence
from typing import Literal

from weft.core.graph import Graph
from weft.core.node import Node
from weft.targets.machine import Machine
from weft.tensor import ops
from weft.tensor.groups import NEVER, Group, Groups, Kernel, Price, weight
from weft.tensor.join import is_joinable, join_everything, join_greedily
from weft.tensor.lower import root_shape

Fuse = Literal["none", "greedy", "all"]
SMALL = 64  # vector instructions: of equal savings, those in kernels this small come first


def partition(graph: Graph, price: Price, target: Machine, fuse: Fuse = "greedy") -> list[Group]:
    """Groups of stored tensors, each one kernel (or one library call), in order of data flow."""
    groups = Groups(graph, price, target)
    store_initially(groups, fuse)
    if fuse == "greedy":
        _Inlining(groups).run()
        join_greedily(groups)
    elif fuse == "all":
        join_everything(groups)
    return groups.ordered()


# ---- what stands stored at first


def store_initially(groups: Groups, fuse: Fuse) -> None:
    """Give every tensor a kernel of its own, except what is no more than a step to one reader."""
    users = groups.graph.users()
    inlined: dict[Node, float] = {}  # weight of what a node adds to the kernel of a reader
    for node in groups.order:
        inlined[node] = weight(node) + sum(inlined[a] for a in dict.fromkeys(node.args))
        long = inlined[node] > groups.target.body / 2
        if node in groups.forced or (
            fuse != "all" and _starts_stored(node, users[node], fuse, long)
        ):
            groups.stored.add(node)
        if node in groups.stored or node in groups.inputs:
            inlined[node] = 1.0
    for node in sorted(groups.stored, key=groups.order.__getitem__):
        if not isinstance(node.op, ops.Part):
            parts = [u for u in users[node] if isinstance(u.op, ops.Part)]
            groups.put(groups.kernel((node, *parts)))


def _starts_stored(node: Node, users: list[Node], fuse: Fuse, long: bool) -> bool:
    """`long`: whether inlining it would make the kernel of its reader long."""
    if not isinstance(node.op, ops.Map | ops.Reduce | ops.Gather):
        return False
    if _is_contraction(node, users) or _is_generated(node):
        return False
    if not node.type.rank:
        return long
    direct = len(users) == 1 and isinstance(users[0].op, ops.Map | ops.Reduce)
    return long or fuse == "none" or isinstance(node.op, ops.Reduce) or not direct


def _is_contraction(node: Node, users: list[Node]) -> bool:
    """Products that are folded at once."""
    return ops.is_expansion(node) and all(isinstance(u.op, ops.Reduce) for u in users)


def _is_generated(node: Node) -> bool:
    """Computed from coordinates and scalars alone: no memory would be saved."""
    return isinstance(node.op, ops.Map) and all(
        isinstance(s.op, ops.Index | ops.Scalar) for s in ops.sources(node)
    )


# ---- inlining


class _Inlining:
    """Takes the inlining that saves most, until none saves anything."""

    def __init__(self, groups: Groups) -> None:
        self.groups = groups
        self.costs: dict[tuple[Kernel, Kernel], float] = {}  # of a kernel that took another in
        self.heap: list[tuple[float, int, int, int, Node, tuple[Kernel, ...]]] = []
        self.tick = itertools.count()

    def run(self) -> None:
        groups = self.groups
        for node in sorted(groups.stored, key=groups.order.__getitem__):
            self._push(node)
        while self.heap:
            *_, node, priced = heapq.heappop(self.heap)
            if node not in groups.stored:
                continue
            if (groups.kernels[node], *groups.readers(node)) != priced:
                self._push(node)
                continue
            for touched in self._inline(node, priced[1:]):
                self._push(touched)

    def _push(self, node: Node) -> None:
        groups = self.groups
        if node in groups.stored and node not in groups.forced:
            own, readers = groups.kernels[node], groups.readers(node)
            saved = self._saved(own, readers)
            if saved > 0 and not self._is_better_joined(own, readers, saved):
                size = int(own.weight + sum(k.weight for k in readers)) // SMALL
                entry = (-saved, size, groups.order[node], next(self.tick), node, (own, *readers))
                heapq.heappush(self.heap, entry)

    def _saved(self, own: Kernel, readers: Sequence[Kernel]) -> float:
        """Microseconds. Short readers first: their loss may be more than what the rest can save.

        A reader saves no more than the kernel cost, which wrote what the reader reads.
        """
        if any(isinstance(kernel.outputs[0].op, ops.Extern) for kernel in readers):
            return -NEVER
        saved = own.cost + sum(kernel.cost for kernel in readers)
        rest = sum(kernel.cost - own.cost for kernel in readers)  # the least of those not asked yet
        for kernel in sorted(readers, key=lambda k: k.weight):
            if saved <= rest:
                return -NEVER
            pair = (own, kernel)  # all that the kernel of both depends on
            if pair not in self.costs:
                self.costs[pair] = self.groups.kernel(kernel.outputs, own.outputs).cost
            saved -= self.costs[pair]
            rest -= kernel.cost - own.cost
        return saved

    def _is_better_joined(self, own: Kernel, readers: Sequence[Kernel], saved: float) -> bool:
        """Whether its first reader would better compute and store it than all do so themselves.

        No third kernel stands between a kernel and the first of its readers. One that folds what
        it reads may yet become an online fold with the next, which a stored tensor would prevent.
        """
        if len(readers) < 2 or not (is_joinable(own) and is_joinable(readers[0])):
            return False
        if own.outputs[0].type.shape != readers[0].outputs[0].type.shape:
            return False
        outputs = (*own.outputs, *readers[0].outputs)
        if root_shape(outputs) is None:
            return False
        joined = self.groups.kernel(outputs, outputs)
        return own.cost + readers[0].cost - joined.cost > saved

    def _inline(self, node: Node, readers: Iterable[Kernel]) -> list[Node]:
        """Do it; the stored tensors whose own inlining has a new price."""
        groups = self.groups
        own = groups.kernels[node]
        groups.remove(node)
        touched: dict[Node, None] = dict.fromkeys(own.reads)
        for kernel in readers:
            changed = groups.kernel(kernel.outputs)
            groups.put(changed)
            touched |= dict.fromkeys((*changed.reads, *changed.outputs))
        return [n for n in touched if n in groups.stored]
