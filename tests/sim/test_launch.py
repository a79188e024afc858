"""What a launch may be given, and what becomes of kernels that do not end or die."""

from __future__ import annotations

import numpy as np
import pytest

from tests.sim.kernels import normal, text
from weft.core.errors import CompilerError, WeftError
from weft.sim import TensorMap, simulate
from weft.sim.launch import Argument, Size

ENDLESS = """#include "weft_cuda.cuh"
extern "C" __global__ void spins(const volatile i32 *flag, i32 *y) {
    while (flag[0] == 0)
        ;
    y[0] = 1;
}
extern "C" __global__ void loops(const volatile i32 *flag, i32 *y) {
    for (volatile i32 i = 1; i;)
        ;
    y[0] = 1;
}
__device__ __noinline__ i32 deep(volatile i32 *y, i32 n) {
    volatile i32 part[1000];
    for (i32 i = 0; i < 1000; i++) part[i] = n;
    return n ? deep(y, n - 1) + part[n] : part[0];
}
extern "C" __global__ void overflows(const i32 *flag, i32 *y) { y[0] = deep(y, 100); }
"""


@pytest.mark.parametrize(
    ("kernel", "kind", "line"),
    [
        ("spins", "hang", 3),
        ("loops", "hang", 8),
        ("overflows", "crash", 14),
    ],
)
def test_kernels_that_do_not_end(kernel: str, kind: str, line: int) -> None:
    flag, y = np.zeros(1, np.int32), np.zeros(1, np.int32)
    report = simulate(ENDLESS, kernel, 1, 1, [flag, y], seconds=1)
    assert [(fault.kind, fault.line) for fault in report.faults] == [(kind, line)]


SCALARS = """#include "weft_cuda.cuh"
// for each of five: extern "C" __global__ void none(const f32 *x)
/* nor is this one: __global__ void nothing() */
extern "C" __global__ void scalars(f64 *y, i32 a, f32 b, i64 c, f64 d, u8 e) {
    y[0] = a, y[1] = b, y[2] = c, y[3] = d, y[4] = e;
}
"""


def test_scalars() -> None:
    y = np.zeros(5)
    args: list[Argument] = [y, -7, 0.5, np.int64(2**40), np.float64(1e300), np.uint8(200)]
    assert not simulate(SCALARS, "scalars", 1, 1, args).faults
    np.testing.assert_array_equal(y, [-7, 0.5, 2**40, 1e300, 200])
    with pytest.raises(WeftError, match="argument 3 has another size"):
        simulate(SCALARS, "scalars", 1, 1, [y, -7, 0.5, 2, 1.0, np.uint8(1)])
    with pytest.raises(WeftError, match="takes 6 arguments; 1 were given"):
        simulate(SCALARS, "scalars", 1, 1, [y])
    with pytest.raises(WeftError, match="has no kernel other; it has scalars"):
        simulate(SCALARS, "other", 1, 1, [y])
    with pytest.raises(WeftError, match="must be contiguous"):
        simulate(SCALARS, "scalars", 1, 1, [np.zeros((2, 3)).T, *args[1:]])


@pytest.mark.parametrize(
    ("grid", "block", "shared", "says"),
    [
        (1, 1025, 0, "1 to 1024 threads, not 1025"),
        (1, (32, 64), 0, "1 to 1024 threads"),
        ((1, 65536), 32, 0, "y and z at most 65535"),
        (0, 32, 0, "a grid of 0: 1 or more"),
        (1, 32, 240_000, "kernel scalars: 240000 bytes of shared memory; 232448 at most"),
    ],
)
def test_limits(grid: Size, block: Size, shared: int, says: str) -> None:
    with pytest.raises(WeftError, match=says):
        simulate(SCALARS, "scalars", grid, block, [np.zeros(5), 1, 1.0, 1, 1, 1], shared)


BYTES = """#include "weft_cuda.cuh"
extern "C" __global__ void bytes(const u8 *x, u8 *y) {
    __shared__ __align__(16) u8 tile[64];
    if (threadIdx.x == 0) memset(tile, 7, 64);
    __syncthreads();
    memcpy(tile + threadIdx.x * 16, x + threadIdx.x * 16, 12);
    __syncthreads();
    y[threadIdx.x] = tile[threadIdx.x];
}
"""


def test_bytes_that_move_by_library_calls() -> None:
    x, y = np.arange(64, dtype=np.uint8), np.zeros(64, np.uint8)
    report = simulate(BYTES, "bytes", 1, 4, [x, y])
    assert not report.faults, str(report)
    np.testing.assert_array_equal(y[:4], x[:4])
    short = simulate(BYTES, "bytes", 1, 4, [x[:59].copy(), y])
    assert [(f.kind, f.line) for f in short.faults] == [("out of bounds", 6)]


def test_a_sample_of_blocks() -> None:
    x, y = normal(1 << 20), np.zeros(1 << 20, np.float32)
    report = simulate(text("copies"), "coalesced", 4096, 256, [x, y], sample=8)
    assert [a.requests for a in report.accesses] == [64, 64]
    blocks = np.flatnonzero(y.reshape(4096, 256).any(1))
    np.testing.assert_array_equal(blocks, np.arange(8) * 512)
    np.testing.assert_array_equal(y.reshape(4096, 256)[blocks], x.reshape(4096, 256)[blocks])


def test_one_array_given_twice_is_one_buffer() -> None:
    x = normal(1024)
    expected = x.copy()
    assert not simulate(text("copies"), "coalesced", 4, 256, [x, x]).faults
    np.testing.assert_array_equal(x, expected)


def test_errors_of_the_text() -> None:
    wrong = SCALARS.replace("y[0] = a", "y[0] = missing")
    with pytest.raises(CompilerError, match="was not declared") as caught:
        simulate(wrong, "scalars", 1, 1, [np.zeros(5), 1, 1.0, 1, 1, 1])
    assert (caught.value.where or "").startswith("line 5: y[0] = missing")


@pytest.mark.parametrize(
    ("map", "says"),
    [
        (TensorMap(normal(64, 64), box=(32,)), "a box of as many"),
        (TensorMap(normal(64, 64), box=(32, 3)), "multiples of 16 bytes"),
        (TensorMap(normal(64, 64), box=(32, 64), swizzle=128), "rows of a swizzle of 128"),
        (TensorMap(normal(64, 63), box=(32, 32)), "rows begin at multiples of 16 bytes"),
    ],
)
def test_tensor_maps(map: TensorMap, says: str) -> None:
    with pytest.raises(WeftError, match=says):
        simulate(text("tma_scale"), "tma_scale", 1, 128, [map, map, 1])
