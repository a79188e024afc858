"""Every kind of reduction: along rows, columns, a middle axis and everything, in every dtype.

Rows are longer than a block, and than what a block of threads folds in one turn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.agree.inputs import Case, boolean, i32, tensor, u8

KINDS: dict[str, Callable[[torch.Tensor, int], Any]] = {
    "sum": lambda x, d: x.sum(d),
    "mean": lambda x, d: x.mean(d),
    "prod": lambda x, d: x.prod(d),
    "amax": lambda x, d: x.amax(d),
    "amin": lambda x, d: x.amin(d, keepdim=True),
    "argmax": lambda x, d: x.argmax(d),
    "argmin": lambda x, d: x.argmin(d),
    "max": lambda x, d: x.max(d),
    "var": lambda x, d: x.var(d),
    "std": lambda x, d: x.std(d, correction=0),
    "norm": lambda x, d: x.norm(dim=d),
    "logsumexp": lambda x, d: x.logsumexp(d),
    "softmax": lambda x, d: x.softmax(d),
    "log_softmax": lambda x, d: x.log_softmax(d),
    "layer_norm": lambda x, d: (x - x.mean(d, True)) * (x.var(d, keepdim=True) + 1e-5).rsqrt(),
    "cumsum": lambda x, d: x.cumsum(d),
    "cumprod": lambda x, d: x.cumprod(d),
    "any": lambda x, d: (x > 2).any(d),
    "all": lambda x, d: (x > -3).all(d),
    "count": lambda x, d: (x > 0).sum(d),
}
WHERE = {"rows": ((5, 700), 1), "columns": ((700, 41), 0), "middle": ((3, 130, 41), 1)}
HALVES = {"f16": torch.float16, "bf16": torch.bfloat16}
EXACT = ("sum", "amax", "argmin", "max", "cumsum", "count")  # of integers


def case(name: str, kind: str, where: str, dtype: torch.dtype = torch.float32) -> Case:
    shape, axis = WHERE[where]
    return Case(name, lambda x: KINDS[kind](x, axis), (tensor(dtype, *shape),))


def whole() -> list[Case]:
    """Everything to one value, and every subset of the axes."""
    x = tensor(torch.float32, 7, 9, 70)
    kinds: dict[str, Callable[[torch.Tensor], Any]] = {
        "sum": lambda x: x.abs().sum(),  # with signs, its error is beside nothing
        "amax": lambda x: x.amax(),
        "argmax": lambda x: x.argmax(),
        "var": lambda x: x.var(),
        "prod": lambda x: torch.where(x > 0, -1.0, 1.0).prod(),
        "logsumexp": lambda x: x.logsumexp((0, 1, 2)),
        "any": lambda x: (x > 5).any(),
    }
    rows = [Case(f"{kind} of everything", fn, (x,)) for kind, fn in kinds.items()]
    for axes in ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2)):
        fn = lambda x, d=axes: (x.sum(d), x.amax(d), x.var(d), (x * x).mean(d))  # noqa: E731
        rows.append(Case(f"several along {axes}", fn, (x,)))
    return rows


REDUCTIONS = [
    *(case(f"{kind} of {where}", kind, where) for kind in KINDS for where in WHERE),
    *(case(f"{k} of rows, {n}", k, "rows", d) for k in KINDS for n, d in HALVES.items()),
    *(case(f"{k} of columns, i64", k, "columns", torch.int64) for k in EXACT),
    *(Case(f"{k} of rows, i32", lambda x, k=k: KINDS[k](x, 1), (i32(5, 700),)) for k in EXACT),
    *(Case(f"{k} of rows, u8", lambda x, k=k: KINDS[k](x, 1), (u8(5, 700),)) for k in EXACT),
    Case(
        "any and all, bool", lambda x: (x.any(1), x.all(0), x.sum(1), x.any()), (boolean(5, 700),)
    ),
    *whole(),
]
