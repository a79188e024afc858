"""Rows of the matmul family: every product is a sum over a map of two views.

"addmm": lambda bias, a, b, beta=1, alpha=1: ...      # 16-bit operands arrive as f32
"""

from collections.abc import Callable
from typing import Any

from weft.frontend.aten.formulas import scaled
from weft.frontend.aten.table import Row, require, rows
from weft.tensor.build import Number, Tensor, matmul, squeeze, total, transpose, unsqueeze


def added(product: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    def row(bias: Tensor, a: Tensor, b: Tensor, beta: Number = 1, alpha: Number = 1) -> Tensor:
        """beta * bias + alpha * product; a bias times 0 is not read, even where it is NaN."""
        out: Any = scaled(product(a, b), alpha)
        return out if beta == 0 else out + scaled(bias, beta)

    return row


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    out = product(x, transpose(weight) if weight.rank > 1 else weight)
    return out if bias is None else out + bias


def product(a: Tensor, b: Tensor) -> Tensor:
    """torch.matmul: a vector on either side is a matrix with one row or column."""
    require(a.dtype == b.dtype, "its operands have different dtypes")
    if a.rank == 1:
        return squeeze(product(unsqueeze(a, 0), b), (max(b.rank - 2, 0),))
    if b.rank == 1:
        return squeeze(matmul(a, unsqueeze(b, 1)), (a.rank - 1,))
    return matmul(a, b)


CONTRACTIONS = {
    "mm bmm mv": product,
    "addmm baddbmm addmv": added(product),
    "addbmm": added(lambda a, b: total(matmul(a, b), (0,))),
    "linear": linear,
}

ROWS: dict[str, Row] = rows("widened", CONTRACTIONS)
