"""spread_threads: turns a nest with loops over threads into the program of one thread.

before  for a0 in 0..32:  # free grid           after  for a0 in 0..32:  # free grid
            for a1 in 0..2048:  # reduce thread            for t0 in 0..256:  # free thread
                acc0 <- add(acc0, load x[..])                  for a1 in t0..2048 by 256:  # reduce
            y[a0] = acc0                                           acc0_own <- add(acc0_own, ..)
                                                               (shuffles; parts in shared memory)
                                                               y[a0] = acc0 if t0 == 0

Statements outside the loops over threads are computed by every thread and stored by the first one.
In a tile each thread computes its own results, and all threads share the loops over threads inside
it. An iteration of a loop over threads that holds loops over lanes belongs to a group of threads: a
part of a warp, or threads of several warps if it holds loops over warps. Barriers are placed later
(place_barriers).
"""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeGuard

from weft.core.node import Node, make, rebuild
from weft.core.types import TensorType
from weft.kernel.ops import ThreadXor
from weft.scalar import blocks, nest
from weft.scalar.blocks import loops_from, map_statements, reads_again, rebound, substitute_block
from weft.scalar.index import simplify
from weft.scalar.nest import Block, Buffer, Fold, For, Kernel, Stmt, Store, Update, walk
from weft.scalar.ops import Constant, apply, axis, constant
from weft.scalar.reach import longest
from weft.scalar.structure import substituted
from weft.scalar.updates import guarded
from weft.targets.gpu import GPU

THREAD = axis("t0")  # the number of a thread in its block


def spread_threads(kernel: Kernel, target: GPU) -> Kernel:
    """One thread's program, inside a loop over the threads of a block and the loops of the grid."""
    threads = threads_of(kernel.body, target)
    block = _Block(threads, target.warp, target.exchanges, threads)
    return replace(kernel, body=block.grid(kernel.body))


def threads_of(body: Block, target: GPU) -> int:
    """A power of two, of whole warps, and no more than the longest loop over threads can use."""
    threads, most = target.warp, _most(body, target)
    limit = target.shared_threads if _sharing(body, "warp") > 1 else target.threads
    while threads < min(most, limit):
        threads *= 2
    return threads


def _most(body: Block, target: GPU) -> int:
    """The most threads that tiles with sums can use, or else those that copy, or other loops."""
    sums, copies, others = list[int](), list[int](), [1]
    for stmt in _outermost(body):
        loops = chain_of(stmt)
        count = math.prod(map(turns, loops)) * min(target.warp, _sharing(stmt.body))
        if len(loops) > 1:
            adds = any(f.role == "reduce" for f in blocks.loops_in(stmt.body))
            (sums if adds else copies).append(count)
        else:
            others.append(count if longest(stmt.lo, stmt.hi) is not None else target.threads)
    return max(sums or copies or others)


def _outermost(body: Block) -> Iterator[For]:
    """The outermost loops over threads."""
    for stmt in body:
        if _is_spread(stmt):
            yield stmt
        elif isinstance(stmt, For):
            yield from _outermost(stmt.body)


def chain_of(stmt: For) -> list[For]:
    """The perfectly nested loops over threads from a loop inwards."""
    return loops_from(stmt, _is_spread)


