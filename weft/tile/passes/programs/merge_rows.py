"""merge_rows: merges kernels that pass on whole rows into one, over cached blocks of rows.

before  kernel s(x, y) -> s                   after  kernel z(x, y, v) -> z
        for a0 in 0..1024:  # free                   for a0 in 0..16:  # free
            for a1 in 0..512:  # free                    local s_rows: f32[64,512]
                for a2 in 0..64:  # reduce               for a1 in 0..64:  # free
                    acc0 <- add(acc0, x*y)                   ... s_rows[a1, a2] = acc0
                s[a0, a1] = acc0                         for a4 in 0..64:  # free
        kernel z(s, v) -> z                                  ... acc1 <- add(acc1, s_rows*v)
        for a0 in 0..1024:  # free                           z[a0 * 64 + a4, a5] = acc1
            ... acc0 <- add(acc0, s*v)

The scores of attention, their softmax and the product with the values become one kernel. Operands
that all rows share (`y`, `v`) are read again for every block; the price decides whether it pays.
"""

from collections import Counter
from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, takewhile
from typing import Any

from weft.core.node import Node
from weft.core.types import TensorType
from weft.scalar.blocks import Index, accesses, loads, locals_in, redirect, substitute_block
from weft.scalar.index import simplify
from weft.scalar.nest import Block, Buffer, Call, For, Kernel, Local, Program, Store, walk
from weft.scalar.ops import add, apply, axis, constant, floordiv, minimum, multiply, subtract
from weft.scalar.sizes import hint
from weft.scalar.structure import renumber, structure
from weft.scalar.substitution import substituted
from weft.targets.machine import Machine
from weft.tile.analysis.access import chain, span, trips
from weft.tile.passes.cpu.skip_masked import halfway, skip_masked
from weft.tile.passes.programs.pack_constants import packed
from weft.tile.price.traffic import memory_ns

ROWS = 64  # of a block at most: enough for what rows share to be read seldom
WORTH = 0.9  # of the memory traffic that the kernels have one by one
SEEN = 0.5  # of the time to move memory, while a kernel computes

Price = Callable[[Block], float]
Run = tuple[Sequence[Any], Sequence[Any]]  # steps, and what stands for them


def merge_rows(program: Program, price: Price, target: Machine) -> Program:
    """Merge every run of kernels for which one kernel is cheaper."""
    known: dict[Hashable, bool] = {}  # layers repeat
    readers = readers_of(program)

    def longest(steps: Sequence[Any], first: Any) -> Run:
        members = made = [first]
        while (after := reader(steps, members)) is not None:
            merged = _merged([*members, after], readers, target)
            if merged is None:
                break
            names = {b.name for s in steps for b in (*s.inputs, *s.outputs)}
            one = packed(merged, {b.name for b in merged.inputs}, names, target)
            key = structure(one[-1]), structure(after)
            if key not in known:
                known[key] = better(one, [*made, after], price, target)
            if not known[key]:
                break
            members, made = [*members, after], one
        return members, made

    return merge_runs(program, longest)


def readers_of(program: Program) -> Counter[Buffer]:
    """How often each buffer is read, the program's caller included."""
    return Counter((*program.outputs, *(b for s in program.steps for b in s.inputs)))


def merge_runs(program: Program, run: Callable[[Sequence[Any], Any], Run]) -> Program:
    """The program with runs of steps replaced: run(steps, first) has those merged with `first`."""
    steps, first = list(program.steps), 0
    while first < len(steps):
        members, made = run(steps, steps[first])
        if len(members) == 1:
            first += 1
            continue
        at = steps.index(members[-1])
        steps[at : at + 1] = made
        steps = [s for s in steps if s not in members]
    return replace(program, steps=tuple(steps))


def better(one: Sequence[Kernel], apart: Sequence[Kernel], price: Price, target: Machine) -> bool:
    """Whether one kernel is: as it is, or without the columns that a mask rules out for a block."""
    if _pays(one, apart, price, target):
        return True
    shorter = [skip_masked(k, target) for k in one]
    cut = [*map(structure, shorter)] != [*map(structure, one)]
    return cut and _pays([*map(halfway, shorter)], apart, price, target)


