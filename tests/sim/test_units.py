"""What each function of the prelude and of CUDA means, by small kernels."""

from __future__ import annotations

import numpy as np

from tests.sim.kernels import normal, text
from weft.sim import SimReport, simulate
from weft.sim.launch import Argument, Size


def run(kernel: str, args: list[Argument], block: Size = 32, warp: int = 32) -> SimReport:
    report = simulate(text("units"), kernel, 1, block, args, warp=warp)
    assert not report.faults, str(report)
    return report


def test_named_barriers() -> None:
    x, y = normal(64), normal(64)
    run("named_barriers", [x, y], 128)
    np.testing.assert_array_equal(y, x[::-1])


def test_half_warps() -> None:
    x, y = normal(32), normal(32)
    run("half_warps", [x, y])
    np.testing.assert_array_equal(y.reshape(2, 16), x.reshape(2, 16)[:, ::-1])


def test_shuffles() -> None:
    x = np.random.default_rng(0).integers(-50, 50, 32).astype(np.int32)
    y, lane = np.zeros((7, 32), np.int32), np.arange(32)
    run("shuffles", [x, y])
    assert (y[0] == x[5]).all()
    np.testing.assert_array_equal(y[1], x[lane // 8 * 8 + (lane + 1) % 8])
    np.testing.assert_array_equal(y[2], x[np.where(lane < 3, lane, lane - 3)])
    np.testing.assert_array_equal(y[3], x[np.where(lane % 16 < 13, (lane + 3) % 32, lane)])
    np.testing.assert_array_equal(y[4], x[lane ^ 7])
    assert (y[5] == np.sum((x > 0) << lane).astype(np.uint32).view(np.int32)).all()
    assert (y[6] == (x == 3).any() + 2).all()


def test_atomics() -> None:
    x = np.random.default_rng(0).integers(0, 1000, 64).astype(np.int32)
    y = np.array([-1, 9999, -1, 0, 0, 0], np.int32)
    wide, real = np.zeros(1, np.uint64), np.zeros(1)
    run("atomics", [x, y, wide, real], 64)
    logic = [op.reduce(x) for op in (np.bitwise_and, np.bitwise_or, np.bitwise_xor)]
    np.testing.assert_array_equal(y, [x.max(), x.min(), *logic, x.sum()])
    assert (wide[0], real[0]) == (x.sum(), 32)


def test_matrix_units() -> None:
    a, b, d = normal(16, 16).astype(np.float16), normal(16, 8).astype(np.float16), normal(16, 8)
    run("mma_f16", [a, b, d])
    np.testing.assert_allclose(d, a.astype(np.float32) @ b.astype(np.float32), rtol=1e-5, atol=1e-5)
    a, b = normal(16, 8), normal(8, 8, seed=1)
    run("mma_tf32", [a, b, d])
    np.testing.assert_allclose(d, a @ b, rtol=1e-2, atol=1e-2)
    assert not np.allclose(d, a @ b, rtol=1e-6, atol=1e-6)


def test_matrices() -> None:
    x, y = np.arange(256, dtype=np.uint16).reshape(4, 8, 8), np.zeros((5, 8, 4), np.uint32)
    run("matrices", [x, y])
    np.testing.assert_array_equal(y.view(np.uint16).reshape(5, 8, 8)[:4], x.transpose(0, 2, 1))
    np.testing.assert_array_equal(y.view(np.uint16).reshape(5, 8, 8)[4], x[0])


def test_zero_fill() -> None:
    for count in (64, 63, 59, 50, 3, 0):
        x, y = normal(count), normal(64)
        run("zero_fill", [x, y, count], 8)
        np.testing.assert_array_equal(y[:count], x)
        assert (y[count:] == 0).all()


WAVES = """#include "weft_cuda.cuh"
extern "C" __global__ void waves(const f32 *x, f32 *y) {
    f32 sum = x[threadIdx.x];
    for (i32 lane = warpSize / 2; lane; lane /= 2) sum += __shfl_xor(sum, lane);
    y[threadIdx.x] = sum;
}
"""


def test_warps_of_64() -> None:
    x, y = normal(256), normal(256)
    report = simulate(WAVES, "waves", 1, 256, [x, y], warp=64)
    np.testing.assert_allclose(
        y.reshape(4, 64), x.reshape(4, 64).sum(1, keepdims=True).repeat(64, 1), atol=1e-5
    )
    assert [(a.requests, a.per_request) for a in report.accesses] == [(4, 8), (4, 8)]


def test_dynamic_shared_memory_has_an_end() -> None:
    x, y = normal(5 * 384), normal(5 * 384)
    report = simulate(text("pipeline"), "pipeline", 1, 128, [x, y, 5], shared_bytes=3080)
    assert {(f.kind, "empty" in f.text) for f in report.faults} >= {("out of bounds", True)}
