"""Schedule moves as values: each prints and parses, checks itself, and lists where it is legal.

move = read_move(Cursor(Line(1, "split{axis=a0, by=8}", "schedule")))   # Split("a0", 8)
move.apply(kernel, target)              # the kernel with a0 in blocks of 8; WeftError if illegal
Split.instances(kernel, target)         # every split that is legal there
A move changes loops that are not bound, so what is bound is so last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any, ClassVar

from weft.core.errors import WeftError, choice
from weft.core.node import Node, require
from weft.core.text.cursor import Cursor, show_name
from weft.core.text.level import CODECS, Codec, Scope, read_attributes
from weft.scalar import blocks, nest
from weft.scalar.blocks import locals_in, loops_in, only_loop
from weft.scalar.index import simplify
from weft.scalar.nest import Block, For, Kernel, Load, Local, Program, free_variables
from weft.scalar.ops import Axis, apply, constant, has_symbol
from weft.scalar.reach import ends_of, extent_of, longest
from weft.scalar.structure import is_checked, substituted
from weft.tile import verify as tile_verify
from weft.tile.analysis.access import ranges_in, stride_of
from weft.tile.analysis.tiles import padded
from weft.tile.moves import legal
from weft.tile.moves.bind import whole_blocks
from weft.tile.moves.join import joined
from weft.tile.moves.legal import Scene, Target
from weft.tile.moves.loops import blocked, guarded, nested
from weft.tile.moves.parts import split_fold
from weft.tile.moves.pipeline import pipelined
from weft.tile.moves.stage import in_shared, staged

WIDTHS = (1, 2, 4, 8, 16, 32, 64)  # that `instances` tries
SLAB_AXES = 4


class Name(str):
    """The name of a loop, a buffer or a bind in the text of a move."""

    __slots__ = ()


CODECS[Name] = Codec(show_name, lambda cursor, scope: cursor.name())


VECTORS = [f"vector{n}" for n in WIDTHS]
OPTIONS: Mapping[str, Callable[[Scene], Iterable[Any]]] = {
    **dict.fromkeys(("axis", "outer", "inner", "at"), lambda at: at.loops),
    "by": lambda at: WIDTHS,
    "lanes": lambda at: WIDTHS,
    "parts": lambda at: WIDTHS,
    "to": lambda at: ["unroll", *legal.rules_for(at.target), *VECTORS],
    "buffer": lambda at: [b.name for b in (*at.kernel.inputs, *locals_in(at.kernel.body))],
}


@dataclass(frozen=True)
class Move:
    """What all moves share. `OPTIONS` has what each of their fields may be."""

    name: ClassVar[str]

    def __str__(self) -> str:
        pairs = ((f.name, getattr(self, f.name)) for f in fields(self))
        shown = (f"{n}={show_name(v) if isinstance(v, str) else v}" for n, v in pairs)
        return f"{self.name}{{{', '.join(shown)}}}"

    def change(self, at: Scene) -> Block:
        """The body of the kernel after the move; WeftError where it is not legal."""
        raise NotImplementedError

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel after the move; WeftError, in a sentence, where it is not legal."""
        before, most = Scene(kernel, target), target.l2
        try:
            made = replace(kernel, body=self.change(before))
            held, most = Scene(made, target).held, getattr(target, "shared", target.l2)
            told = f"buffers of the kernel would take {held} bytes of {most}: stage less"
            require(held <= max(most, before.held), told)
            tile_verify.verify(Program("tile", kernel.name, kernel.inputs, kernel.outputs, (made,)))
        except WeftError as e:
            raise WeftError(f"{self} of kernel {kernel.name}: {e.message}", kernel.where) from e
        return made

    @classmethod
    def candidates(cls, kernel: Kernel, target: Target) -> list[Move]:
        """Moves of this kind with names that there are, legal or not."""
        at = Scene(kernel, target)
        return [cls(*v) for v in product(*(OPTIONS[f.name](at) for f in fields(cls)))]

    @classmethod
    def instances(cls, kernel: Kernel, target: Target) -> list[Move]:
        """Every move of this kind that is legal for the kernel."""
        return [m for m in cls.candidates(kernel, target) if m.is_legal(kernel, target)]

    def is_legal(self, kernel: Kernel, target: Target) -> bool:
        try:
            return self.apply(kernel, target) is not kernel
        except WeftError:
            return False


