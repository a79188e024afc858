"""Walks one thread's program with the addresses of all threads: what a launch does, counted.

counts = Walk(kernel, GPUS["cuda:sm_90a"], most=6).counts
counts.touches, counts.slots, counts.cycles     # accesses, instructions by pipe, one warp's cycles

The walk follows the statements as the emitter writes them (placed terms). Every index is an array
over the iterations of the loops around it and the threads of the block, so that lanes that diverge
and masks count as they run. Of long loops `most` iterations are looked at, spread evenly.
Values from memory are unknown, and count as 0 in an index or a condition. What a compiler moves
under a condition counts everywhere.
"""

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from weft.core.node import Node, op_of
from weft.emit.gpu import GPUEmitter
from weft.emit.languages import LANGUAGES
from weft.kernel.ops import (
    ROW,
    AsyncWait,
    Barrier,
    Box,
    LoadMatrices,
    Matrix,
    Mma,
    VectorLoad,
    VectorStore,
)
from weft.scalar import nest
from weft.scalar.nest import For, Store, Update, free_variables
from weft.scalar.ops import apply, function_of, is_index, value_of
from weft.scalar.placing import place
from weft.scalar.sizes import hint
from weft.scalar.updates import combined
from weft.targets.gpu import GPU
from weft.tune.price import gpu_rates as rates
from weft.tune.price.gpu_rates import RATES, slots
from weft.tune.price.launch import Launch, Touch

FLIGHT = 4  # iterations of a loop that a compiler runs side by side
WARPS, DEPTH = 4, 16  # of a warpgroup; of the sum in one of its instructions
AHEAD, BASE = 40, 24  # registers for what a block has loaded, at most, and for addresses
Sums = defaultdict[Any, float]


@dataclass
class Counts:
    """What a launch does. Instructions, requests and the like are of warps, and of all blocks.

    grid        iterations of the loops of the grid that have several
    registers   of a thread, about
    slots       instructions by pipe
    products    multiply-adds of tensor cores, by instruction
    unit_bytes  of shared memory, that warpgroups read and the copy engine writes
    meets       of blocks, at barriers: one for the copy engine's own
    cycles      of one warp from its first to its last instruction, where it waits for no other
    stalled     of these, those in which all warps of its block wait: for copies, at barriers
    """

    threads: int
    shared_bytes: int
    grid: list[int]
    registers: float = 0.0
    slots: Sums = field(default_factory=lambda: defaultdict(float))
    products: Sums = field(default_factory=lambda: defaultdict(float))
    touches: list[Touch] = field(default_factory=list[Touch])
    unit_bytes: float = 0.0
    meets: float = 0.0
    cycles: float = 0.0
    stalled: float = 0.0

    @property
    def blocks(self) -> int:
        return math.prod(self.grid)

    @property
    def wavefronts(self) -> float:
        return sum(t.units for t in self.touches if t.buffer.space == "shared")


@dataclass
class _Scope:
    """A block as it is walked, in cycles of one warp: when terms are ready, what it has issued."""

    often: float = 0.0  # how often warps run it, of the whole launch
    ready: dict[Node, float] = field(default_factory=dict[Node, float])
    start: float = 0.0  # before which nothing more begins
    end: float = 0.0
    issued: float = 0.0  # instructions of one warp
    loaded: float = 0.0  # registers for what it loads
    stalled: float = 0.0  # cycles in which all warps of a block wait
    copied: tuple[float, float] | None = None  # end and issued when the newest copies had begun
    carried: Sums = field(default_factory=lambda: defaultdict(float))  # cycles from sum to sum
    overlaps: bool = True  # with the next iteration: no barrier, no loop