def _pays(one: Sequence[Kernel], apart: Sequence[Kernel], price: Price, target: Machine) -> bool:
    """Clearly less memory traffic, in no more time; computing hides part of what moves."""
    moved = [sum(memory_ns(k.body, target) for k in kernels) for kernels in (one, apart)]
    times = [sum(price(k.body) for k in kernels) for kernels in (one, apart)]
    us = [t + SEEN * ns / target.cores / 1e3 for t, ns in zip(times, moved, strict=True)]
    return moved[0] < WORTH * moved[1] and us[0] <= us[1]


def reader(steps: Sequence[Kernel | Call], members: Sequence[Kernel | Call]) -> Kernel | None:
    """The first step after the members that reads what they wrote, if it has rows."""
    written = {b for m in members for b in m.outputs}
    rest = steps[steps.index(members[-1]) + 1 :]
    found = next((s for s in rest if not written.isdisjoint(s.inputs)), None)
    return found if isinstance(found, Kernel) and leading(found) else None


def leading(step: Kernel | Call) -> list[For]:
    """The free loops around the whole body of a kernel."""
    if not isinstance(step, Kernel) or len(step.body) != 1:
        return []
    free = chain(step.body[0], "free")[0]
    return [*takewhile(lambda f: f.lo is constant(0) and f.step == 1 and span(f) is not None, free)]


