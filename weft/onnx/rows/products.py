"""Products of matrices, determinants, einsum.

MatMul(x, self.weight)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from weft.onnx.table import op
from weft.onnx.types import refuse


@op("MatMul")
def matmul(a: Tensor, b: Tensor) -> Tensor:
    return torch.matmul(a, b)


@op("Gemm")
def gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    broadcast: int = 0,
) -> Tensor:
    a, b = a.t() if transA else a, b.t() if transB else b
    if c is None:
        found = torch.matmul(a, b)
        return found if alpha == 1 else found * scalar(alpha, found)
    if a.is_floating_point() and c.dim() <= 2:
        return torch.addmm(c, a, b, alpha=alpha, beta=beta)
    return torch.matmul(a, b) * scalar(alpha, a) + c * scalar(beta, a)


def scalar(value: float, x: Tensor) -> Any:
    if x.is_floating_point():
        return value
    if value != int(value):
        refuse(f"integers are not multiplied by {value}")
    return int(value)


@op("Einsum")
def einsum(*inputs: Tensor, equation: str) -> Tensor:
    return torch.einsum(equation, *inputs)


@op("Det")
def det(x: Tensor) -> Tensor:
    return torch.linalg.det(x)