@dataclass(frozen=True)
class Split(Move):
    """Runs a loop in blocks: needs a loop that is not bound, and not in blocks itself.

    before  for a0 in 0..100:       after  for b0 in 0..100 by 8:
                y[a0] = ...                    for a0 in b0..min(b0 + 8, 100):
                                                   y[a0] = ...
    On a GPU the blocks of a free loop are whole, and accesses beyond its end are masked.
    """

    name = "split"
    axis: Name
    by: int

    def change(self, at: Scene) -> Block:
        loop = at.whole(self.axis, self.by)
        if not at.on_gpu or loop.role != "free":
            return at.put(loop, blocked(loop, at.labels.axis("b"), self.by, bind=""))
        known = has_symbol(loop.hi) or longest(loop.lo, loop.hi) is not None
        require(known, f"how long {self.axis} is depends on a loop around it")
        outer, inner, body = whole_blocks(loop, self.by, at.labels, loop.body)
        told = "beyond the end of the last block a check may fail: split by a divisor"
        require(body is loop.body or not is_checked(body), told)
        return at.put(loop, replace(outer, body=(replace(inner, body=body),), bind=""))


@dataclass(frozen=True)
class Reorder(Move):
    """Exchanges two loops: needs a perfect nest from one to the other, all free or all reduce.

    before  for a0 in ..: for a1 in ..: ...     after  for a1 in ..: for a0 in ..: ...
    """

    name = "reorder"
    outer: Name
    inner: Name

    def change(self, at: Scene) -> Block:
        chain = at.chain(self.outer, self.inner)
        ordered = any(f.monoid.append for f in chain[0].folds)
        require(not ordered, f"the fold of {self.outer} takes values in their order")
        order = [chain[-1], *chain[1:-1], chain[0]]
        for i, loop in enumerate(order):
            legal.clash(loop)
            inside = {f.axis for f in order[i + 1 :]}
            told = f"the ends of {loop.label} move with a loop that would be inside of it"
            require(inside.isdisjoint(free_variables(loop.lo, loop.hi)), told)
        outer, *others = (replace(f, folds=()) for f in order)
        body = nested(others, chain[-1].body)
        return at.put(chain[0], replace(outer, body=body, folds=chain[0].folds))


@dataclass(frozen=True)
class Join(Move):
    """Makes one loop of two: needs a perfect nest of two, both free or both reduce.

    before  for a0 in 0..28: for a1 in 0..512: x[a0, a1]
    after   for j0 in 0..14336: x[j0 // 512, j0 % 512]
    """

    name = "join"
    outer: Name
    inner: Name

    def change(self, at: Scene) -> Block:
        outer, *between, inner = at.chain(self.outer, self.inner)
        require(not between, f"there are loops between {self.outer} and {self.inner}")
        both = joined(outer, inner, at.labels)
        told = f"how often {self.inner} runs is no number, or moves with {self.outer}"
        require(both is not None, told)
        return at.put(outer, both)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Bind(Move):
    """Says how iterations run: needs a loop whose role and place allow that.

    parallel      on the threads of a CPU       grid        on the blocks of a GPU
    vector2 ..    in the lanes of a register    thread      on the threads of a block
    register      side by side, unrolled        lane, warp  on threads that share an iteration of
    unroll        in order, unrolled                        a loop bound to thread
    """

    name = "bind"
    axis: Name
    to: Name

    def change(self, at: Scene) -> Block:
        loop, path = at.free(self.axis), at.path(self.axis)
        alone = self.to != "grid" or only_loop(at.kernel.body) is path[0]
        require(alone, "a kernel of several nests has one block: bind to thread")
        rules = {**legal.rules_for(at.target), "unroll": lambda *_: None}
        kind = "vector" if self.to.startswith("vector") else self.to
        rules[choice("bind", kind, rules)](path, self.to, at.target)
        return at.put(loop, replace(loop, bind=str(self.to)))