class Walk:
    """A walk over a kernel, whose `counts` it fills."""

    def __init__(self, kernel: nest.Kernel, target: GPU, most: int) -> None:
        emitter = GPUEmitter(kernel, kernel.name, LANGUAGES[target.language])
        emitted = emitter.launch(())
        self.copied, self.rates = emitter.copied, RATES[target.arch]
        self.launch = Launch(emitted.block, most)
        self.counts = Counts(emitted.block, emitted.shared_bytes, self.launch.grid)
        self.crowd = max(1.0, self.launch.warps / rates.SCHEDULERS)  # warps that take turns
        self.moving: set[Node] = set()  # axes of the innermost loop that is not unrolled
        self.copies = 1.0  # of what stands in unrolled loops
        self.named: set[Node] = set()
        self.blocks = self.place = 0  # of statements: so many, and the number of this one
        self.turns, self.live = 1.0, float(BASE)  # iterations of the loop around; registers
        whole = self.block(place(kernel.body, emitter.within))
        self.counts.cycles, self.counts.stalled = whole.end, whole.stalled
        self.counts.meets += bool(emitter.boxes.names) * self.counts.blocks

    # ---- loops

    def block(self, stmts: nest.Block) -> _Scope:
        """The statements in order: a term waits for its arguments, a barrier for everything."""
        scope, live, named = _Scope(self.launch.runs()), self.live, set(self.named)
        self.blocks = place = self.blocks + 1
        for stmt in stmts:
            self.place = place
            self.statement(stmt, scope)
            held = self.live + min(AHEAD, scope.loaded)
            self.counts.registers = max(self.counts.registers, held)
        scope.end = max(scope.end, scope.issued)
        self.live, self.named = live, named
        return scope

    def statement(self, stmt: nest.Stmt, scope: _Scope) -> None:
        match stmt:
            case For():
                self.inside(stmt, scope)
            case nest.Let():
                scope.ready.pop(stmt.term, None)
                self.named.discard(stmt.term)
                self.term(stmt.term, scope)
                self.named.add(stmt.term)
            case Update():
                self.update(stmt, scope)
            case Store() | VectorStore():
                self.store(stmt, scope)
            case Mma():
                self.product(stmt, scope)
            case nest.Local():
                self.live += (stmt.buffer.space == "local") * hint(stmt.buffer.bytes) / 4
            case Barrier():
                self.counts.meets += scope.often / self.launch.warps
                scope.stalled += rates.BARRIER
                self.meet(scope, rates.BARRIER)
            case AsyncWait():
                self.wait(stmt, scope)
            case _:
                raise AssertionError(f"{type(stmt).__name__} at the kernel level")

    def inside(self, stmt: For, scope: _Scope) -> None:
        """A loop in its place: after what comes before it."""
        inner, turns = self.loop(stmt)
        scope.end = scope.start = max(scope.end, scope.issued) + inner.end
        scope.issued += inner.issued
        scope.stalled += inner.stalled
        scope.copied = (scope.end, scope.issued) if inner.copied else scope.copied
        scope.overlaps &= inner.overlaps and turns <= 1
        for fold, cycles in inner.carried.items():
            if fold not in stmt.folds:
                scope.carried[fold] += turns * cycles

    def loop(self, stmt: For) -> tuple[_Scope, float]:
        """All iterations of a loop, and how many these are on average."""
        launch, count = self.launch, self.launch.count(stmt)
        if not count.any():
            return _Scope(), 0.0
        before = launch.known, launch.active
        outside = self.moving, self.turns, self.live, self.copies
        several, shared = int(count.max()) > 1, stmt.bind in ("grid", "thread")
        self.live += sum(hint(d.bytes) / 4 * f.lanes for f in stmt.folds for d in f.dtypes)
        self.turns = turns = 1.0 if shared else float(count.mean(where=count > 0))
        launch.enter(stmt, count)
        if stmt.bind == "unroll":
            self.copies *= turns
        elif not shared:
            self.moving = {stmt.axis} if several else {*self.moving, stmt.axis}
            self.copies = 1.0 if several else self.copies
        inner = self.block(stmt.body)
        if several and stmt.bind != "thread":
            launch.leave()
        launch.known, launch.active = before
        self.moving, self.turns, self.live, self.copies = outside
        return _repeated(inner, turns, stmt.bind == "unroll"), turns

    # ---- statements

    def term(self, term: Node, scope: _Scope) -> float:
        """When a term is ready; it is counted once in a block, unless it has a name around it."""
        if term in scope.ready:
            return scope.ready[term]
        if nest.is_atom(term) or term in self.named:
            return scope.start
        begin = max((self.term(a, scope) for a in term.args), default=scope.start)
        if isinstance(term.op, nest.Load | VectorLoad | LoadMatrices):
            begin += self.load(term, scope)
        elif not is_index(term) or self.moves(term):
            begin += _delay(term)
            copies = self.copies if is_index(term) else 1.0
            for pipe, n in slots(term).items():
                self.issue(scope, pipe, n / copies)
        scope.ready[term] = begin
        scope.end = max(scope.end, begin)
        return begin

    def moves(self, term: Node) -> bool:
        """Whether an index is computed again in each iteration: others are kept, or immediate."""
        immediate = function_of(term) == "add" and value_of(term.args[1]) is not None
        immediate |= function_of(term) == "multiply"  # and added by the same instruction
        return not immediate and not self.moving.isdisjoint(free_variables(term))

    def issue(self, scope: _Scope, pipe: str, n: float) -> None:
        self.counts.slots[pipe] += n * scope.often
        scope.issued += n

    def load(self, term: Node, scope: _Scope) -> float:
        """Count a load; the cycles it takes."""
        op: Any = term.op
        if op.buffer.space == "local":
            return 0.0
        lanes = term.type.lanes
        if isinstance(op, LoadMatrices):
            rows = self.launch.touch(op.buffer, "load", term.args[0], ROW, None)
            part = rows.units * lanes / ROW  # of the lanes that give a row
            found = rows._replace(units=part, share=lanes / ROW, place=self.place)
            self.counts.touches.append(found)
        else:
            mask = term.args[-2] if op.masked else None
            self.touch(op.buffer, "load", term.args[0], lanes, mask)
        self.issue(scope, "memory", 1)
        scope.loaded += lanes * term.type.dtype.bytes / 4
        return rates.SHARED if op.buffer.space == "shared" else rates.GLOBAL

    def touch(self, *access: Any) -> None:
        self.counts.touches.append(self.launch.touch(*access)._replace(place=self.place))

    def update(self, stmt: Update, scope: _Scope) -> None:
        results = combined(stmt)
        for value in stmt.values:
            self.term(value, scope)
        before = len(scope.ready)
        times = [self.term(r, scope) for r in results]
        for _ in range(len(scope.ready) - before):
            scope.ready.popitem()  # what the fold was, and nothing reads any more
        scope.carried[stmt.fold] += stmt.fold.monoid.cost * rates.LATENCY["fma"]
        for acc, running, at in zip(stmt.fold.accs, stmt.fold.running, times, strict=True):
            scope.ready[acc] = scope.ready[running] = at

    def store(self, stmt: Store | VectorStore, scope: _Scope) -> None:
        index = stmt.index[0] if isinstance(stmt, Store) else stmt.index
        lanes = 1 if isinstance(stmt, Store) else stmt.lanes
        copied = stmt.value if stmt.how == "async" else None
        for term in (index, stmt.mask, *(copied.args if copied else (stmt.value,))):
            scope.end = max(scope.end, self.term(term, scope) if term else 0.0)
        if stmt.buffer.space == "local":
            return
        self.issue(scope, "memory", 1)
        if copied is not None:
            scope.copied = max(scope.end, scope.issued), scope.issued
            if isinstance(copied.op, Box):
                scope.start += rates.BOX  # of the first thread: the others wait for it
                touch = self.launch.box(copied, stmt.buffer.type.dtype.bytes)
                self.counts.touches.append(touch)
                self.counts.unit_bytes += touch.requests * lanes * stmt.buffer.type.dtype.bytes
                return
            op: Any = copied.op
            masks = [m for m in (stmt.mask, copied.args[1] if op.masked else None) if m]
            both = apply("and", *masks) if len(masks) == 2 else next(iter(masks), None)
            self.touch(op.buffer, "copy", copied.args[0], lanes, both)
        self.touch(stmt.buffer, "atomic" if stmt.combines else "store", index, lanes, stmt.mask)

    def product(self, stmt: Mma, scope: _Scope) -> None:
        begin = max(self.term(a, scope) for a in (*stmt.left, *stmt.right))
        begin = max(begin, *(scope.ready.get(f.accs[0], scope.start) for f in stmt.sums))
        if stmt.sums[0].lanes == 1:
            self.counts.products["mma"] += rates.PRODUCT * scope.often
            self.issue(scope, "tensor", 1)
            begin += rates.MMA
        else:
            sides = [op_of(m, Matrix) for m in (*stmt.left, *stmt.right)]
            work = sides[0].rows * sides[1].rows * sides[1].depth
            self.counts.products["wgmma"] += work * scope.often / WARPS
            self.counts.unit_bytes += sum(m.rows * m.depth * 2 for m in sides) * scope.often / WARPS
            self.issue(scope, "tensor", sides[1].depth / DEPTH + 4)
            groups = self.launch.warps / WARPS  # all of them at once: barriers keep them together
            begin += work * groups / self.rates.wgmma + rates.GROUP
        for fold in stmt.sums:
            scope.ready[fold.accs[0]] = begin
            scope.carried[fold] += rates.MMA
        scope.end = max(scope.end, begin)

    def meet(self, scope: _Scope, more: float) -> None:
        """Where a warp goes on only when all before is done."""
        scope.start = scope.end = max(scope.end, scope.issued) + more
        scope.overlaps = False

    def wait(self, stmt: AsyncWait, scope: _Scope) -> None:
        """A wait for copies: exposed is what the block does not hide since they began.

        With some pending they began so many iterations before.
        """
        self.issue(scope, "memory", 2)
        now = max(scope.end, scope.issued)
        end, issued = scope.copied or (now, scope.issued)
        own = max(now - end, self.crowd * (scope.issued - issued))
        before = stmt.pending * max(now, self.crowd * scope.issued)
        exposed = max(0.0, rates.GLOBAL - own - before)
        if stmt.pending:
            exposed *= max(0.0, self.turns - stmt.pending) / self.turns
        scope.stalled += exposed
        self.meet(scope, exposed)
        scope.copied = None


def _repeated(inner: _Scope, turns: float, unrolled: bool) -> _Scope:
    """From one iteration to all: they overlap where nothing but folds holds them apart."""
    each = inner.end
    if inner.overlaps:
        side = turns if unrolled else min(turns, FLIGHT)
        each = max(inner.issued, max(inner.carried.values(), default=0.0), inner.end / side)
    inner.end += max(turns - 1, 0.0) * min(each, inner.end)
    inner.stalled *= turns
    inner.issued = turns * (inner.issued + 2.0 * (not unrolled and turns > 1))
    return inner


def _delay(term: Node) -> float:
    """Cycles from arguments to a term: half of its instructions wait for one another."""
    return sum(rates.LATENCY[pipe] * max(1.0, n / 2) for pipe, n in slots(term).items())