def _merged(
    members: Sequence[Kernel], readers: Mapping[Buffer, int], target: Machine
) -> Kernel | None:
    """The members as one kernel over blocks of rows, where what they pass on allows it."""
    read = Counter(b for m in members for b in m.inputs)
    passed = [b for m in members for b in m.outputs if b in read]
    small = hint(sum(b.type.span * b.type.dtype.bytes for b in passed)) <= target.l2
    if small or any(readers[b] > read[b] for b in passed):
        return None  # what the cache holds between kernels is as good there
    depth = shared_depth(members, passed)
    if not depth:
        return None
    handed = {b: Rows(b, members, depth) for b in passed}
    rows = leading(members[0])[depth - 1]
    whole = _Merge(members, depth, trips(rows), handed).kernel()
    size = hint(sum(b.type.bytes for b in locals_in(whole.body)))
    block = _block(rows, target.l2 * trips(rows) // size, target.register_tile[0])
    return _Merge(members, depth, block, handed).kernel() if block else None


def _block(loop: For, most: int, tile: int) -> int:
    """Rows of a block: they divide all, fill register tiles, and fit the cache; 0 if none do.

    Where a size decides how many there are, the last block may be a part of one.
    """
    rows = trips(loop)
    if loop.extent is None:
        return next((n for n in (ROWS, ROWS // 2, ROWS // 4) if tile <= n <= most), 0)
    fit = [n for n in range(min(rows, tile), min(rows, most) + 1) if rows % n == 0]
    return max(fit, key=lambda n: (min(n, ROWS) // tile, -n), default=0)


def shared_depth(members: Sequence[Kernel], passed: Sequence[Buffer]) -> int:
    """Leading loops that all share, and whose iterations pass on slices of their own."""
    loops = [leading(m) for m in members]
    same = takewhile(lambda fs: len({span(f) for f in fs}) == 1, zip(*loops, strict=False))
    for depth in range(len(list(same)), 0, -1):
        if all(_own(b, members, depth) for b in passed):
            return depth
    return 0


def _own(buffer: Buffer, members: Sequence[Kernel], depth: int) -> bool:
    """Whether iteration i of the shared loops touches the slice at i alone."""
    at = ((_levels(m, depth), index) for m in members for index in touches(m.body, buffer))
    seen = {tuple(map(levels.get, index)) for levels, index in at}
    levels = [n for n in next(iter(seen)) if n is not None]
    return len(seen) == 1 and sorted(levels) == list(range(depth))


def _levels(kernel: Kernel, depth: int) -> dict[Node, int]:
    return {f.axis: n for n, f in enumerate(leading(kernel)[:depth])}


def touches(block: Block, buffer: Buffer) -> list[Index]:
    """Indices of every access of a buffer."""
    return [index for b, index in accesses(block) if b == buffer]


def _in_place(nests: Sequence[For], locals_: Sequence[Buffer]) -> dict[Buffer, Buffer]:
    """Buffers stored by the only statement that reads another for the last time, at one place."""
    found: dict[Buffer, Buffer] = {}
    for n, rows in enumerate(nests):
        last, before, after = rows.body[-1:], rows.body[:-1], tuple(nests[n + 1 :])
        stmts = [s for s in walk(last) if s.terms()]
        for old in (b for b in locals_ if not touches(after, b)):
            readers = [s for s in stmts if old in loads(*s.terms())]
            new = readers[0].buffer if len(readers) == 1 and isinstance(readers[0], Store) else old
            alike = new in locals_ and new is not old and new.type == old.type
            at = {*touches(last, new), *touches(last, old)}
            if alike and len(at) == 1 and not touches(before, new):
                found[new] = found.get(old, old)
    return found


class Rows:
    """What stands for a buffer within a block: its rows, the outer loops' positions left out."""

    def __init__(self, buffer: Buffer, members: Sequence[Kernel], depth: int) -> None:
        member = next(m for m in members if buffer in m.outputs)
        index, levels = touches(member.body, buffer)[0], _levels(member, depth)
        sizes = enumerate(buffer.type.shape)
        self.others = [p for p, size in sizes if index[p] not in levels and size not in (0, 1)]
        self.shape = tuple(buffer.type.shape[p] for p in self.others)

    def index(self, index: Index) -> Index:
        return (ROW, *(index[p] for p in self.others))


def merged_kernel(members: Sequence[Kernel], inside: Container[Buffer], body: Block) -> Kernel:
    """One kernel in place of several, with their operands but for the buffers `inside`."""
    inputs = dict.fromkeys(b for m in members for b in m.inputs if b not in inside)
    outputs = tuple(b for m in members for b in m.outputs if b not in inside)
    origin = tuple(dict.fromkeys(line for m in members for line in m.origin))
    return Kernel(members[-1].name, tuple(inputs), outputs, renumber(body), origin)


ROW = axis("row")  # of a block, in a kernel that is being put together


@dataclass
class _Merge:
    """The merged kernel, as it is built."""

    members: Sequence[Kernel]
    depth: int
    block: int
    handed: dict[Buffer, Rows]

    def kernel(self) -> Kernel:
        shapes = {
            b: TensorType(b.type.dtype, (self.block, *h.shape)) for b, h in self.handed.items()
        }
        self.local = {b: Buffer(f"{b.name}_rows", t, "local") for b, t in shapes.items()}
        axes, accs = count(), count()
        nests = [self.rows(replace(m, body=renumber(m.body, axes, accs))) for m in self.members]
        over = _in_place(nests, tuple(self.local.values()))
        kept = [Local(b) for b in self.local.values() if b not in over]
        body: Block = (*kept, *substituted(tuple(nests), over))
        for n, loop in reversed(list(enumerate(leading(self.members[0])[: self.depth]))):
            each = self.block if n == self.depth - 1 else 1
            upward = apply(add, loop.hi, constant(each - 1))
            turns = simplify(apply(floordiv, upward, constant(each)), {})
            body = (For(axis(f"outer{n}"), constant(0), turns, body),)
        return merged_kernel(self.members, self.local, body)

    def rows(self, member: Kernel) -> For:
        """What a member does with the rows of a block, over axes of its own."""
        loops = leading(member)[: self.depth]
        values = {f.axis: axis(f"outer{n}") for n, f in enumerate(loops)}
        first = apply(multiply, values[loops[-1].axis], constant(self.block))
        values[loops[-1].axis] = apply(add, first, ROW)
        own = redirect(loops[-1].body, self.local, lambda b, index: self.handed[b].index(index))
        body, end = substitute_block(own, values), constant(self.block)
        if loops[-1].extent is None:
            end = apply(minimum, end, apply(subtract, loops[-1].hi, first))
        return For(ROW, constant(0), end, body)
