"""Fusion: decides which tensors get a buffer, and which of them share a kernel.

groups = partition(graph, price, target)        # price(nest) -> microseconds
Joining(groups).greedily()  # best pair first, wherever the joined kernel is cheaper
"""

import heapq
import itertools
from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import reduce
from itertools import islice
from operator import or_

from weft.core.node import Graph, Node
from weft.core.types import boolean
from weft.scalar.choices import Chooser
from weft.scalar.ops import CASTS
from weft.scalar.sizes import hint
from weft.targets.machine import Machine
from weft.tensor import ops
from weft.tensor.alike import Prices
from weft.tensor.groups import NEVER, Groups, Kernel, Price, Segments, place, weight
from weft.tensor.layouts import Contiguous
from weft.tensor.lower import Group, root_shape
from weft.tensor.recomputed import recomputes, store_recomputed
from weft.tensor.recurrence import CALLS

# --- joining --------------------------------------------------------------------------------------

NEAREST = 16  # readers of a tensor, before and after a kernel, that it is paired with


def is_joinable(kernel: Kernel) -> bool:
    """Whether other outputs may be computed in the kernel's loops."""
    return not isinstance(kernel.outputs[0].op, CALLS | ops.ALONE | ops.Part)


class Joining:
    """Joins kernels of some groups."""

    def __init__(self, groups: Groups, whatever: bool = False) -> None:
        """Find the kernels that each kernel depends on; joins are taken `whatever` they cost."""
        self.groups, self.whatever = groups, whatever
        self.heap: list[tuple[int, int, int, int, int, tuple[Kernel, ...]]] = []
        self.declined: list[tuple[Kernel, ...]] = []
        self.tick = itertools.count()
        for i, outputs in enumerate(groups.ordered()):
            kernel = groups.kernels[outputs[0]]
            kernel.bit = 1 << i
            for before in self._makers(kernel):
                kernel.above |= before.bit | before.above

    def greedily(self) -> None:
        """Join pairs that share most bytes first, where the joined kernel is cheaper.

        Of pairs with equal bytes the one with fewer outputs comes first: many siblings join as in a
        tournament. A pair is lowered and priced when its turn comes, with what stands between both:
        the logarithm of a row's sum, which the rows read as well. Each kernel is paired with the
        NEAREST readers of each tensor that it reads or writes: the number of pairs grows with that
        of kernels, not with its square.
        """
        groups = self.groups
        for a in groups.all():
            self._push(a, (b for b in self._near(a) if b.place > a.place))
        self._drain()
        declined, self.declined = self.declined, []
        for kernels in declined:
            self._joined(kernels, late=True)
        self._drain()

    def _drain(self) -> None:
        while self.heap:
            self._joined(heapq.heappop(self.heap)[-1])

    def _joined(self, kernels: tuple[Kernel, ...], late: bool = False) -> None:
        """Join current kernels, where that is cheaper; late, where it is wanted."""
        groups, choices = self.groups, self.groups.choices
        current = all(groups.kernels.get(k.outputs[0]) is k for k in kernels)
        if not current or self._between(*kernels):
            return
        joined = self.all_of(*kernels)
        name = ".".join(("join", *(groups.name(k.outputs[0]) for k in kernels)))
        saved = sum(k.cost for k in kernels) - joined.cost - groups.overlap.lost(kernels)
        wanted = late or saved > 0 or self.whatever
        sound = wanted and joined.cost < NEVER and not recomputes(joined, groups)
        if sound and (choices.wanted(name) if late else choices.settle(name, saved)):
            self.join(joined, *kernels)
            self._push(joined, self._near(joined))
        else:
            self.declined.append(kernels)

    def _push(self, a: Kernel, others: Iterable[Kernel]) -> None:
        for b in others:
            kernels = tuple(sorted((a, b, *self._between(a, b)), key=place))
            if self._is_small(*kernels) and self.is_legal(*kernels):
                size, first, last = sum(len(k.outputs) for k in kernels), kernels[0], kernels[-1]
                order = -self._shared(a, b), size, first.place, last.place, next(self.tick)
                heapq.heappush(self.heap, (*order, kernels))

    def _shared(self, a: Kernel, b: Kernel) -> int:
        """Bytes of the tensors that both read or write."""
        shared = {*a.reads, *a.outputs} & {*b.reads, *b.outputs}
        return sum(hint(n.type.size) * n.type.dtype.bytes for n in shared)

    def _is_small(self, *kernels: Kernel) -> bool:
        """Whether the joined kernel keeps the target's limits of code and operands."""
        operands = {n for k in kernels for n in (*k.reads, *k.outputs)}
        return self.groups.is_short(*kernels) and len(operands) <= self.groups.target.kernel_buffers

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

    def is_legal(self, *kernels: Kernel) -> bool:
        legal = all(map(is_joinable, kernels)) and not self._between(*kernels)
        return legal and root_shape(tuple(n for k in kernels for n in k.outputs)) is not None

    def _between(self, *kernels: Kernel) -> list[Kernel]:
        """Other kernels that some of these read and that depend on others of these."""
        bits = reduce(or_, (k.bit for k in kernels))
        makers = dict.fromkeys(m for k in kernels for m in self._makers(k))
        return [m for m in makers if m not in kernels and m.above & bits]

    def all_of(self, *kernels: Kernel) -> Kernel:
        """The joined kernel; it stores what another kernel reads and what must be stored."""
        groups = self.groups
        own = sorted((n for k in kernels for n in k.outputs), key=groups.order.__getitem__)
        read = {n for n in own if any(k not in kernels for k in groups.readers(n))}
        joined = groups.kernel(tuple(n for n in own if n in read or n in groups.forced), own)
        joined.bit = reduce(or_, (k.bit for k in kernels))
        joined.above = reduce(or_, (k.above for k in kernels)) & ~joined.bit
        return joined

    def join(self, joined: Kernel, *kernels: Kernel) -> None:
        """Replace all by the joined kernel; kernels below it now depend on what each did."""
        for node in (n for k in kernels for n in k.outputs):
            self.groups.remove(node)
        self.groups.put(joined)
        below = [joined]
        while below:
            for reader in {k: None for n in below.pop().outputs for k in self.groups.readers(n)}:
                above = reader.above | joined.above
                if above != reader.above:
                    reader.above = above
                    below.append(reader)


