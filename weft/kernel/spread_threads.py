"""spread_threads: a nest with loops over threads becomes the program of one thread.

before  for a0 in 0..32:  # free grid           after  for a0 in 0..32:  # free grid
            for a1 in 0..2048:  # reduce thread            for t0 in 0..256:  # free thread
                acc0 <- add(acc0, load x[..])                  for a1 in t0..2048 by 256:  # reduce
            y[a0] = acc0                                           acc0_own <- add(acc0_own, ..)
                                                               (shuffles; parts in shared memory)
                                                               y[a0] = acc0 if t0 == 0

What stands outside the loops over threads, every thread computes, and the first one stores.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace

from weft.core.node import Node, make
from weft.core.types import TensorType
from weft.kernel.ops import Barrier, ThreadXor
from weft.scalar import nest
from weft.scalar.blocks import accesses, loads, map_statements, nodes
from weft.scalar.index import simplify
from weft.scalar.nest import Block, Buffer, Fold, For, Kernel, Stmt, Store, Update, walk
from weft.scalar.ops import apply, axis, constant
from weft.scalar.reach import longest
from weft.scalar.structure import rename_block
from weft.targets.gpu import GPU


def spread_threads(kernel: Kernel, target: GPU) -> Kernel:
    """One thread's program, inside a loop over the threads of a block and the loops of the grid."""
    written = {s.buffer for s in walk(kernel.body) if isinstance(s, Store)}
    shared = written & set(loads(*nodes(kernel.body)))
    block = _Block(threads_of(kernel.body, target), target.warp, frozenset(shared))
    return replace(kernel, body=block.grid(kernel.body))


def threads_of(body: Block, target: GPU) -> int:
    """A power of two, of whole warps, and no more than the longest loop over threads can use."""
    loops = [s for s in walk(body) if isinstance(s, For) and s.bind == "thread"]
    most = max((longest(s.lo, s.hi) or target.threads for s in loops), default=1)
    threads = target.warp
    while threads < min(most, target.threads):
        threads *= 2
    return threads


