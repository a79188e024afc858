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

from collections import Counter
from collections.abc import Hashable, Sequence
from functools import partial
from typing import Any

from weft.scalar.nest import Buffer, Kernel, Program
from weft.scalar.structure import structure
from weft.targets.gpu import GPU
from weft.tile.analysis.degree import NotByChunks
from weft.tile.moves.online import online
from weft.tile.passes.programs import merge_rows as runs
from weft.tile.price.cost import kernel_time_us

MEMBERS = 5  # kernels that become one, at most
SIDES = ((64, 64), (32, 64), (64, 32), (32, 32), (16, 32), (16, 16))  # rows of a block, and a chunk
HELD = 64 << 10  # bytes handed over, half of shared memory at most: the rest is for slabs


def chunk_reduce(program: Program, target: GPU) -> Program:
    """Merge every run of kernels for which one kernel over chunks of their rows is cheaper."""
    merger = _Merger(runs.readers_of(program), target)

    def best(steps: Sequence[Any], first: Any) -> runs.Run:
        members, run = [first], ([first], [first])
        while len(members) < MEMBERS and (after := runs.reader(steps, members)) is not None:
            members = [*members, after]
            if not runs.shared_depth(members, passed(members)):
                break  # no more members can mend that
            one = merger.merged(members)
            run = run if one is None else (members, [one])
        return run

    return runs.merge_runs(program, best)


class _Merger:
    """Merges several kernels into one; decides once for equal layers of a model."""

    def __init__(self, readers: Counter[Buffer], target: GPU) -> None:
        self.readers, self.target = readers, target
        self.price = partial(kernel_time_us, target=target)
        self.known: dict[Hashable, tuple[int, int] | None] = {}

    def merged(self, members: Sequence[Kernel]) -> Kernel | None:
        """The members as one kernel, where that is right and cheaper."""
        read = Counter(b for m in members for b in m.inputs)
        if any(self.readers[b] > read[b] for b in passed(members)):
            return None
        key = structure(runs.merged_kernel(members, (), tuple(s for m in members for s in m.body)))
        if key not in self.known:
            self.known[key] = self.cheapest(members)
        sides = self.known[key]
        return None if sides is None else self.made(members, sides)[0]

    def cheapest(self, members: Sequence[Kernel]) -> tuple[int, int] | None:
        """The rows of a block and the chunk that are best, None where the members apart are."""
        best, least = None, sum(self.price(m.body) for m in members)
        for sides in SIDES:
            try:
                one, held = self.made(members, sides)
            except NotByChunks:
                return None
            if held <= min(HELD, self.target.shared // 2) and self.price(one.body) < least:
                best, least = sides, self.price(one.body)
        return best

    def made(self, members: Sequence[Kernel], sides: tuple[int, int]) -> tuple[Kernel, int]:
        depth = runs.shared_depth(members, passed(members))
        return online(members, passed(members), depth, sides, self.target.matrix_units)


def passed(members: Sequence[Kernel]) -> list[Buffer]:
    """The intermediates between the merged kernels."""
    read = {b for m in members for b in m.inputs}
    return [b for m in members for b in m.outputs if b in read]