# --- fusion ---------------------------------------------------------------------------------------

TABLE = 64  # how many times larger a mask is than a table that it reads
SMALL = 64  # vector instructions in a size class: of equal savings, the smaller class comes first


def partition(
    graph: Graph,
    price: Price,
    target: Machine,
    fuse: str = "greedy",
    chooser: Chooser | None = None,
    kept: Collection[Node] = (),
    prices: Prices | None = None,
    segments: Segments | None = None,
) -> list[Group]:
    """Groups of stored tensors, each one kernel (or one library call), in order of data flow.

    "greedy" starts with most tensors stored, each in a kernel of its own. It then makes the change
    that saves most microseconds, again and again, until no change saves any: first it inlines
    tensors into all kernels that read them, then it joins kernels over one iteration space. The
    order is that of greedy fusion in bullet (github.com/jw1912/bullet). No kernel has more than
    `target.kernel_instructions`, which its instruction cache holds, so that compile time grows with
    the number of tensors, not with its square.
    Tensors `kept` have a buffer. "none" keeps the initial kernels; "all" stores only what must be,
    and joins what shares a tensor where that is legal, whatever it costs.
    `prices` of kernels are added to, for what is partitioned next by the same price. `segments` are
    the nests of a scatter of rows by segments.
    """
    known = Prices() if prices is None else prices
    choices = (chooser or Chooser()).program
    groups = Groups(graph, price, target, choices, kept, segments=segments, prices=known)
    store_initially(groups, fuse)
    if fuse == "greedy":
        _Inlining(groups).run()
    store_recomputed(groups)
    if fuse != "none":
        Joining(groups, fuse == "all").greedily()
    return groups.ordered()


# ---- what is stored at first


def store_initially(groups: Groups, fuse: str) -> None:
    """Store each tensor in a kernel of its own, unless `_starts_stored` leaves it inlined."""
    users, made = groups.graph.users(), generated(groups.order)
    inlined: dict[Node, float] = {}  # weight that inlining a node adds to its reader's kernel
    for node in groups.order:
        inlined[node] = weight(node) + sum(inlined[a] for a in dict.fromkeys(node.args))
        long = inlined[node] > groups.target.kernel_instructions / 2
        starts = fuse != "all" and (long or node not in made)
        starts = starts and _starts_stored(node, users[node], fuse, long)
        if node in groups.forced or starts:
            groups.stored.add(node)
        if node in groups.stored or node in groups.inputs:
            inlined[node] = 1.0
    for node in sorted(groups.stored, key=groups.order.__getitem__):
        if not isinstance(node.op, ops.Part) and node not in groups.kernels:
            parts = [u for u in users[node] if isinstance(u.op, ops.Part)]
            same = dict.fromkeys(n for a in node.args for n in users[a] if _is_same_run(n, node))
            groups.put(groups.kernel((*(same or (node,)), *parts)))