@dataclass(frozen=True)
class SplitFold(Move):
    """Folds each block of a loop by itself: needs a reduce loop that declares all folds inside.

    before  for a0 in 0..100:  # reduce     after  for s0 in 0..100 by 8:  # reduce
                acc0 <- add(acc0, x)                   for a0 in s0..min(s0 + 8, 100):  # reduce
                                                           acc0_s0 <- add(acc0_s0, x)
                                                       acc0 <- add(acc0, acc0_s0)
    """

    name = "split_fold"
    axis: Name
    by: int

    def change(self, at: Scene) -> Block:
        loop = at.whole(self.axis, self.by)
        require(loop.role == "reduce" and bool(loop.folds), f"{self.axis} declares no fold")
        other = next((f.label for f in loops_in(loop.body) if f.folds), None)
        require(other is None, f"{other} inside of {self.axis} folds by itself")
        return at.put(loop, split_fold(loop, self.by, at.labels, bind=""))


@dataclass(frozen=True)
class Stage(Move):
    """Copies what an iteration of a loop reads of an input: needs indices of loops alone.

    before  for k0 in ..:                   after  for k0 in ..:
                ... load w[a2, a1]                     local w_s0: f32[64,16]
                                                       for m0 in ..: for n0 in ..:
                                                           w_s0[m0 - k0, n0 - b1] = load w[m0, n0]
                                                       ... load w_s0[a2 - k0, a1 - b1]
    It is for all iterations of loops inside, and of those around that run side by side: threads,
    registers, lanes. On a GPU it lies in shared memory, which all threads fill.
    """

    name = "stage"
    buffer: Name
    at: Name

    def change(self, at: Scene) -> Block:
        path, inputs = at.path(self.at), [b.name for b in at.kernel.inputs]
        choice("input", self.buffer, inputs)
        side, loop = [f for f in path if f.bind.startswith(legal.SIDE_BY_SIDE)], path[-1]
        told = f"iterations of {self.at} run side by side: stage around or inside of it"
        require(loop not in side, told)
        for f in (f for f in side if f.bind == "thread"):
            shared = f.role == "reduce" or any(loops_in(f.body, *legal.SHARED))
            require(not shared, f"threads share what is done inside of {f.label}")
        legal.uniform(path)
        found = {f.axis: f for f in (*side, *loops_in(loop.body))}
        body, before = loop.body, list[nest.Stmt]()
        for term in [n for n in blocks.nodes(body) if isinstance(n.op, Load)]:
            if term.op.buffer.name == self.buffer:  # type: ignore[attr-defined]
                fill, read = _slab(term, found, at)
                before += fill
                body = blocks.substitute_block(body, {term: read})
        require(bool(before), f"nothing inside of {self.at} reads {self.buffer}")
        return at.put(loop, replace(loop, body=(*before, *body)))


def _slab(load: Node, found: Mapping[Node, For], at: Scene) -> tuple[Block, Node]:
    """What fills a slab with a load over its loops, the one along memory last; how to read it."""
    body, own = at.kernel.body, [f for a, f in found.items() if a in free_variables(load)]
    plain = {*blocks.stored_in(body), *locals_in(body)}.isdisjoint(blocks.loads(load))
    plain = plain and all(isinstance(v.op, Axis) for v in free_variables(load))
    told = "where or what it reads depends on what the kernel computes"
    require(plain and not is_checked((nest.Let(load),)), told)
    told = f"{len(own)} loops inside move with what it reads: one to {SLAB_AXES} are staged"
    require(0 < len(own) <= SLAB_AXES, told)
    last = [f for f in own if f.lanes]
    last += [f for f in own if stride_of(load, f.axis, ranges_in(body)) == 1]
    term, loops = load, list[For]()
    for f in sorted(own, key=lambda f: f in last[:1]):
        require(f.step == 1, f"{f.label} is in blocks: stage for the loop inside of it")
        lo, length, ends = _reach(f, found)
        hi = simplify(apply("add", lo, constant(length)), {})
        for end in (e for e in ends if e is not hi):
            if at.on_gpu:  # its threads have a literal length
                term = guarded(term, f.axis, apply("lt", f.axis, end))
            else:
                hi = simplify(apply("minimum", hi, end), {})
        loops.append(For(f.axis, lo, hi, ()))
    name = load.op.buffer.name  # type: ignore[attr-defined]
    if at.on_gpu:
        return in_shared(name, term, loops, at.labels)
    shape = [longest(f.lo, f.hi) or 0 for f in loops]
    return staged(at.labels.buffer(f"{name}_s", load.type.dtype, shape), term, loops, at.labels)


