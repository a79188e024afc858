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

The scores of attention, their softmax and the product with the values become one kernel, with a
second operand of the softmax that nothing else reads, as that of two products side by side.
Operands that all rows share (`y`, `v`) are read again for every block; the price decides whether it
pays.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any

from weft.scalar.blocks import locals_in
from weft.scalar.choices import Choices
from weft.scalar.nest import Block, For, Kernel, Program
from weft.scalar.sizes import hint
from weft.scalar.structure import structure
from weft.targets.machine import Machine
from weft.tile.analysis.access import trips
from weft.tile.moves import merge
from weft.tile.moves.skip import halfway, skipped
from weft.tile.passes.programs.pack_constants import packed
from weft.tile.price.traffic import memory_ns

ROWS = 64  # of a block at most: enough for what rows share to be read seldom
AHEAD = 4  # kernels that are looked at beyond those merged, which may all read one tensor
WORTH = 0.9  # of the memory traffic that the kernels have one by one
SEEN = 0.5  # of the time to move memory, while a kernel computes

Price = Callable[[Block], float]
Steps = Sequence[Any]  # kernels and calls


def merge_rows(program: Program, price: Price, target: Machine, choices: Choices) -> Program:
    """Merge every run of kernels for which one kernel is cheaper."""
    known: dict[Hashable, bool] = {}  # layers repeat
    readers = merge.readers_of(program)

    def joined(steps: Steps, run: Steps, apart: Steps, name: str) -> list[Kernel] | None:
        """The run as one kernel, after what packs its operands; None if it is cheaper apart."""
        if (merged := _merged(run, target)) is None:
            return None
        names = {b.name for s in steps for b in (*s.inputs, *s.outputs)}
        one = packed(merged, {b.name for b in merged.inputs}, names, target)
        key = structure(one[-1]), *map(structure, apart)
        if key not in known:
            known[key] = better(one, apart, price, target)
        return one if choices.decide(f"merge.{name}", known[key]) else None

    def longest(steps: Steps, first: Any) -> merge.Run:
        run = made = members = [first]
        while len(run) < len(members) + AHEAD and (after := merge.reader(steps, run)) is not None:
            run = [*run, after]
            if merge.read_elsewhere(run, readers):
                continue  # two products may read one softmax
            if (one := joined(steps, run, [*made, *run[len(members) :]], after.name)) is None:
                break
            members, made = run, one
            for side in merge.sides(steps, run, readers):
                run = [s for s in steps if s in members or s is side]
                if one := joined(steps, run, [*made, side], f"{after.name}.{side.name}"):
                    members, made = run, one
            run = members
        return members, made

    return merge.merge_runs(program, longest)


def better(one: Sequence[Kernel], apart: Sequence[Kernel], price: Price, target: Machine) -> bool:
    """Whether one kernel is: as it is, or without the columns that a mask rules out for a block."""
    if _pays(one, apart, price, target):
        return True
    shorter = [replace(k, body=skipped(k.body)) for k in one]
    cut = [*map(structure, shorter)] != [*map(structure, one)]
    return cut and _pays([replace(k, body=halfway(k.body)) for k in shorter], apart, price, target)


def _pays(one: Sequence[Kernel], apart: Sequence[Kernel], price: Price, target: Machine) -> bool:
    """Clearly less memory traffic, in no more time; computing hides part of what moves."""
    moved = [sum(memory_ns(k.body, target) for k in kernels) for kernels in (one, apart)]
    times = [sum(price(k.body) for k in kernels) for kernels in (one, apart)]
    us = [t + SEEN * ns / target.cores / 1e3 for t, ns in zip(times, moved, strict=True)]
    return moved[0] < WORTH * moved[1] and us[0] <= us[1]


def _merged(members: Sequence[Kernel], target: Machine) -> Kernel | None:
    """The members as one kernel over blocks of rows, where what they pass on allows it."""
    small = hint(sum(b.type.span * b.type.dtype.bytes for b in merge.passed(members))) <= target.l2
    # What the cache holds between kernels is as good there.
    if small or not (depth := merge.shared_depth(members)):
        return None
    rows = merge.leading(members[0])[depth - 1]
    whole = merge.over_rows(members, depth, trips(rows))
    size = hint(sum(b.type.bytes for b in locals_in(whole.body)))
    block = _block(rows, target.l2 * trips(rows) // size, target.register_tile[0])
    return merge.over_rows(members, depth, block) if block else None


def _block(loop: For, most: int, tile: int) -> int:
    """Rows of a block: they divide all, fill register tiles, and fit the cache; 0 if none do.

    Where a size decides how many there are, the last block may be a part of one.
    """
    rows = trips(loop)
    if loop.extent is None:
        return next((n for n in (ROWS, ROWS // 2, ROWS // 4) if tile <= n <= most), 0)
    fit = [n for n in range(min(rows, tile), min(rows, most) + 1) if rows % n == 0]
    return max(fit, key=lambda n: (min(n, ROWS) // tile, -n), default=0)
