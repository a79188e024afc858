"""Programs for GPU targets, small and of odd sizes: a function, and what makes its arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

Make = Callable[[], tuple[torch.Tensor, ...]]


def f32(*shapes: tuple[int, ...]) -> Make:
    return lambda: tuple(torch.randn(s) for s in shapes)


def positive(*shapes: tuple[int, ...]) -> Make:
    """What sums of everything are told from: their values do not cancel."""
    return lambda: tuple(torch.rand(s) for s in shapes)


def bf16(*shapes: tuple[int, ...]) -> Make:
    return lambda: tuple(torch.randn(s).bfloat16() for s in shapes)


def i64(below: int, *shapes: tuple[int, ...]) -> Make:
    return lambda: tuple(torch.randint(-below, below, s) for s in shapes)


def picked(below: int, *shapes: tuple[int, ...]) -> Make:
    """A tensor to read, and where."""
    return lambda: (torch.randn(shapes[0]), torch.randint(0, below, shapes[1]))


QKV = f32((2, 3, 20, 16), (2, 3, 20, 16), (2, 3, 20, 16))

PROGRAMS: dict[str, tuple[Callable[..., Any], Make]] = {
    "add": (lambda x, y: x + y, f32((33, 70), (70,))),
    "long": (lambda x: F.gelu(x) * 2, f32((10_007,))),
    "scalar": (lambda x: x + 1, f32(())),
    "empty": (lambda x: x + 1, f32((0, 3))),
    "infinite": (lambda x: torch.where(x > 0, x, float("-inf")), f32((33, 5))),
    "f64": (lambda x: x.double().amax(1), f32((33, 70))),
    "compare": (lambda x, y: (x > y) & (x < 1), f32((33, 70), (33, 70))),
    "bf16": (lambda x, y: (x * y).relu(), bf16((33, 70), (33, 70))),
    "f16": (lambda x: x.half().exp(), f32((33, 7))),
    "integers": (lambda x: (x * 3) // 2 + x % 5, i64(50, (7, 9))),
    "softmax": (lambda x: x.softmax(-1), f32((5, 300))),
    "wide_softmax": (lambda x: x.softmax(-1), f32((3, 1000))),
    "column_softmax": (lambda x: x.softmax(0), f32((40, 50))),
    "short_rows": (lambda x: x.softmax(-1), f32((1101, 50))),
    "short_parts": (lambda x: (x.var(2), x.argmax(2), x * 2), f32((3, 500, 24))),
    "rms_norm": (lambda x, w: F.rms_norm(x, (200,), w), f32((7, 200), (200,))),
    "layer_norm": (lambda x: F.layer_norm(x, (200,)), f32((7, 200))),
    "group_norm": (lambda x: F.group_norm(x, 4), f32((2, 8, 5, 6))),
    "argmax": (lambda x: x.argmax(1), f32((5, 300))),
    "variance": (lambda x: x.var(1), f32((5, 300))),
    "sum": (lambda x: x.sum(), positive((50, 30))),
    "column_sum": (lambda x: x.sum(0), f32((50, 300))),
    "folds": (lambda x: (x.amax(0), x.prod(1)), f32((6, 7))),
    "two_axes": (lambda x: (x.sum((1, 3)), x.amax((0, 2))), f32((2, 3, 4, 50))),
    "batch_norm": (lambda x: F.batch_norm(x, None, None, training=True), f32((4, 5, 6, 70))),
    "large_values": (lambda x: x + torch.arange(5) * 2**30, i64(9, (5,))),
    "transpose": (lambda x: x.t().contiguous(), f32((33, 70))),
    "cat": (lambda x, y: torch.cat((x, y), 1), f32((5, 30), (5, 40))),
    "matmul": (lambda x, y: x @ y, f32((33, 40), (40, 50))),
    "linear": (lambda x, w, b: F.gelu(F.linear(x, w, b)), f32((33, 40), (50, 40), (50,))),
    "norm_linear": (lambda x, w: F.rms_norm(x, (40,)) @ w, f32((9, 40), (40, 50))),
    "attention": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), QKV),
    "convolution": (lambda x, w: F.conv2d(x, w, padding=1), f32((2, 3, 9, 10), (4, 3, 3, 3))),
    "max_pool": (lambda x: F.max_pool2d(x, 3, 2, 1), f32((2, 3, 11, 12))),
    "scan": (lambda x: (x.cumsum(1), x.cumsum(0)), f32((5, 37))),
    "long_sum": (lambda x: (x.sum(), x.argmax()), positive((300, 512))),
    "long_column": (lambda x: x.var(0), f32((2048, 9))),
    "long_product": (lambda x, y: (x @ y / 64).relu(), f32((16, 2048), (2048, 33))),
    "tall_transpose": (lambda x: x.transpose(1, 2).contiguous() + 1, f32((3, 70, 36))),
    "product_of_transposed": (lambda x, y: x.t() @ y.t(), f32((72, 100), (130, 72))),
    "bf16_product": (lambda x, y: x @ y, bf16((64, 96), (96, 72))),
    "bf16_linear": (lambda x, w: F.linear(x, w).relu(), bf16((130, 70), (40, 70))),
    "bf16_transposed": (lambda x, w: x.t() @ w, bf16((64, 136), (64, 72))),
    "f16_product": (lambda x, y: x.half() @ y.half(), f32((33, 40), (40, 50))),
    "batched_product": (lambda x, y: torch.baddbmm(x, y, y), f32((2, 40, 40), (2, 40, 40))),
    "embedding": (lambda w, i: F.embedding(i, w), picked(11, (11, 64), (7,))),
    "gather": (lambda x, i: x.gather(1, i), picked(37, (5, 37), (5, 9))),
    "scatter": (lambda x, i: torch.zeros(5, 37).scatter_add(0, i, x), picked(5, (8, 37), (8, 37))),
    "scatter_of_many_rows": (
        lambda x, i: torch.zeros(1001, 12).scatter_add(0, i, x),
        picked(1001, (50, 12), (50, 12)),
    ),
    "short_scatter": (
        lambda x, i: torch.zeros(5, 20).bfloat16().scatter_add(0, i, x.bfloat16()),
        picked(5, (9, 20), (9, 20)),
    ),
    "cross_entropy": (lambda x, i: F.cross_entropy(x, i), picked(50, (9, 50), (9,))),
}
