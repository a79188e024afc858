"""Rows of tensors made from nothing: their dtype and shape are the torch level's.

"zeros": lambda size, **_: 0             # a number fills the result
"""

import math
from collections.abc import Callable
from typing import Any

from weft.core.types import DType, Symbolic, f64, i64
from weft.frontend.aten.table import Row, require, rows
from weft.scalar.ops import apply
from weft.scalar.sizes import larger
from weft.tensor.build import Number, Tensor, affine, cast, index_of, iota, literal
from weft.tensor.ops import position


def arange(start: Any, end: Any, step: Any, dtype: DType | None = None, **_: Any) -> Tensor:
    """start + i * step, in f64 unless the result is an integer."""
    given = (start, end, step)
    whole = all(isinstance(v, int | Symbolic) for v in given)
    if any(isinstance(v, Symbolic) for v in given):
        require(whole, "numbers between sizes")
        shape = (larger((end - start + step - (1 if step > 0 else -1)) // step, 0),)
    else:
        whole = whole if dtype is None else dtype.is_integer
        if whole and dtype in (None, i64):
            start, end, step = (int(v) for v in given)
        shape = (max(0, math.ceil((end - start) / step)),)
    if whole and (dtype is None or dtype.is_integer):
        start, step = (v if isinstance(v, Symbolic) else int(v) for v in (start, step))
        return index_of(shape, affine({0: step}, start))
    i = cast(iota(shape, 0), f64)
    scaled = i if step == 1 else i * float(step)
    return scaled if start == 0 else scaled + literal(start, f64)


DIAGONAL = apply("eq", position(0), position(1))


def always(value: Number) -> Callable[..., Number]:
    return lambda *_, **__: value


FACTORIES = {
    "zeros zeros_like new_zeros zero _efficientzerotensor": always(0),
    "empty.memory_format empty_like empty_strided empty_permuted": always(0),
    "new_empty new_empty_strided": always(0),
    "ones ones_like new_ones": always(1),
    "full full_like new_full": lambda *given, **_: given[-1],  # after a size or a tensor
    "scalar_tensor": lambda value, **_: value,
    "arange.start_step": arange,
    # torch writes it over coordinates of uint16, which no arange of eager's can be
    "eye eye.m": lambda n, m=None, **_: index_of((n, n if m is None else m), DIAGONAL),
}

ROWS: dict[str, Row] = rows("stored", FACTORIES)
