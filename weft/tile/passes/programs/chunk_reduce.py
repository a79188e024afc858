"""chunk_reduce: merges kernels that pass on long rows into one, over chunks of the rows.

before  kernel s(x, y) -> s                    after  for b0 in 0..1024 by 64:  # rows
        ... s[a0, a1] = sum of x * y                      for k0 in 0..4096 by 64:  # scan
        kernel p(s) -> p                                      s_chunk[r, c] = sum of x * y
        ... acc0 <- maximum(acc0, s)                          top[r] = maximum(top[r], s_chunk)
        ... p[a0, a1] = exp(s - acc0)                         p_chunk[r, c] = exp(s_chunk - top[r])
        kernel z(p, v) -> z                                   out[r, d] = out[r, d] * scale[r]
        ... z[a0, a1] = sum of p * v                                    + sum of p_chunk * v
                                                          z[b0 + r, d] = out[r, d]

So attention keeps a chunk of its scores in shared memory, however long the rows: flash attention.
The running maximum stands for a row's maximum, and running sums of exp(s - maximum) are scaled by
exp(before - after) when it grows (Milakov and Gimelshein 2018; Dao et al. 2022).
"""

import math
from collections.abc import Hashable, Sequence
from functools import partial
from typing import Any

from weft.scalar.blocks import locals_in
from weft.scalar.choices import Choices
from weft.scalar.nest import For, Kernel, Program
from weft.scalar.structure import structure
from weft.targets.gpu import GPU
from weft.tile.analysis.access import contraction, trips
from weft.tile.analysis.degree import NotByChunks
from weft.tile.analysis.fragments import in_warps, operands
from weft.tile.analysis.tiles import nests_of
from weft.tile.moves import merge
from weft.tile.moves.online import online
from weft.tile.price.cost import kernel_time_us

SIDES = ((64, 64), (32, 64), (64, 32), (32, 32), (16, 32), (16, 16))  # rows of a block, and a chunk
TALL = ((128, 64), (128, 32))  # for matrix units: warps have 32 rows. Slabs fit in what is left
HELD = 64 << 10  # bytes handed over, half of shared memory at most: the rest is for slabs
OWN = 128  # elements of a row that its four threads hold
FED = 1.4  # times as long: a warp of 16 rows reads as much from shared memory as one of 32


def chunk_reduce(program: Program, target: GPU, choices: Choices) -> Program:
    """Merge every run of kernels for which one kernel over chunks of their rows is cheaper."""
    known: dict[Hashable, tuple[int, int] | None] = {}  # layers repeat

    def joined(steps: Any, run: Sequence[Kernel], apart: Any, name: str) -> list[Kernel] | None:
        """The run as one kernel, where that is right and cheaper."""
        key = structure(merge.merged_kernel(run, (), tuple(s for m in run for s in m.body)))
        if key not in known:
            known[key] = _cheapest(run, target)
        sides = choices.pick(f"merge.{name}", {known[key], None}, lambda s: s is None)
        return None if sides is None else [online(run, sides, target.matrix_units)[0]]

    return merge.merge_runs(program, joined)


def _cheapest(members: Sequence[Kernel], target: GPU) -> tuple[int, int] | None:
    """The rows of a block and the chunk that are best, None where the members apart are."""
    price = partial(kernel_time_us, target=target)
    apart = sum(price(m.body) for m in members)
    best, least = None, math.inf
    for sides in (*TALL, *SIDES):
        try:
            one, held = online(members, sides, target.matrix_units)
        except NotByChunks:
            return None
        units, most = _by_units(one, target), min(HELD, target.shared // 2)
        if sides in TALL:
            own = max(b.type.size for b in locals_in(one.body))
            most = target.shared * 3 // 5 if units and own <= OWN * sides[0] else 0
        time = price(one.body)
        weighted = time * (FED if units and sides not in TALL else 1)
        if held <= most and time < apart and weighted < least:
            best, least = sides, weighted
    return best


def _by_units(one: Kernel, target: GPU) -> bool:
    """Whether matrix units can compute all products: threads then hold what these hand over."""
    loops = (stmt for stmt in nests_of(one.body) if isinstance(stmt, For))
    products = [c for c in map(contraction, loops) if c is not None]
    whole = all(operands((c.update,), False) and in_warps(trips(c.columns)) for c in products)
    return target.matrix_units and whole
