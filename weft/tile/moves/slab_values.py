"""Moves of what a block holds: stage, pad, pipeline, and products of it on matrix units.

Stage("w", "b0").apply(kernel, target)  # what an iteration of b0 reads of w is in a local buffer
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from weft.core.errors import choice
from weft.core.node import Node, require
from weft.scalar import blocks, nest
from weft.scalar.blocks import locals_in, loops_in
from weft.scalar.index import simplify
from weft.scalar.nest import Block, For, Load, Local, free_variables
from weft.scalar.ops import Axis, apply, constant
from weft.scalar.reach import ends_of, extent_of, longest
from weft.scalar.structure import is_checked, substituted
from weft.targets.gpu import GPU
from weft.tile.analysis.access import ranges_in, stride_of
from weft.tile.analysis.tiles import Tile, on_chunks, padded
from weft.tile.moves import legal
from weft.tile.moves.bind import on_units
from weft.tile.moves.legal import Scene
from weft.tile.moves.loops import Labels, guarded
from weft.tile.moves.pipeline import pipelined
from weft.tile.moves.stage import in_shared, staged
from weft.tile.moves.values import Move, Name

SLAB_AXES = 4


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


@dataclass(frozen=True)
class Tensorize(Move):
    """Computes the products of a chunk on matrix units: needs slabs of 16-bit values, on a GPU.

    before  for a0 in b0..b0 + 64:  # thread    after  for w0 in b0..b0 + 64 by 32:  # thread
                for a1 in b1..b1 + 64:  # thread           for w1 in b1..b1 + 64 by 32:  # thread
                    for b2 in 0..64 by 32:                     ... lanes, and a0, a1 in registers
                        local x_s0: bf16[64,32] ..             for b2 in 0..64 by 32:
                        for a2 in b2..b2 + 32:                     local x_s0: bf16[64,32] ..
                            acc0 <- add(acc0, x * w)               for u0 in b2..b2 + 32 by 16:
                                                                       for a2 in ..:  # reduce mma
    Rows and columns of a block are bound to threads; a warp has parts of both that are whole tiles
    of mma.sync, 16 x 8 x 16.
    """

    name = "tensorize"
    at: Name

    def change(self, at: Scene) -> Block:
        loop = at.free(self.at)
        able = isinstance(at.target, GPU) and at.target.matrix_units
        require(able, "there are no matrix units of 16-bit values")
        for inner in loops_in(loop.body):
            if inner.role == "reduce":
                at.free(inner.label)
        done = list[Tile]()

        def one(tile: Tile, chunk: For, labels: Labels) -> Tile | None:
            changed = on_units(tile, chunk, labels) if chunk is loop else None
            done.extend([changed] if changed else [])
            return changed

        made = on_chunks(at.kernel, one)
        told = (
            f"{self.at} is no loop over chunks of a sum of products of 16-bit values that are "
            "staged, with rows and columns on two loops of threads, in whole tiles of 16 x 8 x 16"
        )
        require(bool(done), told)
        return made.body
