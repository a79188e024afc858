"""Random kernels against the definitions: races by pairs of accesses, costs by addresses."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import pytest

from weft.sim import simulate

THREADS, CELLS = 64, 16
MEETS = {"": "", "warp": "__syncwarp();", "block": "__syncthreads();"}


@dataclass(frozen=True)
class Step:
    """Before it a barrier or none; then thread t writes or reads cell (t * factor + shift) % by."""

    meets: str
    writes: bool
    factor: int
    shift: int
    by: int
    threads: range

    def cell(self, thread: int) -> int:
        return (thread * self.factor + self.shift) % self.by

    def __str__(self) -> str:
        cell = f"tile[(t * {self.factor} + {self.shift}) % {self.by}]"
        act = f"{cell} = t;" if self.writes else f"sum += {cell};"
        first, last = self.threads.start, self.threads.stop
        return f"    {MEETS[self.meets]} if (t >= {first} && t < {last}) {{ {act} }}"


def random_step(random: np.random.Generator) -> Step:
    first, last = sorted(random.integers(0, THREADS + 1, 2).tolist())
    return Step(
        str(random.choice(list(MEETS), p=[0.3, 0.3, 0.4])),
        bool(random.random() < 0.4),
        int(random.integers(0, 4)),
        int(random.integers(0, 8)),
        int(random.integers(1, CELLS + 1)),
        range(first, last),
    )


def races(steps: list[Step]) -> bool:
    """Whether two threads touch a cell, one writes it, and no barrier of both is between."""
    touched: dict[int, list[tuple[int, bool, int, int]]] = defaultdict(list)
    block = warp = 0
    for step in steps:
        block += step.meets == "block"
        warp += step.meets != ""
        for t in step.threads:
            for u, writes, of_block, of_warp in touched[step.cell(t)]:
                apart = of_block == block and (t // 32 != u // 32 or of_warp == warp)
                if t != u and (writes or step.writes) and apart:
                    return True
            touched[step.cell(t)].append((t, step.writes, block, warp))
    return False


def kernel(name: str, steps: list[Step]) -> str:
    body = "\n".join(map(str, steps))
    return f"""extern "C" __global__ void {name}(i32 *y) {{
    __shared__ i32 tile[{CELLS}];
    i32 t = threadIdx.x, sum = 0;
    if (t < {CELLS}) tile[t] = 0;
    __syncthreads();
{body}
    y[t] = sum;
}}
"""


def test_races() -> None:
    random = np.random.default_rng(0)
    programs = [[random_step(random) for _ in range(random.integers(1, 7))] for _ in range(60)]
    texts = [kernel(f"k{i}", steps) for i, steps in enumerate(programs)]
    source = '#include "weft_cuda.cuh"\n' + "".join(texts)
    expected = [races(steps) for steps in programs]
    assert 15 < sum(expected) < 50
    for i, (text, race) in enumerate(zip(texts, expected, strict=True)):
        report = simulate(source, f"k{i}", 1, THREADS, [np.zeros(THREADS, np.int32)])
        assert {fault.kind for fault in report.faults} == ({"race"} if race else set()), text


GATHER = """#include "weft_cuda.cuh"
template <class V> __device__ __forceinline__ void gather(const f32 *x, const i32 *at, V *y) {
    __shared__ __align__(16) f32 tile[1024];
    for (i32 i = threadIdx.x; i < 1024; i += 32) tile[i] = x[i];
    __syncthreads();
    i32 i = at[threadIdx.x];
    if (i < 0) return;
    y[threadIdx.x] = reinterpret_cast<const V *>(x)[i];
    y[threadIdx.x] = reinterpret_cast<const V *>(tile)[i];
}
extern "C" __global__ void by2(const f32 *x, const i32 *at, u16 *y) { gather(x, at, y); }
extern "C" __global__ void by4(const f32 *x, const i32 *at, f32 *y) { gather(x, at, y); }
extern "C" __global__ void by8(const f32 *x, const i32 *at, f32x2 *y) { gather(x, at, y); }
extern "C" __global__ void by16(const f32 *x, const i32 *at, f32x4 *y) { gather(x, at, y); }
"""


def sectors(at: np.ndarray, size: int) -> int:
    return len({byte // 32 for i in at for byte in range(i * size, i * size + size)})


def wavefronts(at: np.ndarray, lanes: np.ndarray, size: int, pairs: bool) -> int:
    """By parts of a warp whose lanes ask for 128 bytes: the most words in one bank."""
    part, sum = min(32, 128 // size * (1 + pairs)), 0
    for begin in range(0, 32, part):
        own = at[(lanes >= begin) & (lanes < begin + part)]
        words = {byte // 4 for i in own for byte in range(i * size, i * size + size)}
        sum += max((len([w for w in words if w % 32 == bank]) for bank in range(32)), default=0)
    return sum


@pytest.mark.parametrize("size", [2, 4, 8, 16])
def test_costs(size: int) -> None:
    random = np.random.default_rng(size)
    x = np.zeros(1024, np.float32)
    for spread, apart in ((4, 0), (32, 0), (4096 // size, 0), (99, 1), (99, 2)):
        at = random.integers(0, spread, 32).astype(np.int32)
        at = np.where(np.arange(32) & apart, at[np.arange(32) ^ apart], at)
        at[random.random(32) < 0.2] = -1
        report = simulate(GATHER, f"by{size}", 1, 32, [x, at, np.zeros(32 * size, np.uint8)])
        assert not report.faults, str(report)
        lanes = np.flatnonzero(at >= 0)

        loads = {(a.line, a.space): a.transactions for a in report.accesses if a.kind == "load"}
        assert loads[8, "global"] == sectors(at[lanes], size)
        assert loads[9, "shared"] == wavefronts(at[lanes], lanes, size, apart > 0)