@dataclass
class _Block:
    """A block of threads, and what they share: memory that some write and others read."""

    threads: int
    warp: int
    shared: Collection[Buffer]
    own: set[Fold] = field(default_factory=set[Fold])  # of each thread alone
    me: Node = field(default_factory=lambda: axis("t0"))

    @property
    def first(self) -> Node:
        return apply("eq", self.me, constant(0))

    def grid(self, stmts: Block) -> Block:
        """The loops of the grid, around the one over threads."""
        if len(stmts) == 1 and isinstance(stmts[0], For) and stmts[0].bind == "grid":
            return (replace(stmts[0], body=self.grid(stmts[0].body)),)
        inner = {s for f in walk(stmts) if _is_spread(f) for s in walk(f.body)}  # type: ignore[attr-defined]
        outer = [s.buffer for s in walk(stmts) if isinstance(s, nest.Local) and s not in inner]
        stmts = rename_block(stmts, {b: replace(b, space="shared") for b in outer})
        self.shared = {replace(b, space="shared") if b in outer else b for b in self.shared}
        body = tuple(self.block(stmts))
        threads = constant(self.threads)
        return (For(self.me, constant(0), threads, body, 1, "free", "thread"),)

    def block(self, stmts: Block) -> Iterator[Stmt]:
        """Statements that all threads go through together."""
        for stmt in stmts:
            if isinstance(stmt, For):
                yield from self.loop(stmt)
            elif isinstance(stmt, Update) and stmt.fold in self.own:
                yield self.folded_by_one(stmt)
            else:
                yield self.by_one(stmt) if isinstance(stmt, Store) else stmt
            inside = isinstance(stmt, For) and not _is_spread(stmt)  # its own statements meet
            if not inside and self.meets((stmt,)):
                yield Barrier()

    def loop(self, stmt: For) -> Iterator[Stmt]:
        """A loop; what its threads have each of its folds combined behind it."""
        spread = [u for f in walk((stmt,)) if _is_spread(f) for u in walk((f,))]
        shared = {u.fold for u in spread if isinstance(u, Update)}
        parts = {
            f: replace(f, labels=tuple(f"{n}_own" for n in f.labels))
            for f in stmt.folds
            if f in shared
        }
        self.own.update(parts.values())

        def renamed(inner: Stmt) -> Stmt:
            if not isinstance(inner, Update):
                return inner
            return replace(inner, fold=parts.get(inner.fold, inner.fold))

        body = map_statements(stmt.body, renamed) if parts else stmt.body
        stmt = replace(stmt, body=body, folds=tuple(parts.get(f, f) for f in stmt.folds))
        if _is_spread(stmt):
            mine = apply("multiply", self.me, constant(stmt.step))
            lo = simplify(apply("add", stmt.lo, mine), {})
            yield replace(stmt, lo=lo, step=stmt.step * self.threads, bind="serial")
        else:
            yield replace(stmt, body=tuple(self.block(stmt.body)))
        for fold, part in parts.items():
            yield from self.combined(fold, part)

    def meets(self, stmts: Block) -> bool:
        """Whether the statements touch what other threads touch as well."""
        return any(buffer in self.shared for buffer, _ in accesses(stmts))

    def by_one(self, stmt: Store) -> Store:
        mask = self.first if stmt.mask is None else apply("and", self.first, stmt.mask)
        return replace(stmt, mask=mask)

    def folded_by_one(self, stmt: Update) -> Update:
        """What all threads have is folded in once: the others fold in the identity."""
        carriers = stmt.values if stmt.partial else stmt.fold.monoid.lift(stmt.values)
        none = stmt.fold.monoid.identity(stmt.fold.dtypes)
        pairs = zip(carriers, none, strict=True)
        return Update(stmt.fold, tuple(apply("where", self.first, c, i) for c, i in pairs), True)

    def combined(self, fold: Fold, part: Fold) -> Iterator[Stmt]:
        """The fold of what all threads have, in each of them: over a warp, then over warps."""
        several = self.threads > self.warp
        whole = replace(fold, labels=tuple(f"{n}_w" for n in fold.labels)) if several else fold
        steps: list[Stmt] = [Update(whole, part.accs, True)]
        distance = self.warp // 2
        while distance:
            other = tuple(make(ThreadXor(distance), c) for c in whole.running)
            steps.append(Update(whole, other, True))
            distance //= 2
        yield self._scope(f"w_{fold.labels[0]}", tuple(steps), constant(1), whole)
        if several:
            yield from self.over_warps(fold, whole)

    def over_warps(self, fold: Fold, whole: Fold) -> Iterator[Stmt]:
        """The same through shared memory, where every thread reads what each warp has."""
        warps = self.threads // self.warp
        number = apply("floordiv", self.me, constant(self.warp))
        leads = apply("eq", apply("floormod", self.me, constant(self.warp)), constant(0))
        label = f"p_{fold.labels[0]}"
        parts: list[Buffer] = []
        for name, acc in zip(fold.labels, whole.accs, strict=True):
            type_ = TensorType(acc.type.dtype, (warps,))
            parts.append(Buffer(f"{name}_parts", type_, "shared"))
        yield from map(nest.Local, parts)
        for buffer, acc in zip(parts, whole.accs, strict=True):
            yield Store(buffer, (number,), acc, leads)
        yield Barrier()
        values = tuple(make(nest.Load(buffer), axis(label)) for buffer in parts)
        yield self._scope(label, (Update(fold, values, True),), constant(warps), fold)
        yield Barrier()  # before the parts are written again

    @staticmethod
    def _scope(label: str, body: Block, end: Node, fold: Fold) -> For:
        role = "scan" if len(body) > 1 else "reduce"  # a scan reads what it has so far
        return For(axis(label), constant(0), end, body, 1, role, "serial", (fold,))


def _is_spread(stmt: Stmt) -> bool:
    return isinstance(stmt, For) and stmt.bind == "thread"