def turns(loop: For) -> int:
    """The most iterations of a loop."""
    return -(-(longest(loop.lo, loop.hi) or 0) // loop.step)


def runs_once(loop: For) -> bool:
    """Whether a loop is known to run at most one iteration."""
    return (longest(loop.lo, loop.hi) or loop.step + 1) <= loop.step


def _sharing(body: Block, *binds: str) -> int:
    """The most threads that can share one loop; 1 where no loop is shared."""
    return max(map(turns, blocks.loops_in(body, *binds or ("lane", "warp"))), default=1)


@dataclass
class _Block:
    """A block of threads, or a group of neighbours in it: `me` counts in the group."""

    threads: int
    warp: int
    exchanges: bool
    all: int  # threads of the whole block
    own: set[Fold] = field(default_factory=set[Fold])  # of each thread alone
    me: Node = THREAD
    apart: int = 1  # how far neighbours in the group are from each other in the block

    def grid(self, stmts: Block) -> Block:
        """The loops of the grid, around the one over threads."""
        if len(stmts) == 1 and isinstance(stmts[0], For) and stmts[0].bind == "grid":
            return (replace(stmts[0], body=self.grid(stmts[0].body)),)
        inner = {s for f in walk(stmts) if _is_spread(f) for s in walk(f.body)}  # type: ignore[attr-defined]
        outer = [s.buffer for s in walk(stmts) if isinstance(s, nest.Local) and s not in inner]
        stmts = substituted(stmts, {b: replace(b, space="shared") for b in outer})
        body = tuple(self.block(stmts))
        return (For(self.me, constant(0), constant(self.threads), body, 1, "free", "thread"),)

    def block(self, stmts: Block) -> Iterator[Stmt]:
        """Statements that all threads go through together."""
        first = apply("eq", self.me, constant(0))
        for stmt in stmts:
            if _is_spread(stmt) and any(blocks.loops_in(stmt.body, *nest.PARALLEL)):
                yield self.tile(stmt)
            elif isinstance(stmt, For) and _is_in_order(stmt):
                one = axis(f"one_{stmt.label}"), self.me, constant(1)
                yield For(*one, (stmt,), 1, "free", "serial")
            elif isinstance(stmt, For):
                yield from self.loop(stmt)
            elif isinstance(stmt, Update) and stmt.fold in self.own:
                yield guarded(stmt, first)  # what all threads have is folded in once
            else:
                yield _masked(stmt, first)

    def tile(self, stmt: For) -> For:
        """Loops over threads inside each other: a thread has its iterations of all of them."""
        loops = chain_of(stmt)
        count = math.prod(map(turns, loops))
        by_warps = _sharing(stmt.body, "warp") > 1
        lanes = self.threads // count if by_warps else self.lanes_for(count, loops[-1].body)
        groups = self.threads // lanes
        rounds = -(-count // groups)
        name, by = ("floormod", groups) if by_warps else ("floordiv", lanes)
        at, me = axis(f"r_{stmt.label}"), apply(name, self.me, constant(by))
        mine = apply("add", apply("multiply", at, constant(groups)), me) if rounds > 1 else me
        even = count == rounds * groups
        number = mine if even else apply("minimum", mine, constant(count - 1))
        body = self.of_group(loops[-1].body, lanes, groups if by_warps else 1)
        if not even:  # the others do again what the last one does, and store nothing
            there = apply("lt", mine, constant(count))
            slabs = blocks.locals_in(body)
            body = map_statements(body, lambda s: _masked(s, there, slabs))
        once = self.bound_to(loops, number, body)
        # what cancels since axes are counted from their start goes
        once = once.map_terms(lambda t: simplify(t, {}))
        if rounds == 1:
            return once
        return For(at, constant(0), constant(rounds), (once,), 1, "free", "serial")

    def lanes_for(self, count: int, body: Block) -> int:
        """Threads that share one of `count` iterations."""
        lanes, most = 1, _sharing(body)
        while lanes < min(self.warp, most) and 2 * lanes * count <= self.threads:
            lanes *= 2
        return lanes

    def of_group(self, body: Block, lanes: int, apart: int) -> Block:
        """What a group of so many threads, so far apart, does in an iteration that it has."""
        bind = "lane" if apart == 1 else "warp"
        if lanes == 1:
            return tuple(map(self.part_of, rebound(body, bind, "serial")))
        name, by = ("floormod", lanes) if apart == 1 else ("floordiv", apart)
        me, near = apply(name, self.me, constant(by)), self.exchanges and apart == 1
        group = _Block(lanes, self.warp, near, self.threads, self.own, me, apart)
        return tuple(group.block(rebound(body, bind, "thread")))

    def part_of(self, stmt: Stmt) -> Stmt:
        """A statement of one thread's part; what loops over threads do inside it, all share."""
        if not isinstance(stmt, For):
            return stmt
        if not _is_spread(stmt):
            return from_zero(replace(stmt, body=tuple(map(self.part_of, stmt.body))))
        loops = chain_of(stmt)
        at, count = axis(f"e_{stmt.label}"), math.prod(map(turns, loops))
        nest = self.bound_to(loops, at, loops[-1].body)
        return For(at, self.me, constant(count), (nest,), self.threads, "free", "serial")

    def bound_to(self, loops: list[For], number: Node, body: Block) -> For:
        """The body in iteration `number` of loops inside each other, the innermost fastest."""
        inner = 1
        for loop in reversed(loops):
            turn = apply("floordiv", number, constant(inner))
            turn = turn if loop is loops[0] else apply("floormod", turn, constant(turns(loop)))
            step = apply("multiply", turn, constant(loop.step))
            at = simplify(step, {self.me: (0, self.threads - 1)})
            body = shifted(body, loop)
            body = (For(loop.axis, at, apply("add", at, constant(1)), body, 1, "free", "serial"),)
            inner *= turns(loop)
        assert isinstance(body[0], For)
        return body[0]

    def loop(self, stmt: For) -> Iterator[Stmt]:
        """A loop; what its threads have each of its folds combined behind it."""
        spread = [u for f in walk((stmt,)) if _is_spread(f) for u in walk((f,))]
        shared = {u.fold for u in spread if isinstance(u, Update)}
        parts = {f: f.suffixed("own") for f in stmt.folds if f in shared}
        self.own.update(parts.values())
        stmt = substituted(stmt, parts)
        if _is_spread(stmt):
            yield self.strided(stmt)
        else:
            yield replace(stmt, body=tuple(self.block(stmt.body)))
        for fold, part in parts.items():
            yield from self.combined(fold, part)

    def strided(self, stmt: For) -> For:
        """Every so many iterations of a loop, from the thread's own on."""
        mine = apply("multiply", self.me, constant(stmt.step))
        step = stmt.step * self.threads
        short = self.threads < self.all and self.apart == 1
        if short and (stmt.extent or 1) % step == 0:  # and of one length
            body = shifted(stmt.body, replace(stmt, lo=mine))
            return replace(stmt, step=step, body=body, bind="unroll")
        return replace(stmt, lo=simplify(apply("add", stmt.lo, mine), {}), step=step, bind="serial")

    def combined(self, fold: Fold, part: Fold) -> Iterator[Stmt]:
        """The fold of what all threads have, in each of them: as many at once as make a warp.

        The first step is by exchanges where the target has them, others through shared memory.
        """
        width = 1  # threads that have the same
        while width < self.threads:
            more = min(width * self.warp, self.threads)
            into = fold if more == self.threads else fold.suffixed("w")
            if width == 1 and self.exchanges:
                yield self.exchanged(into, part)
            else:
                yield from self.through_memory(into, part, width, more)
            width, part = more, into

    def exchanged(self, into: Fold, part: Fold) -> For:
        """What the threads of a warp have, in each of them."""
        steps: list[Stmt] = [Update(into, part.accs, True)]
        distance = min(self.warp, self.threads) // 2
        while distance:
            other = tuple(make(ThreadXor(distance), c) for c in into.running)
            steps.append(Update(into, other, True))
            distance //= 2
        return self._scope(f"w_{part.labels[0].removesuffix('_own')}", steps, constant(1), into)

    def through_memory(self, into: Fold, part: Fold, width: int, more: int) -> Iterator[Stmt]:
        """What `more` threads have, each `width` of them the same: the first ones write it."""
        number = apply("floordiv", THREAD, constant(width))
        leads = apply("eq", apply("floormod", THREAD, constant(width)), constant(0))
        label = f"p_{into.labels[0]}"
        types = (TensorType(dtype, (self.all // width,)) for dtype in part.dtypes)
        pairs = zip(into.labels, types, strict=True)
        parts = [Buffer(f"{name}_parts", type_, "shared") for name, type_ in pairs]
        yield from map(nest.Local, parts)
        for buffer, acc in zip(parts, part.accs, strict=True):
            yield Store(buffer, (simplify(number, {}),), acc, leads if width > 1 else None)
        group = apply("floordiv", THREAD, constant(more))
        first = apply("multiply", group, constant(more // width))
        at = axis(label) if more == self.all else apply("add", first, axis(label))
        if self.apart > 1:
            far = apply("multiply", axis(label), constant(self.apart))
            at = apply("add", apply("floormod", THREAD, constant(self.apart)), far)
        values = tuple(make(nest.Load(buffer), at) for buffer in parts)
        yield self._scope(label, [Update(into, values, True)], constant(more // width), into)

    @staticmethod
    def _scope(label: str, body: Sequence[Stmt], end: Node, fold: Fold) -> For:
        role = "scan" if len(body) > 1 else "reduce"  # a scan reads what it has so far
        return For(axis(label), constant(0), end, tuple(body), 1, role, "serial", (fold,))


def from_zero(loop: For) -> For:
    """The loop with its axis counted from its start, where that moves and the length does not."""
    length = longest(loop.lo, loop.hi)
    literal = simplify(apply("subtract", loop.hi, loop.lo), {}) is constant(length or 0)
    if isinstance(loop.lo.op, Constant) or not literal:
        return loop
    return replace(loop, lo=constant(0), hi=constant(length or 0), body=shifted(loop.body, loop))


def shifted(body: Block, loop: For) -> Block:
    """The body of a loop whose axis is counted from its start."""
    moved = {loop.axis: apply("add", loop.lo, loop.axis)}
    return body if loop.lo is constant(0) else substitute_block(body, moved)


def _masked(stmt: Stmt, mask: Node, but: Collection[Buffer] = ()) -> Stmt:
    """A store only where the mask holds, and there alone it reads the memory it changes.

    But for a thread's own memory, and these buffers.
    """
    if not isinstance(stmt, Store) or stmt.buffer.space == "local" or stmt.buffer in but:
        return stmt

    def alone(node: Node) -> Node | None:
        same = isinstance(node.op, nest.Load) and node.op.buffer == stmt.buffer
        return blocks.masked(node, mask) if same else None

    value = rebuild((stmt.value,), alone)[0]
    mask = mask if stmt.mask is None else apply("and", mask, stmt.mask)
    return replace(stmt, value=value, mask=mask)


def _is_in_order(stmt: For) -> bool:
    """Whether one thread must do all of a nest: it reads again what it stores."""
    spread = any(blocks.loops_in((stmt,), "thread"))
    return not stmt.folds and not spread and reads_again((stmt,))


def _is_spread(stmt: Stmt) -> TypeGuard[For]:
    return isinstance(stmt, For) and stmt.bind == "thread"