def _starts_stored(node: Node, users: list[Node], fuse: str, long: bool) -> bool:
    """Whether a tensor starts with a buffer; `long`: inlined, it would make a long kernel."""
    if isinstance(node.op, Contiguous):
        return True
    if not isinstance(node.op, ops.Map | ops.Reduce | ops.Gather):
        return False
    if _is_contraction(node, users) or _is_widened(node):
        return False
    if not node.type.rank:
        return long
    direct = len(users) == 1 and isinstance(users[0].op, ops.Map | ops.Reduce)
    direct = direct and not _is_widened(users[0])  # which reads this in place of having a buffer
    return long or fuse == "none" or isinstance(node.op, ops.Reduce) or not direct


def _is_same_run(a: Node, b: Node) -> bool:
    """Whether both are results of one running fold, or of one sort."""
    runs = [replace(n.op, result=0) for n in (a, b) if isinstance(n.op, ops.Scan | ops.Sort)]
    return len(runs) == 2 and runs[0] == runs[1] and a.args == b.args


def _is_contraction(node: Node, users: list[Node]) -> bool:
    """Whether the node is a contraction's product: larger than its sources, read by reductions."""
    return ops.is_expansion(node) and all(isinstance(u.op, ops.Reduce) for u in users)


def _is_widened(node: Node) -> bool:
    """Whether a map casts integers to wider ones: a buffer of what it casts is smaller."""
    dtype, casts = node.type.dtype, isinstance(node.op, ops.Map) and node.op.function
    source = node.args[0].type.dtype if casts is CASTS.get(dtype) else dtype
    return dtype.is_integer and source.is_integer and source.bits < dtype.bits


def generated(nodes: Iterable[Node]) -> set[Node]:
    """Maps that read coordinates and scalars alone: a buffer would save no loads.

    And masks of these, of tables and of each other: a buffer would hide which columns they rule
    out. The nodes are in order: arguments before users.
    """
    found = set[Node]()
    for node in (n for n in nodes if isinstance(n.op, ops.Map)):
        rest = [s for s in ops.sources(node) if not isinstance(s.op, ops.Index | ops.Scalar)]
        size = hint(node.type.size) // TABLE if node.type.dtype is boolean else 0
        masks = {s for s in rest if s in found and s.type.dtype is boolean}
        if all(s in masks or hint(s.type.size) <= size for s in rest):
            found.add(node)
    return found


# ---- inlining


