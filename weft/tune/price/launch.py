"""All threads of a launch: the values of indices over loops and threads, and what accesses cost.

launch = Launch(threads=256, most=6)
launch.enter(loop, launch.count(loop))             # opens a loop; of a long one 6 iterations
launch.touch(x, "load", index, 4, None).units      # sectors of the whole launch
"""

import math
from typing import Any, NamedTuple

import numpy as np

from weft.core.node import Node, op_of, postorder
from weft.kernel.ops import Box, Extract, VectorLoad
from weft.scalar.nest import Buffer, For, Load
from weft.scalar.ops import SAFE, Apply, Constant, Symbol, checked_index
from weft.tune.price import warps

MIXES = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)  # of splitmix64


class Touch(NamedTuple):
    """An access of a launch: what it costs, and which part of a buffer a block touches.

    kind        load, store, atomic, or copy: an asynchronous one's load, which no register holds
    bytes       of a lane; 16 of a box of the copy engine
    units       sectors of global memory, wavefronts of shared memory
    lines       of 128 bytes, of global memory; none of a box
    footprint   bytes of the different sectors that a block touches, on average
    moves       the loops of the grid that decide which, by number
    some        the sectors that the first block touches, in the iterations that are looked at
    place       the block of statements that it stands in, by number
    share       of the lanes that take part, where some only wait for the others
    turns       of an atomic store, in the cache: a sector, and again for each lane that has the
                address of another one
    """

    buffer: Buffer
    kind: str
    bytes: int
    requests: float
    units: float
    lines: float = 0.0
    footprint: float = 0.0
    moves: tuple[int, ...] = ()
    some: frozenset[int] = frozenset()
    place: int = 0
    share: float = 1.0
    turns: float = 0.0


