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

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from weft.scalar.nest import Buffer, Kernel, Program
from weft.scalar.structure import structure
from weft.targets.gpu import GPU
from weft.tile.analysis.degree import NotByChunks
from weft.tile.moves.online import online
from weft.tile.passes.programs.merge_rows import leading, reader, shared_depth
from weft.tile.price.cost import kernel_time_us

MEMBERS = 5  # kernels that become one, at most
SIDES = ((64, 64), (32, 64), (64, 32), (32, 32), (16, 32), (16, 16))  # rows of a block, and a chunk
HELD = 64 << 10  # bytes handed over, half of shared memory at most: the rest is for slabs


def chunk_reduce(program: Program, target: GPU) -> Program:
    """Merge every run of kernels for which one kernel over chunks of their rows is cheaper."""
    steps, first = list(program.steps), 0
    merger = _Merger(Counter((*program.outputs, *(b for s in steps for b in s.inputs))), target)
    while first < len(steps):
        members: list[Any] = [steps[first]]
        best: tuple[list[Any], Kernel] | None = None
        while len(members) < MEMBERS and (after := reader(steps, members)) is not None:
            members = [*members, after]
            if not merger.share_rows(members):
                break
            one = merger.merged(members)
            best = best if one is None else (members, one)
        if best is not None:
            at = steps.index(best[0][-1])
            steps[at] = best[1]
            steps = [s for s in steps if s not in best[0]]
        first += best is None
    return replace(program, steps=tuple(steps))


class _Merger:
    """Merges several kernels into one; decides once for equal layers of a model."""

    def __init__(self, readers: Counter[Buffer], target: GPU) -> None:
        self.readers, self.target = readers, target
        self.price = partial(kernel_time_us, target=target)
        self.known: dict[Hashable, tuple[int, int] | None] = {}
        self.structures: dict[Kernel, Hashable] = {}

    def share_rows(self, members: Sequence[Kernel]) -> bool:
        """Whether they pass on rows of loops that all have: no more members can mend that."""
        return all(map(leading, members)) and shared_depth(members, passed(members)) > 0

    def merged(self, members: Sequence[Kernel]) -> Kernel | None:
        """The members as one kernel, where that is right and cheaper."""
        read = Counter(b for m in members for b in m.inputs)
        if any(self.readers[b] > read[b] for b in passed(members)):
            return None
        key = self.key(members)
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
        depth = shared_depth(members, passed(members))
        return online(members, passed(members), depth, sides, self.target.matrix_units)

    def key(self, members: Sequence[Kernel]) -> Hashable:
        """What members do, and what they have in common."""
        for m in members:
            self.structures[m] = self.structures.get(m) or structure(m)
        numbers: dict[Buffer, int] = {}
        used = [
            numbers.setdefault(b, len(numbers)) for m in members for b in (*m.inputs, *m.outputs)
        ]
        return tuple(self.structures[m] for m in members), tuple(used)


def passed(members: Sequence[Kernel]) -> list[Buffer]:
    """The intermediates between the merged kernels."""
    read = {b for m in members for b in m.inputs}
    return [b for m in members for b in m.outputs if b in read]