class _Inlining:
    """Inlines the stored tensor that saves most, until none saves anything."""

    def __init__(self, groups: Groups) -> None:
        self.groups = groups
        # Microseconds of a reader with a kernel inlined into it, by (kernel, reader).
        self.costs: dict[tuple[Kernel, Kernel], float] = {}
        self.heap: list[tuple[float, int, int, int, Node, tuple[Kernel, ...]]] = []
        self.tick = itertools.count()

    def run(self) -> None:
        groups = self.groups
        for node in sorted(groups.stored, key=groups.order.__getitem__):
            self._push(node)
        self._drain()
        for node in sorted(groups.stored, key=groups.order.__getitem__):
            if self._is_legal(node) and groups.choices.wanted(f"inline.{groups.name(node)}"):
                self._inline(node, groups.readers(node))
        self._drain()

    def _drain(self) -> None:
        groups = self.groups
        while self.heap:
            gain, *_, node, priced = heapq.heappop(self.heap)
            if node not in groups.stored:
                continue
            if (groups.kernels[node], *groups.readers(node)) != priced:
                self._push(node)
                continue
            if groups.choices.settle(f"inline.{groups.name(node)}", -gain):
                self._inline(node, priced[1:])

    def _push(self, node: Node) -> None:
        groups = self.groups
        if self._is_legal(node):
            own, readers = groups.kernels[node], groups.readers(node)
            saved = self._saved(own, readers)
            if saved > 0 and not self._is_better_joined(own, readers, saved):
                size = int(own.weight + sum(k.weight for k in readers)) // SMALL
                entry = (-saved, size, groups.order[node], next(self.tick), node, (own, *readers))
                heapq.heappush(self.heap, entry)

    def _is_legal(self, node: Node) -> bool:
        groups = self.groups
        calls = (isinstance(k.outputs[0].op, CALLS) for k in groups.readers(node))
        return node in groups.stored and node not in groups.forced and not any(calls)

    def _saved(self, own: Kernel, readers: Sequence[Kernel]) -> float:
        """Microseconds that inlining the kernel into all readers saves; -inf where it saves none.

        A reader gets cheaper by at most `own.cost`, so that `rest` is what those cost at least that
        are not priced yet: short ones are first, and pricing stops when nothing can be saved.
        """
        saved = own.cost + sum(k.cost for k in readers) - self.groups.overlap.hidden(own, readers)
        rest = sum(kernel.cost - own.cost for kernel in readers)
        for kernel in sorted(readers, key=lambda k: k.weight):
            if saved <= rest:
                return -NEVER
            pair = (own, kernel)  # the merged cost depends on these two alone
            if pair not in self.costs:
                self.costs[pair] = self.groups.kernel(kernel.outputs, own.outputs).cost
            saved -= self.costs[pair]
            rest -= kernel.cost - own.cost
        return saved

    def _is_better_joined(self, own: Kernel, readers: Sequence[Kernel], saved: float) -> bool:
        """Whether joining the kernel with another saves more than inlining it into all readers.

        That is its first reader, or a sibling. The joined kernel stores the tensor. No third kernel
        stands between a kernel and its first reader, so that joining makes no cycle. A reader of
        another shape reduces the tensor: it may later become an online fold with the kernel after
        it, which a stored tensor would prevent.
        """
        if not is_joinable(own):
            return False
        first = readers[0] if len(readers) > 1 and is_joinable(readers[0]) else None
        same = first and own.outputs[0].type.shape == first.outputs[0].type.shape
        others = ([first] if first and same else []) + self._siblings(own, readers)
        return any(self._saved_joined(own, k) > saved for k in others)

    def _saved_joined(self, a: Kernel, b: Kernel) -> float:
        """Microseconds that one kernel of both saves."""
        outputs = (*a.outputs, *b.outputs)
        return a.cost + b.cost - self.groups.kernel(outputs, outputs).cost

    def _siblings(self, own: Kernel, readers: Sequence[Kernel]) -> list[Kernel]:
        """Kernels that reduce what is as large along the same axes, read from the same tensors.

        One pass over these makes both, which a reduction inside one of its readers prevents. They
        have as many elements as are folded: tables, read again and again, are in a cache.
        """
        node, groups = own.outputs[0], self.groups
        if not isinstance(node.op, ops.Reduce) or not own.reads:
            return []
        size, largest = (
            hint(node.args[0].type.size),
            max(own.reads, key=lambda n: hint(n.type.size)),
        )
        found = (k for k in groups.readers(largest) if k is not own and k not in readers)
        like = islice((k for k in found if _folded(k.outputs[0]) == _folded(node)), NEAREST)
        shared = ((k, sum(hint(n.type.size) for n in own.reads & k.reads)) for k in like)
        return [k for k, n in shared if n >= size and not groups.depend(own, k)]

    def _inline(self, node: Node, readers: Iterable[Kernel]) -> None:
        """Inline the node, and price anew the tensors that its readers read and store."""
        groups = self.groups
        own = groups.kernels[node]
        groups.remove(node)
        touched: dict[Node, None] = dict.fromkeys(own.reads)
        for kernel in readers:
            changed = groups.kernel(kernel.outputs)
            groups.put(changed)
            touched |= dict.fromkeys((*changed.reads, *changed.outputs))
        for other in touched:
            self._push(other)


def _folded(node: Node) -> tuple[list[int], list[int]] | None:
    """The extents that a reduction keeps, and those that it folds; None of other nodes."""
    if not isinstance(node.op, ops.Reduce):
        return None
    axes, shape = node.op.axes, [hint(n) for n in node.args[0].type.shape]
    kept = [n for a, n in enumerate(shape) if n != 1 and a not in axes]
    return kept, sorted(n for a, n in enumerate(shape) if n != 1 and a in axes)
