"""chunk_reduce: kernels that hand each other long rows go over them by chunks, in one kernel.

before  kernel s(x, y) -> s                    after  for b0 in 0..1024 by 64:  # rows
        ... s[a0, a1] = sum of x * y                      for k0 in 0..4096 by 64:  # scan
        kernel p(s) -> p                                      s_chunk[r, c] = sum of x * y
        ... acc0 <- maximum(acc0, s)                          top[r] = maximum(top[r], s_chunk)
        ... p[a0, a1] = exp(s - acc0)                         p_chunk[r, c] = exp(s_chunk - top[r])
        kernel z(p, v) -> z                                   out[r, d] = out[r, d] * scale[r]
        ... z[a0, a1] = sum of p * v                                    + sum of p_chunk * v
                                                          z[b0 + r, d] = out[r, d]

The scores of attention stay in shared memory so, however long the rows. What a row's maximum is,
the end tells; until then the greatest so far stands for it, and sums of exp(s - maximum) are scaled
by exp(before - after) when it grows (Milakov and Gimelshein 2018; Dao et al. 2022).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from weft.scalar.nest import Buffer, Kernel, Program
from weft.scalar.structure import structure
from weft.targets.gpu import GPU
from weft.tile.cost import kernel_time_us
from weft.tile.merge_rows import leading, reader, shared_depth
from weft.tile.online import online

MEMBERS = 5  # kernels that become one, at most
SIDES = ((64, 64), (32, 64), (64, 32), (32, 32), (16, 32), (16, 16))  # rows of a block, and a chunk
HELD = 49 << 10  # bytes handed over, half of shared memory at most: the rest is for slabs


def chunk_reduce(program: Program, target: GPU) -> Program:
    """Merge every run of kernels for which one kernel over chunks of their rows is cheaper."""
    price = partial(kernel_time_us, target=target)
    steps, first = list(program.steps), 0
    readers = Counter((*program.outputs, *(b for s in steps for b in s.inputs)))
    known: dict[Hashable, int] = {}  # layers repeat
    while first < len(steps):
        members: list[Any] = [steps[first]]
        best: tuple[list[Any], Kernel] | None = None
        while len(members) < MEMBERS and (after := reader(steps, members)) is not None:
            members = [*members, after]
            key = tuple(map(structure, members))
            choices = list(merged(members, readers, target))
            if key not in known:
                times = [sum(price(m.body) for m in members), *(price(k.body) for k in choices)]
                known[key] = times.index(min(times))
            if known[key]:
                best = members, choices[known[key] - 1]
        if best is not None:
            at = steps.index(best[0][-1])
            steps[at] = best[1]
            steps = [s for s in steps if s not in best[0]]
        first += 1
    return replace(program, steps=tuple(steps))


def merged(members: Sequence[Kernel], readers: Counter[Buffer], target: GPU) -> Iterator[Kernel]:
    """The members as one kernel over chunks, of each size that fits; none where it is not right."""
    read = Counter(b for m in members for b in m.inputs)
    passed = [b for m in members for b in m.outputs if b in read]
    if any(readers[b] > read[b] for b in passed) or not all(map(leading, members)):
        return
    depth = shared_depth(members, passed)
    for rows, columns in SIDES if depth else ():
        one = online(members, passed, depth, rows, columns, target.matrix_units)
        if one is None:
            return
        if one[1] <= min(HELD, target.shared // 2):
            yield one[0]
