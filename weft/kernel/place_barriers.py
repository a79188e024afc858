"""place_barriers: puts a barrier between accesses of different threads to one buffer.

before  for e0 in t0..1024 by 256: x_s[e0] = ...     after  for e0 in ..: x_s[e0] = ...
        for a2 in 0..16: ... load x_s[..]                   barrier block
                                                            for a2 in 0..16: ... load x_s[..]

It walks the statements in order and tracks reads and writes since the last barrier; the end of a
loop's iteration is followed by the start of the next. The halves of a double buffer, picked by
`(k // 16) % 2`, count as different buffers.

A pipeline has a protocol instead: the iteration that reads a part of a slab, and the one that fills
the next part, come after a wait that leaves all younger copies under way, and a barrier. That all
meet after every wait keeps threads from missing a phase of a barrier of the copy engine.

for k2 in 0..32 by 16:  # prologue                  for k2 in ..: x_s[..] = ..
    x_s[k2 // 16 % 3, ..] = load x[..] async            wait async but 1
                                                        barrier block
for k0 in 0..512 by 16:  # reduce                   for k0 in 0..512 by 16:
    for k1 in k0 + 32..min(..) by 16:  # ahead          for k1 in ..: x_s[..] = ..
        x_s[k1 // 16 % 3, ..] = load x[..] async        ... load x_s[k0 // 16 % 3, ..]
    ... load x_s[k0 // 16 % 3, ..]                      wait async but 1
                                                        barrier block
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from weft.core.node import Node, postorder, substitute
from weft.kernel.ops import AsyncWait, Barrier, VectorStore
from weft.kernel.spread_threads import runs_once
from weft.scalar.affine import linear, plus
from weft.scalar.blocks import loops_in, map_loops, nodes
from weft.scalar.index import simplify
from weft.scalar.intervals import Interval
from weft.scalar.nest import PIPELINE, Block, Buffer, For, Kernel, Stmt, Store, free_variables, walk
from weft.scalar.ops import apply, constant, function_of, value_of
from weft.scalar.reach import axis_range


class Touch(NamedTuple):
    """An access of shared memory: the part of the buffer (None: any), and whether it writes."""

    buffer: Buffer
    part: Node | None
    writes: bool
    is_async: bool = False
    place: Node | None = None  # of a store in a run of stores, and of what it reads
    run: int = 0

    def meets(self, other: Touch) -> bool:
        """Whether the order of the two matters.

        Stores one after the other are copies of one for a thread's results: it has these alone.
        """
        if self.buffer != other.buffer or not (self.writes or other.writes):
            return False
        if self.place is not None and other.place is not None and self.run == other.run:
            return bool(plus(linear(self.place), linear(other.place), -1)[0])
        if self.part is None or other.part is None:
            return True
        terms, apart = plus(linear(self.part), linear(other.part), -1)
        return bool(terms) or apart % 2 == 0


def place_barriers(kernel: Kernel, target: object) -> Kernel:
    """Put a barrier between every write and read of different threads of a block."""
    written = {s.buffer for s in walk(kernel.body) if isinstance(s, Store | VectorStore)}
    read = {getattr(n.op, "buffer", None) for n in nodes(kernel.body)}
    shared = {b for b in written if b in read and b.space in ("shared", "global")}
    fills = tuple(loops_in(kernel.body, *PIPELINE))
    shared -= {s.buffer for s in walk(fills) if isinstance(s, Store | VectorStore)}
    body = _Sync(shared).block(kernel.body) if shared else kernel.body
    return replace(kernel, body=_in_step(body))


def _in_step(block: Block) -> Block:
    """The block with the waits and barriers of its pipelines."""

    def one(stmt: For) -> For:
        body = _in_step(stmt.body)
        for inner in stmt.body:
            if isinstance(inner, For) and inner.bind == "ahead":
                far = linear(apply("subtract", inner.lo, stmt.axis))[1] // inner.step
                body = (*body, AsyncWait(far - 1), Barrier())
        if stmt.bind == "prologue":
            body = (*body, AsyncWait((stmt.extent or 0) // stmt.step - 1), Barrier())
        return replace(stmt, body=body, bind="serial" if stmt.bind in PIPELINE else stmt.bind)

    return map_loops(block, one)


@dataclass
class _Sync:
    """The accesses since the last barrier."""

    shared: Collection[Buffer]
    since: list[Touch] = field(default_factory=list[Touch])
    varying: set[Node] = field(default_factory=set[Node])  # axes that differ between threads
    values: dict[Node, Node] = field(default_factory=dict[Node, Node])  # axes of loops run once
    ranges: dict[Node, Interval] = field(default_factory=dict[Node, Interval])
    runs: int = 1  # of stores, that far
    run_of: dict[int, int] = field(default_factory=dict[int, int])  # by identity of a store

    def block(self, stmts: Block) -> Block:
        out: list[Stmt] = []
        for stmt in stmts:
            stores = isinstance(stmt, Store | VectorStore)
            self.runs += not stores
            if stores:
                self.run_of[id(stmt)] = self.runs
            here = self.touches((stmt,))
            out += self.barrier(here)
            if isinstance(stmt, For) and here:
                out.append(self.loop(stmt))
            else:
                self.since += here
                out.append(stmt)
        return tuple(out)

    def barrier(self, later: Collection[Touch]) -> list[Stmt]:
        """What must stand before accesses, and then no earlier ones are left to wait for."""
        met = [a for a in self.since if any(a.meets(b) for b in later)]
        if not met:
            return []
        waits = any(a.is_async for a in met)
        self.since = [] if waits else [a for a in self.since if a.is_async]
        return [AsyncWait(), Barrier()] if waits else [Barrier()]

    def loop(self, stmt: For) -> For:
        """A loop; all its iterations are one access where threads run different ones."""
        once = runs_once(stmt)
        differs = any(free_variables(t) & self.varying for t in (stmt.lo, stmt.hi))
        if stmt.bind == "thread" or differs:
            self.varying.add(stmt.axis)
        low, high = axis_range(stmt, self.ranges)
        self.ranges[stmt.axis] = low, high + stmt.step  # and in the next iteration
        if once:
            self.values[stmt.axis] = substitute((stmt.lo,), self.values)[0]
        always = linear(stmt.hi) == plus(linear(stmt.lo), ({}, 1))
        if differs and not always:
            self.since += self.touches((stmt,))
            return stmt
        body = self.block(stmt.body)
        if not once and stmt.bind not in ("grid", "thread"):
            following = substitute((stmt.axis,), self.values)[0]
            step = {following: apply("add", following, constant(stmt.step))}
            again = [self.moved(t, step) for s in stmt.body for t in self.touches((s,))]
            body = (*body, *self.barrier(again))
        return replace(stmt, body=body)

    def touches(self, block: Block) -> list[Touch]:
        """What a block, or a store of a run, touches of what threads share."""
        run = self.run_of.get(id(block[0]), 0) if len(block) == 1 else 0
        values = dict(self.values)
        for loop in loops_in(block):
            if runs_once(loop):
                values[loop.axis] = substitute((loop.lo,), values)[0]
        found: dict[Touch, None] = {}
        for stmt in walk(block):
            if isinstance(stmt, Store | VectorStore) and stmt.buffer in self.shared:
                index = stmt.index[0] if isinstance(stmt, Store) else stmt.index
                of_run = (index if run else None, run)
                part, is_async = self.part(index, values), stmt.how == "async"
                found[Touch(stmt.buffer, part, True, is_async, *of_run)] = None
        for term in nodes(block):
            buffer: Buffer | None = getattr(term.op, "buffer", None)
            if buffer is not None and buffer in self.shared:
                index, part = term.args[0], self.part(term.args[0], values)
                found[Touch(buffer, part, False, False, index if run else None, run)] = None
        return list(found)

    def part(self, index: Node, values: dict[Node, Node]) -> Node | None:
        """Of a buffer in two halves, the number whose last bit picks one."""
        halves = [n for n in postorder(index) if function_of(n) == "floormod"]
        halves = [n for n in halves if self.varying.isdisjoint(free_variables(n))]
        picks = [n.args[0] for n in halves if value_of(n.args[1]) == 2]
        if len(picks) != 1:
            return None
        return simplify(substitute((picks[0],), values)[0], self.ranges)

    def moved(self, touch: Touch, step: dict[Node, Node]) -> Touch:
        """The access in the next iteration."""
        terms = (touch.part, touch.place)
        part, place = (t and simplify(substitute((t,), step)[0], self.ranges) for t in terms)
        return touch._replace(part=part, place=place)
