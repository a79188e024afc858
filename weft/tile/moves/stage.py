"""Stages terms: computes them into a buffer, from where they are read.

fill, read = in_shared("x", x[a0, a2], (a0 in b0..b0 + 64, a2 in k0..k0 + 16), labels)

A row that several loops over threads read is loaded by all threads into shared memory, once:

before  for a1 in 0..2048:  # reduce thread     after  local x_s0: f32[2048] in shared
            ... load x[a0, a1]                         for m0 in 0..2048:  # free thread
        for a2 in 0..2048:  # free thread                  x_s0[m0] = load x[a0, m0]
            ... load x[a0, a2]                         for a1 in 0..2048:  # reduce thread
                                                           ... load x_s0[a1]

A term that two loops over one row compute is stored by the first, where the second reads it:

before  for a1 in 0..512:  # reduce acc1        after  local row0: f32[512]
            acc1 <- add(acc1, exp(x))                  for a1 in 0..512:  # reduce acc1
        for a2 in 0..512:  # free                          row0[a1] = exp(x)
            y[a0, a2] = exp(x) / acc1                      acc1 <- add(acc1, exp(x))
                                                       for a2 in 0..512:  # free
                                                           y[a0, a2] = row0[a2] / acc1
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle

from weft.core.node import Node, make, postorder, substitute
from weft.scalar import blocks, nest
from weft.scalar.blocks import expand_loops, locals_in, loops_in, map_each, map_loops, nodes
from weft.scalar.choices import Choices
from weft.scalar.divisors import Divisors
from weft.scalar.nest import Block, Buffer, For, Kernel, Load, Local, Stmt, Store, Update
from weft.scalar.ops import apply, axis, constant, is_index
from weft.targets.gpu import GPU, STATIC
from weft.targets.machine import Machine
from weft.tile.analysis import access
from weft.tile.analysis.access import WIDEST, Ranges, span, stride_of, strip_width, term_cost, trips
from weft.tile.analysis.fragments import in_warps, operands
from weft.tile.analysis.tiles import tiles_of
from weft.tile.moves.loops import Labels, guarded, in_strips, nested, past

HERE = axis("here")  # where a loop is along a row
WORTH = 8.0  # vector instructions; a store and a load of the row cost about two


def staged(buffer: Buffer, term: Node, loops: Sequence[For], labels: Labels) -> tuple[Block, Node]:
    """Declares a buffer and fills it with a term; how to read it.

    loops   over axes of the term; those that fill it get names of their own

    before  x[a0, a2]           after  for m0 in b0..b0 + 64: for n0 in k0..k0 + 16:
                                           x_s0[m0 - b0, n0 - k0] = x[m0, n0]
                                       and then x_s0[a0 - b0, a2 - k0]
    """
    stems = cycle("mnop")
    copies = [replace(f, axis=labels.axis(next(stems))) for f in loops]
    index = [past(f.axis, f.lo) for f in loops]
    axes = {f.axis: copy.axis for f, copy in zip(loops, copies, strict=True)}
    value, *place = substitute((term, *index), axes)
    fill = nested(copies, (Store(buffer, tuple(place), value),))
    return (Local(buffer), *fill), make(Load(buffer), *index)


def in_shared(name: str, term: Node, loops: Sequence[For], labels: Labels) -> tuple[Block, Node]:
    """Stages a term in shared memory, where threads run over the loops."""
    copies = [For(f.axis, f.lo, f.hi, (), 1, "free", "thread") for f in loops]
    buffer = labels.buffer(f"{name}_s", term.type.dtype, [*map(trips, copies)], "shared")
    return staged(buffer, term, copies, labels)


@dataclass(frozen=True)
class Slab:
    """A part of a sum's terms that threads share, over a loop of threads and the chunk's."""

    term: Node
    across: For  # the loop of threads it moves with
    inner: For  # the loop inside a chunk
    last: Node | None = None  # where the sum ends, if that is before the last chunk does

    @property
    def bytes(self) -> int:
        """With a pad between its lines."""
        lines, line = (trips(f) for f in self.loops({}))
        return lines * (line * self.term.type.dtype.bytes + WIDEST)

    def loops(self, ranges: Ranges) -> tuple[For, For]:
        """Both loops, the one along which memory is contiguous last."""
        parts = [n for n in postorder(self.term) if isinstance(n.op, Load)]
        along = any(stride_of(n, self.inner.axis, ranges) == 1 for n in parts)
        return (self.across, self.inner) if along else (self.inner, self.across)

    def filled(self, known: Divisors | None, ranges: Ranges, labels: Labels) -> tuple[Block, Node]:
        """Its buffer and the loops that fill it; how to read it.

        Threads take strips as wide as the divisors `known` of axes allow; single elements without
        them.
        """
        term, along, loops = self.term, self.inner.axis, self.loops(ranges)
        if self.last is not None:
            inside = apply("lt", along, self.last)
            term = guarded(term, along, inside)
            if not isinstance(term.op, Load):
                term = apply("where", inside, term, constant(0, term.type.dtype))
        fill, read = in_shared(blocks.loads(self.term)[0].name, term, loops, labels)
        *_, line = loops_in(fill)
        width = 1 if known is None else strip_width(nodes(fill), line.axis, known, ranges)
        if width > 1 and trips(line) % width == 0:
            at = labels.axis("c")
            fill = map_each(
                fill, For, lambda f: in_strips(f, at, width) if f.axis is line.axis else f
            )
        return fill, read


def room(kernel: Kernel, target: GPU) -> int:
    """Bytes of shared memory that slabs may take, beside what nests of the kernel hand over."""
    held = sum(b.bytes for b in {*locals_in(kernel.body)})
    sums = [(t.innermost, t.threads[1]) for t in tiles_of(kernel.body) if t.sum is not None]
    units = all(s and operands(s.body, False) and in_warps(trips(c)) for s, c in sums)
    if target.matrix_units and units:
        held = 0  # own_rows will have it in registers
    most = STATIC if held else max(STATIC, target.shared // 2)
    return min(most, target.shared - held)


def reads_global(term: Node) -> bool:
    return any(isinstance(n.op, Load) and n.op.buffer.space == "global" for n in postorder(term))


def slabs(update: Update, threads: tuple[For, ...], inner: For) -> Iterator[Slab]:
    """The largest terms that move with the chunk and with one loop of threads."""
    stack, seen = list(update.values), set[Node]()
    while stack:
        term = stack.pop()
        moves = [t for t in threads if t.axis in nest.free_variables(term)]
        if term in seen or inner.axis not in nest.free_variables(term) or not moves:
            continue
        seen.add(term)
        if len(moves) == 1 and reads_global(term):
            yield Slab(access.narrow(term), moves[0], inner)
        else:
            stack.extend(term.args)


@dataclass
class RowStager:
    """Stages rows in every block of statements, while shared memory lasts."""

    labels: Labels
    left: int  # bytes of shared memory

    def block(self, stmts: Block) -> Block:
        loops = [s for s in stmts if isinstance(s, For) and s.bind == "thread"]
        for i, first in enumerate(loops):
            ends = (first.lo, first.hi, first.step)
            alike = [f for f in loops[i + 1 :] if (f.lo, f.hi, f.step) == ends]
            for row in self.rows(first):
                others = [f for f in alike if row in self.rows(f)]
                staged = self.staged(row, [first, *others], stmts) if others else None
                if staged is not None:
                    return self.block(staged)
        return map_loops(stmts, lambda s: s if s in loops else replace(s, body=self.block(s.body)))

    def rows(self, loop: For) -> Iterator[Node]:
        """The loads of rows in a loop, with its axis replaced by HERE."""
        inside = {inner.axis for inner in loops_in(loop.body)}
        for term in nodes(loop.body):
            if isinstance(term.op, Load) and term.op.buffer.space == "global":
                axes = nest.free_variables(term)
                if loop.axis in axes and not axes & inside:
                    yield substitute((term,), {loop.axis: HERE})[0]

    def staged(self, row: Node, loops: list[For], stmts: Block) -> Block | None:
        """The statements with the row staged before the first of the loops that read it."""
        first = loops[0]
        extent = first.extent or 0
        size = extent * row.type.dtype.bytes
        if not 0 < size <= self.left or row.op.buffer in blocks.stored_in(stmts):  # type: ignore[attr-defined]
            return None
        self.left -= size
        name: str = row.op.buffer.name  # type: ignore[attr-defined]
        fill, load = in_shared(name, row, [replace(first, axis=HERE)], self.labels)

        def read(loop: For) -> Block:
            if loop not in loops:
                return (loop,)
            old, new = substitute((row, load), {HERE: loop.axis})
            changed = replace(loop, body=blocks.substitute_block(loop.body, {old: new}))
            return (*fill, changed) if loop is first else (changed,)

        return expand_loops(stmts, read)


def rows_staged(body: Block, target: Machine, choices: Choices | None = None) -> Block:
    """The body with terms that two loops over one row share computed once, into a row buffer."""
    labels, choices = Labels(body), choices or Choices()

    def visit(block: Block) -> Block:
        stmts = [replace(s, body=visit(s.body)) if isinstance(s, For) else s for s in block]
        for i, first in enumerate(stmts):
            for j in range(i + 1, len(stmts)):
                second = stmts[j]
                if blocks.stored_in(tuple(stmts[i:j])) & set(blocks.loads(*nodes((second,)))):
                    continue  # what the first read may have changed
                if isinstance(first, For) and isinstance(second, For) and _alike(first, second):
                    joint = _with_store(first, stmts[i + 1 : j], second)
                    if joint is not None:
                        return visit((*stmts[:i], joint, *stmts[i + 1 : j], *stmts[j + 1 :]))
                    staged = _stage(first, second, target, labels, choices)
                    if staged is not None:
                        local, stmts[i], stmts[j] = staged
                        return visit((local, *stmts))
        return tuple(stmts)

    return visit(body)


def _alike(first: For, second: For) -> bool:
    """Whether two loops are innermost and over the same range."""
    flat = not any(isinstance(s, For) for s in (*first.body, *second.body))
    same = first.lo is second.lo and first.hi is second.hi and first.step == second.step
    return flat and same and not first.bind and not second.bind and span(first) is not None


def _with_store(first: For, between: Sequence[Stmt], second: For) -> For | None:
    """The first loop, storing what it computes, where to store that is all the second does."""
    store = second.body[0]
    if len(second.body) != 1 or not isinstance(store, Store) or store.mask is not None:
        return None
    store = store.map_terms(lambda t: substitute((t,), {second.axis: first.axis})[0])
    terms = list(nodes(first.body))
    reads = [t.args for t in terms if getattr(t.op, "buffer", None) == store.buffer]
    busy = store.buffer in blocks.loads(*nodes(tuple(between)))
    if busy or store.value not in terms or any(index != store.index for index in reads):
        return None
    return replace(first, body=(*first.body, store))


def _stage(
    first: For, second: For, target: Machine, labels: Labels, choices: Choices
) -> tuple[Local, Stmt, Stmt] | None:
    """Both loops with the most expensive term that they share in a row buffer."""
    computed, same = set(nodes(first.body)), {second.axis: first.axis}

    def moves(term: Node) -> bool:
        return second.axis in nest.free_variables(term)

    def cost(term: Node) -> float:
        return sum(term_cost(n) for n in postorder(term) if moves(n))

    own = [t for t in nodes(second.body) if moves(t) and not isinstance(t.op, Load)]
    known = zip(own, substitute(tuple(own), same), strict=True)
    both = {t: None for t, of_first in known if not is_index(t) and of_first in computed}
    inside = {a for t in both for a in t.args}  # which cost no more than what they are inside of
    best = max((t for t in both if t not in inside), key=cost, default=None)
    if best is None or trips(first) * best.type.dtype.bytes > target.l2 // 2:
        return None
    if not choices.decide("stage", cost(best) > WORTH):
        return None
    row = labels.buffer("row", best.type.dtype, (span(first),))
    store = Store(row, (first.axis,), substitute((best,), same)[0])
    second_body = blocks.substitute_block(second.body, {best: make(Load(row), second.axis)})
    updates = (i for i, s in enumerate(first.body) if isinstance(s, Update))
    at = next(updates, len(first.body))
    first = replace(first, body=(*first.body[:at], store, *first.body[at:]))
    return Local(row), first, replace(second, body=second_body)
