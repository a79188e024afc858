"""Programs that are written in a costly order, and what their tensor level computes.

plain, found = graphs(PROGRAMS["A@B@c"])      # with search="off", and "on"
multiply_adds(found) < multiply_adds(plain)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.nn import functional as F

from tests.captures import capture_call
from weft.core.node import Graph
from weft.core.passes import PassLog
from weft.frontend.graph import Known
from weft.levels import lower
from weft.options import Options
from weft.tensor.ops import Reduce

TARGET = "cpu:avx512"


class Program(NamedTuple):
    """A function of tensors of these shapes, and how many times fewer multiply-adds it needs.

    classes    the first input is integers below that, if it is not 0
    """

    run: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    times: float
    classes: int = 0

    def inputs(self, seed: int = 0) -> list[torch.Tensor]:
        torch.manual_seed(seed)
        whole = [torch.randint(self.classes, s) for s in self.shapes[: bool(self.classes)]]
        return whole + [torch.randn(s) / s[-1] ** 0.5 for s in self.shapes[len(whole) :]]


def as_type(inputs: list[torch.Tensor], dtype: torch.dtype) -> list[torch.Tensor]:
    """The inputs with their floats in another dtype."""
    return [x.to(dtype) if x.is_floating_point() else x for x in inputs]


def normalised(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    q, k = F.elu(q) + 1, F.elu(k) + 1
    scores = q @ k.transpose(-1, -2)
    return (scores / scores.sum(-1, keepdim=True)) @ v


def latent(q: torch.Tensor, c: torch.Tensor, up_k: torch.Tensor, up_v: torch.Tensor) -> Any:
    """One step of attention over a latent cache: q [h, d], c [t, r], up [h, r, d]."""
    k, v = c @ up_k, c @ up_v
    scores = (q[:, None] @ k.transpose(-1, -2))[:, 0]
    return torch.einsum("ht,htd->hd", torch.softmax(scores, -1), v)


def low_rank(x: torch.Tensor, w: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return x @ w + (x @ a) @ b


def convolutions(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.conv2d(F.conv2d(x, w, padding=1), v)


def shared_kernel(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.conv2d(x, w, padding=1) + F.conv2d(y, w, padding=1)


def parallel(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.conv2d(x, w, padding=1) + F.conv2d(x, v, padding=(1, 0))


def rows_of(i: torch.Tensor, e: torch.Tensor) -> torch.Tensor:
    return F.one_hot(i, e.shape[-2]).to(e.dtype) @ e


def columns_of(i: torch.Tensor, e: torch.Tensor) -> torch.Tensor:
    return e.mT @ F.one_hot(i, e.shape[-2]).to(e.dtype).mT


def rows_where_equal(i: torch.Tensor, e: torch.Tensor) -> torch.Tensor:
    """Of rows that there are not: zeros."""
    return (i[:, None] - 9 == torch.arange(e.shape[0])).to(e.dtype) @ e


def rows_of_product(i: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.one_hot(i, a.shape[0]).to(a.dtype) @ (a * 2 + 1) @ b


def eye(x: torch.Tensor, n: int, m: int | None = None) -> torch.Tensor:
    return torch.eye(n, m or n, dtype=x.dtype)


def ones(x: torch.Tensor, n: int) -> torch.Tensor:
    return torch.ones(n, n, dtype=x.dtype)


def reflected(q: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    return (eye(z, q.shape[0]) - 2 * q @ q.mT) @ z


N, D = 512, 64
SQUARE, COLUMN = (N, N), (N,)
PROGRAMS = {
    "A@B@c": Program(lambda a, b, c: a @ b @ c, (SQUARE, SQUARE, COLUMN), 200),
    "A@B@C@D": Program(lambda a, b, c, d: a @ b @ c @ d, (SQUARE, SQUARE, SQUARE, (N, 8)), 30),
    "(x@W1)@W2": Program(lambda x, v, w: x @ v @ w, ((N, N), (N, N), (N, 16)), 15),
    "A@C+B@C": Program(lambda a, b, c: a @ c + b @ c, (SQUARE, SQUARE, SQUARE), 1.9),
    "low rank": Program(low_rank, (SQUARE, SQUARE, (N, 256), (256, N)), 1.3),
    "sum(A@B)": Program(lambda a, b: (a @ b).sum(), (SQUARE, SQUARE), 200),
    "(A@B).sum(1)": Program(lambda a, b: (a @ b).sum(1), (SQUARE, SQUARE), 200),
    "(q@k')@v": Program(lambda q, k, v: (q @ k.mT) @ v, ((4, N, D),) * 3, 7),
    "linear attention": Program(normalised, ((4, N, D),) * 3, 7),
    "latent attention": Program(latent, ((16, D), (N, 128), (16, 128, D), (16, 128, D)), 20),
    "(x@W).mean(1)": Program(lambda x, w: (x @ w).mean(1), ((8, 64, N), (N, N)), 30),
    "(a@x)@w": Program(lambda a, x, w: (a @ x) @ w, ((2 * N, 2 * N), (2 * N, N), (N, 16)), 20),
    "x'(A'A)x": Program(lambda x, a: x @ (a.mT @ a) @ x, (COLUMN, SQUARE), 200),
    "(uv')@x": Program(lambda u, v, x: torch.outer(u, v) @ x, ((2048,), (2048,), (2048,)), 100),
    "three factors": Program(
        lambda a, b, c: (a[:, None] * b[None] * c[None, :, None]).sum((1, 2)),
        (SQUARE, SQUARE, COLUMN), 100,
    ),
    "p@(x@V)@O": Program(lambda p, x, v, o: p @ (x @ v) @ o, (SQUARE,) * 3 + ((N, 32),), 5),
    "3x3 then 1x1": Program(convolutions, ((1, 64, 28, 28), (64, 64, 3, 3), (8, 64, 1, 1)), 3),
    "3x3 + 3x1": Program(
        parallel, ((1, 32, 28, 28), (32, 32, 3, 3), (32, 32, 3, 1)), 1.3,
    ),
    "two by one kernel": Program(shared_kernel, ((1, 32, 28, 28),) * 2 + ((32, 32, 3, 3),), 1.9),
}  # fmt: skip
GONE = 10**9  # times fewer: no sum is left

MASKED = {
    "one_hot(i)@E": Program(rows_of, ((70,), (N - 1, D)), GONE, N - 1),
    "one_hot(i)@E, batched": Program(rows_of, ((3, 70), (3, N, D)), GONE, N),
    "E'@one_hot(i)'": Program(columns_of, ((70,), (N, D)), GONE, N),
    "(i == rows)@E": Program(rows_where_equal, ((70,), (N, D)), GONE, N + 20),
    "one_hot(i)@A@B": Program(rows_of_product, ((70,), (N, 33), (33, D)), 8, N),
    "A@diag(d)@B": Program(lambda a, d, b: a @ torch.diag(d) @ b, (SQUARE, COLUMN, SQUARE), 2),
    "diag(d, 3)@A": Program(lambda d, a: torch.diag(d, 3) @ a, ((N - 3,), SQUARE), GONE),
    "diag_embed(d)@A": Program(
        lambda d, a: torch.diag_embed(d) @ a, ((3, N), (3, N, N)), GONE,
    ),
    "eye@x": Program(lambda x: eye(x, N) @ x, (SQUARE,), GONE),
    "wide eye@x": Program(lambda x: eye(x, 99, N) @ x, (SQUARE,), GONE),
    "high eye@x": Program(lambda x: eye(x, N, 99) @ x, ((99, N),), GONE),
    "x-eye@y": Program(lambda x, y: x - eye(y, N) @ y, (SQUARE, SQUARE), GONE),
    "Householder": Program(reflected, ((N, 3), SQUARE), 30),
    "tril(ones)@x": Program(lambda x: torch.tril(ones(x, N)) @ x, ((N, D),), GONE),
    "tril(ones, -3)@x": Program(lambda x: torch.tril(ones(x, N), -3) @ x, ((N, D),), GONE),
    "triu(ones, -3)@x": Program(lambda x: torch.triu(ones(x, N), -3) @ x, ((N, D),), GONE),
    "x@triu(ones)": Program(lambda x: x @ torch.triu(ones(x, N)), ((2, D, N),), GONE),
    "tril(ones)@(A@B)": Program(
        lambda a, b: torch.tril(ones(a, N)) @ (a @ b), ((N, 32), (32, D)), 8,
    ),
    "kron(A,B)@x": Program(lambda a, b, x: torch.kron(a, b) @ x, ((20, 16), (21, 30), (480, 4)), 8),
    "kron(A,B,C)@x": Program(
        lambda a, b, c, x: torch.kron(torch.kron(a, b), c) @ x,
        ((9, 10), (8, 9), (11, 12), (1080,)), 25,
    ),
    "kron(eye,B)@x": Program(
        lambda b, x: torch.kron(eye(b, 16), b) @ x, ((32, 33), (16 * 33, 8)), 15,
    ),
}  # fmt: skip
PROGRAMS |= MASKED


def graph_of(run: Callable[..., Any], inputs: list[torch.Tensor], search: str = "on") -> Graph:
    """The tensor level of a call, as it is fused."""
    captured = capture_call(run, inputs)
    options = Options(target=TARGET, search=search)  # type: ignore[arg-type]
    known = Known(captured.layouts, fused=True)
    return lower(captured.graph, options, PassLog(), known).made["tensor"]


def multiply_adds(graph: Graph) -> int:
    """The elements that all reductions of a graph fold."""
    folded = (n.args[0].type.size for n in graph.nodes() if isinstance(n.op, Reduce))
    return sum(folded)