class Launch:
    """The loops around a statement, each iteration of which every thread of the block runs."""

    def __init__(self, threads: int, most: int) -> None:
        self.threads, self.warps, self.most = threads, threads // warps.BANKS, most
        self.grid = list[int]()  # iterations of its loops that have several
        self.totals = list[int]()  # of all
        self.weights = list[Any]()  # how many iterations each that is looked at stands for
        self.known: dict[Node, Any] = {}
        self.active: Any = None  # which iterations and threads run; None: all

    def count(self, stmt: For) -> Any:
        """The iterations that each thread runs of a loop."""
        low, high = self.value(stmt.lo), self.value(stmt.hi)
        count = np.maximum(-((low - high) // stmt.step), 0)
        return count if self.active is None else np.where(self.active, count, 0)

    def enter(self, stmt: For, count: Any) -> None:
        """The values of an axis: a dimension in front of all others, where there are several."""
        low, total = self.value(stmt.lo), int(count.max())
        self.known = dict(self.known)
        if stmt.bind == "thread":
            self.known[stmt.axis] = np.arange(total) * stmt.step + low
            return
        picks, runs = np.zeros(1, np.int64), None if count.min() == 1 else count > 0
        if total > 1:
            picks = np.unique(np.linspace(0, total - 1, min(total, self.most)).astype(np.int64))
            inner = max(len(picks) - 2, 1)  # the first and the last one stand for themselves
            weights = np.full(len(picks), (total - 2) / inner)
            weights[[0, -1]] = 1.0
            self.totals.append(total)
            self.weights.append(weights)
            self.grid += [total] * (stmt.bind == "grid")
            picks = picks.reshape(-1, *(1,) * len(self.totals))
            runs = None if count.min() == total else picks < count
        self.known[stmt.axis] = low + picks * stmt.step
        if runs is not None:
            self.active = runs if self.active is None else runs & self.active

    def leave(self) -> None:
        """Out of a loop that has several iterations."""
        self.totals.pop()
        self.weights.pop()

    def value(self, term: Node) -> Any:
        """A term over loops and threads: the innermost loop comes first, threads last."""
        if term not in self.known:
            self.known[term] = self.computed(term)
        return self.known[term]

    def computed(self, term: Node) -> Any:
        if isinstance(term.op, Constant):
            return np.asarray(term.op.value)
        if isinstance(term.op, Symbol):
            return np.asarray(term.op.hint)
        if not isinstance(term.op, Apply):
            return np.zeros((), np.int64)  # of memory: unknown
        if term.op.function is checked_index:
            return self.drawn(*term.args)
        if term.op.function in SAFE:
            return self.value(term.args[0])
        with np.errstate(all="ignore"):
            return np.asarray(term.op.evaluate(*map(self.value, term.args)))

    def drawn(self, index: Node, extent: Node) -> Any:
        """An index; one from memory is any below the extent, by a hash of where it is read."""
        parts = postorder(index)
        reads = [n for n in parts if isinstance(n.op, Load | VectorLoad)]
        if not reads:
            return self.value(index)
        lane = sum(n.op.lane for n in parts if isinstance(n.op, Extract))
        mixed = (self.value(reads[0].args[0]) + lane + 1).astype(np.uint64) * MIXES[0]
        mixed = (mixed ^ mixed >> np.uint64(29)) * MIXES[1]
        mixed = (mixed ^ mixed >> np.uint64(32)) >> np.uint64(1)
        return mixed.astype(np.int64) % self.value(extent)

    def runs(self) -> float:
        """How often warps run a block here, of the whole launch: where one of its lanes does."""
        if self.active is None:
            return math.prod(self.totals) * self.warps
        (active,) = self.natural(self.threads, self.active)
        some = active.reshape(*active.shape[:-1], self.warps, -1).any(-1).sum(-1)
        return float((some * self.often(some.shape)).sum())

    def touch(self, buffer: Buffer, kind: str, index: Node, lanes: int, mask: Node | None) -> Touch:
        """Count an access of `lanes` elements of each thread."""
        size = lanes * buffer.type.dtype.bytes
        address = self.value(index) * buffer.type.dtype.bytes
        if buffer.swizzle:
            address = address ^ (address >> 3 & buffer.swizzle - 16)
        active = np.asarray(True) if self.active is None else self.active
        active = active if mask is None else active & self.value(mask).astype(bool)
        address, active = self.natural(self.threads, address, active)
        often = np.repeat(self.often(active.shape[:-1]).ravel(), self.warps)
        flat = [a.reshape(-1, warps.BANKS) for a in (address, active)]
        each, on, count = warps.alike(*flat, often=often)
        requests = float(on.any(1) @ count)
        if buffer.space == "shared":
            units = float(warps.wavefronts(each, on, size, kind == "load") @ count)
            return Touch(buffer, kind, size, requests, units)
        units = float(warps.blocks(each, on, size, warps.SECTOR) @ count)
        lines = float(warps.blocks(each, on, size, warps.LINE) @ count)
        again = (on.sum(1) - warps.distinct(each, on)) @ count if kind == "atomic" else 0.0
        once, moves = self.once(active.shape[:-1], units)
        whole = [a.reshape(math.prod(a.shape[: len(self.grid)]), -1) for a in (address, active)]
        each, new = (warps.blocks(a[0], a[1], size, warps.SECTOR).sum() for a in (flat, whole))
        some = frozenset((whole[0][0][whole[1][0]] // warps.SECTOR).tolist())
        once *= float(new / max(each, 1))
        found = Touch(buffer, kind, size, requests, units, lines, once, moves, some)
        return found._replace(turns=units + float(again))

    def natural(self, threads: int, *arrays: Any) -> list[Any]:
        """All in one shape: loops, outermost first, and threads; 1 for loops that move none."""
        rank = len(self.totals) + 1
        shape = np.broadcast_shapes(*(a.shape for a in arrays), (threads,))
        order = (*range(rank - 2, -1, -1), rank - 1)
        full = (1,) * (rank - len(shape)) + shape
        return [np.broadcast_to(a, shape).reshape(full).transpose(order) for a in arrays]

    def often(self, loops: tuple[int, ...]) -> Any:
        """How many iterations each of an array over loops stands for."""
        total = np.ones(loops)
        for i, n in enumerate(loops):
            weights = self.weights[i].reshape(-1, *(1,) * (len(loops) - i - 1))
            total = total * (weights if n > 1 else self.totals[i])
        return total

    def once(self, loops: tuple[int, ...], units: float) -> tuple[float, tuple[int, ...]]:
        """Bytes of a block's sectors, loops that do not move them once; and the grid's that do."""
        grid = len(self.grid)
        still = (t for t, n in zip(self.totals[grid:], loops[grid:], strict=True) if n == 1)
        whole = units * warps.SECTOR / math.prod(self.grid) / math.prod(still)
        return whole, tuple(i for i, n in enumerate(loops[:grid]) if n > 1)

    def box(self, box: Node, item: int) -> Touch:
        """A copy by the copy engine, which one thread starts: the sectors of its rows."""
        op, active = op_of(box, Box), np.ones(1, bool) if self.active is None else self.active
        corner = (np.atleast_1d(self.value(a)) for a in box.args)
        active, *places = self.natural(1, *(a[..., :1] for a in (active, *corner)))
        often = self.often(active.shape[:-1])
        first = np.maximum(places[-1], 0)
        last = np.minimum(places[-1] + op.sides[-1], op.sizes[-1])
        there, base = last > first, np.zeros((), np.int64)
        for k, at in enumerate(places[:-1]):
            rows = at + np.arange(op.sides[k]).reshape(-1, *(1,) * (k + at.ndim))
            there = there & (rows >= 0) & (rows < op.sizes[k])
            base = base + rows * op.strides[k]
        ends = (base + first) * item, (base + last) * item - 1
        low, high = (end // warps.SECTOR for end in ends)
        rows = np.where(there & active, high - low + 1, 0)
        requests, units = ((a[..., 0] * often).sum() for a in (active, rows))
        place = self.once(active.shape[:-1], float(units))
        return Touch(op.buffer, "copy", 16, float(requests), float(units), 0.0, *place)