def _reach(loop: For, found: Mapping[Node, For]) -> tuple[Node, int, list[Node]]:
    """Where a loop starts for all that a slab goes over, its length, and where it ends at most."""
    lo, length = loop.lo, longest(loop.lo, loop.hi) or -1
    require(length >= 0, f"{loop.label} has no literal length: split it")
    if lo in found:
        step, block = found[lo].step, length
        lo, length, _ = _reach(found[lo], found)
        length = (-(-length // step) - 1) * step + block
    told = f"where {loop.label} starts is computed from loops inside"
    require(free_variables(lo).isdisjoint(found), told)
    return lo, length, [e for e in ends_of(loop.hi) if free_variables(e).isdisjoint(found)]


@dataclass(frozen=True)
class Vectorize(Move):
    """Splits a loop and runs its blocks over lanes: needs what split and bind need, on a CPU.

    before  for a0 in 0..100:       after  for b0 in 0..100 by 8:
                y[a0] = ...                    for a0 in b0..min(b0 + 8, 100):  # vector8
                                                   y[a0] = ...
    """

    name = "vectorize"
    axis: Name
    lanes: int

    def change(self, at: Scene) -> Block:
        body = Split(self.axis, self.lanes).change(at)
        blocks = Scene(replace(at.kernel, body=body), at.target)
        return Bind(self.axis, Name(f"vector{self.lanes}")).change(blocks)


@dataclass(frozen=True)
class Pad(Move):
    """Sets the lines of a buffer apart, so that threads meet in no bank: needs a local buffer.

    before  local x_s0: f32[64,16] in shared    after  local x_s0: f32[64,16]{17,1} in shared
    """

    name = "pad"
    buffer: Name
    by: int

    def change(self, at: Scene) -> Block:
        held = {b.name: b for b in locals_in(at.kernel.body)}
        old = held[choice("local buffer", self.buffer, held)]
        plain = old.type.rank > 1 and not old.swizzle and self.by > 0
        require(plain, f"{self.buffer} has one line, or {self.by} is no distance")
        return substituted(at.kernel.body, {old: padded(old, self.by)})


@dataclass(frozen=True)
class Pipeline(Move):
    """Fills slabs of later iterations while one is computed: needs slabs in whole chunks, on a GPU.

    before  for k0 in 0..64 by 16:              after  local x_s0: f32[2,64,16] in shared
                local x_s0: f32[64,16] in ..           for k2 in 0..16 by 16:  # prologue
                fill(x_s0, k0)                             fill(x_s0[k2 // 16 % 2], k2)
                ... x_s0 ...                           for k0 in 0..64 by 16:
                                                           for k1 in k0 + 16..min(..):  # ahead
                                                               fill(x_s0[k1 // 16 % 2], k1)
                                                           ... x_s0[k0 // 16 % 2] ...
    """

    name = "pipeline"
    at: Name
    parts: int

    def change(self, at: Scene) -> Block:
        loop = at.free(self.at)
        require(loop.role == "reduce", f"{self.at} is no reduce loop, whose chunks go in order")
        slabs = [s.buffer for s in loop.body if isinstance(s, Local)]
        shared = bool(slabs) and all(b.space == "shared" for b in slabs)
        require(shared, f"nothing is staged in shared memory at {self.at}")
        turns, rest = divmod(extent_of(loop) or 0, loop.step)
        told = f"{self.at} has {turns} whole chunks and a rest of {rest}: 2 parts at least, no rest"
        require(rest == 0 and 2 <= self.parts <= turns, told)
        first = tuple(s for s in loop.body if isinstance(s, For) and legal.fills(s, loop))
        rest = tuple(s for s in loop.body if s not in first and not isinstance(s, Local))
        parts = dict.fromkeys(slabs, self.parts)
        return at.put(loop, *pipelined(replace(loop, body=rest), parts, first, at.labels))


MOVES: Mapping[str, type[Move]] = {
    m.name: m for m in (Split, Reorder, Join, Bind, SplitFold, Stage, Vectorize, Pad, Pipeline)
}


def read_move(cursor: Cursor) -> Move:
    """Reads what a move prints; ParseError for another name, or other fields."""
    name = cursor.name("a move")
    if name not in MOVES:
        cursor.fail(f"unknown move {name!r}: one of {', '.join(MOVES)}")
    cls: Any = MOVES[name]
    move: Any = read_attributes(cursor, cls, Scope())
    return move
