"""The kernels of this folder: their texts, and launches of them on random data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np

from weft.sim import SimReport, TensorMap, simulate
from weft.sim.launch import Argument, Size

FOLDER = Path(__file__).parent / "kernels"


def text(name: str) -> str:
    return (FOLDER / f"{name}.cu").read_text()


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@dataclass
class Launch:
    """A kernel of a file, how it is launched, and what it must leave in its last array."""

    file: str
    kernel: str
    grid: Size
    block: Size
    args: list[Argument]
    result: np.ndarray
    expected: np.ndarray
    shared_bytes: int = 0

    def run(self, old: str = "", new: str = "", seconds: int = 20) -> SimReport:
        """Run the text, with one place of it changed."""
        source = text(self.file)
        assert old in source
        return simulate(
            source.replace(old, new, 1) if old else source,
            self.kernel,
            self.grid,
            self.block,
            self.args,
            self.shared_bytes,
            seconds=seconds,
        )


def softmax() -> Launch:
    x, y = normal(6, 300), normal(6, 300)
    e = np.exp(x - x.max(1, keepdims=True))
    return Launch("softmax", "softmax", 6, 128, [x, y, 300], y, e / e.sum(1, keepdims=True))


def transpose() -> Launch:
    x, y = normal(96, 64), normal(64, 96)
    return Launch("transpose", "transpose", (2, 3), (32, 8), [x, y, 96, 64], y, x.T)


def matmul() -> Launch:
    a, b, c = normal(64, 64), normal(64, 64, seed=1), normal(64, 64)
    return Launch("matmul", "matmul", (2, 2), (8, 8), [a, b, c, 64], c, a @ b)


def async_matmul() -> Launch:
    a, b, c = normal(64, 64), normal(64, 64, seed=1), normal(64, 64)
    return Launch("async_matmul", "async_matmul", (4, 4), 64, [a, b, c, 64], c, a @ b)


def mma_matmul() -> Launch:
    a, b = (normal(64, 64, seed=seed).astype(ml_dtypes.bfloat16) for seed in (0, 1))
    c = normal(64, 64)
    expected = a.astype(np.float32) @ b.astype(np.float32)
    return Launch("mma_matmul", "mma_matmul", (4, 2), 64, [a, b, c, 64], c, expected)


def tma_scale() -> Launch:
    x, y = normal(60, 156), normal(60, 156, seed=1)
    maps = [TensorMap(array, box=(32, 32), swizzle=128) for array in (x, y)]
    return Launch("tma_scale", "tma_scale", 2, 128, [*maps, 5], y, 2 * x)


def pipeline() -> Launch:
    x, y = normal(5 * 384), normal(5 * 384, seed=1)
    return Launch("pipeline", "pipeline", 1, 128, [x, y, 5], y, 3 * x, shared_bytes=3104)


def wgmma_matmul() -> Launch:
    a, b = (normal(128, 192, seed=seed).astype(ml_dtypes.bfloat16) for seed in (0, 1))
    c = normal(128, 128)
    maps = [TensorMap(array, box=(64, 64), swizzle=128) for array in (a, b)]
    expected = a.astype(np.float32) @ b.astype(np.float32).T
    return Launch("wgmma", "wgmma_matmul", (2, 2), 128, [*maps, c, 128, 192], c, expected)


def wgmma_by_rows() -> Launch:
    a, b = (normal(*shape).astype(np.float16) for shape in ((64, 32), (32, 128)))
    c = normal(64, 128)
    expected = a.astype(np.float32) @ b.astype(np.float32)
    return Launch("wgmma", "wgmma_by_rows", 1, 128, [a, b, c], c, expected)


def copy(kernel: str, step: int = 1) -> Launch:
    x, y = normal(1024 * step), normal(1024)
    return Launch("copies", kernel, 1 if step > 1 else 4, 1024 if step > 1 else 256, [x, y],
                  y, x[::step])  # fmt: skip


def by_four() -> Launch:
    x, y = normal(1024), normal(1024)
    return Launch("copies", "by_four", 2, 128, [x, y], y, x)


def atomic_sum() -> Launch:
    x, total = normal(1000), np.zeros(1, np.float32)
    return Launch("sums", "atomic_sum", 4, 256, [x, total, 1000], total, x.sum(keepdims=True))


def last_block_sum() -> Launch:
    x, total = normal(16 * 32), np.zeros(1, np.float32)
    parts, done = np.zeros(16, np.float32), np.zeros(1, np.uint32)
    args = [x, parts, done, total]
    return Launch("sums", "last_block_sum", 16, 32, args, total, x.sum(keepdims=True))


ALL = [
    softmax, transpose, matmul, async_matmul, mma_matmul, tma_scale, pipeline, wgmma_matmul,
    wgmma_by_rows, by_four, atomic_sum,
    last_block_sum,
]  # fmt: skip
