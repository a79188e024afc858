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
pays. Of rows of which the cache holds few, a block goes over chunks: online softmax, as on a GPU
(passes/programs/chunk_reduce.py).
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from weft.scalar.blocks import locals_in
from weft.scalar.choices import Choices
from weft.scalar.nest import Block, For, Kernel, Program
from weft.scalar.reach import counted
from weft.scalar.sizes import hint
from weft.scalar.structure import structure
from weft.targets.machine import Machine
from weft.tile.analysis.access import trips
from weft.tile.analysis.degree import NotByChunks
from weft.tile.moves import merge
from weft.tile.moves.online import online
from weft.tile.moves.skip import halfway, skipped
from weft.tile.passes.programs.pack_constants import packed
from weft.tile.price.traffic import memory_ns

ROWS = 64  # of a block at most: enough for what rows share to be read seldom
CHUNK = 256  # columns, where the cache holds few whole rows: so much more than the 16 of a panel
WORTH = 0.9  # of the memory traffic that the kernels have one by one
SEEN = 0.5  # of the time to move memory, while a kernel computes

Steps = merge.Steps
Price = Callable[[Block], float]


def merge_rows(program: Program, price: Price, target: Machine, choices: Choices) -> Program:
    """Merge every run of kernels for which one kernel is cheaper."""
    known: dict[Hashable, bool] = {}  # layers repeat

    def joined(steps: Steps, run: Steps, apart: Steps, name: str) -> Steps | None:
        """The run as one kernel, after what packs its operands; None if it is cheaper apart."""
        names = {b.name for s in steps for b in (*s.inputs, *s.outputs)}
        made = (packed(k, {b.name for b in k.inputs}, {*names}, target) for k in _ways(run, target))
        one = min(made, key=lambda kernels: _us(kernels, price, target), default=())
        if not one:
            return None
        key = structure(one[-1]), *map(structure, apart)
        if key not in known:
            known[key] = better(one, apart, price, target)
        return one if choices.decide(f"merge.{name}", known[key]) else None

    return merge.merge_runs(program, joined)


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
    return moved[0] < WORTH * moved[1] and _us(one, price, target) <= _us(apart, price, target)


def _us(kernels: Sequence[Kernel], price: Price, target: Machine) -> float:
    moved = sum(memory_ns(k.body, target) for k in kernels)
    return sum(price(k.body) for k in kernels) + SEEN * moved / target.cores / 1e3


def _ways(members: Sequence[Kernel], target: Machine) -> Iterator[Kernel]:
    """The members as one kernel over blocks of rows, where what they pass on allows it.

    Of rows of which the cache holds few, also over chunks of their columns.
    """
    small = hint(sum(b.type.span * b.type.dtype.bytes for b in merge.passed(members))) <= target.l2
    # What the cache holds between kernels is as good there.
    if small or not (depth := merge.shared_depth(members)):
        return
    rows = merge.leading(members[0])[depth - 1]
    whole = merge.over_rows(members, depth, trips(rows))
    size = hint(sum(b.type.bytes for b in locals_in(whole.body)))
    block = _block(rows, target.l2 * trips(rows) // size, target.register_tile[0])
    if block:
        yield merge.over_rows(members, depth, block)
    if block < ROWS // 2 <= trips(rows):
        even = -(-trips(rows) // -(-trips(rows) // ROWS))  # as even as whole rows can be
        with suppress(NotByChunks):
            one = online(members, (even, CHUNK), units=False)[0]
            yield replace(one, body=counted(one.body))


def _block(loop: For, most: int, tile: int) -> int:
    """Rows of a block: they divide all, fill register tiles, and fit the cache; 0 if none do.

    Where a size decides how many there are, the last block may be a part of one.
    """
    rows = trips(loop)
    if loop.extent is None:
        return next((n for n in (ROWS, ROWS // 2, ROWS // 4) if tile <= n <= most), 0)
    fit = [n for n in range(min(rows, tile), min(rows, most) + 1) if rows % n == 0]
    return max(fit, key=lambda n: (min(n, ROWS) // tile, -n), default=0)
