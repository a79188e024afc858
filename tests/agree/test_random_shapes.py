"""Programs over random shapes, 0, 1 and primes among them, with inputs of any layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

pytest.importorskip("hypothesis")
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.agree.checks import check

EXTENTS = st.sampled_from((0, 1, 2, 3, 5, 7, 8, 13, 16, 17, 31, 33, 67))
DTYPES = st.sampled_from((torch.float32,) * 4 + (torch.float64, torch.bfloat16, torch.int32))

# How a tensor of that shape may lie in memory.
LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "contiguous": lambda x: x,
    "reversed": lambda x: (
        x.permute(*range(x.dim())[::-1]).contiguous().permute(*range(x.dim())[::-1])
    ),
    "strided": lambda x: torch.stack((x, x), -1)[..., 1],
    "offset": lambda x: F.pad(x, (3, 2))[..., 3:-2],
    "expanded": lambda x: x[:1].expand(x.shape) if x.shape[0] else x,
}


def real(x: torch.Tensor) -> torch.Tensor:
    return x if x.is_floating_point() else x.float()


# Programs of x: [a, b, c]; y: the same; w: [c, d].
PROGRAMS: dict[str, Callable[..., Any]] = {
    "pointwise": lambda x, y, w: (x * y + 1, (x < y) | (x == 3), x.permute(2, 0, 1) * 2),
    "broadcast": lambda x, y, w: x[:, :1] * y + x[..., :1] * y[:1],
    "sums": lambda x, y, w: (x.sum(), x.sum(0), (x * y).sum((0, 2)), x.sum(2, keepdim=True) * y),
    "means": lambda x, y, w: (real(x).mean(1), (real(x) - real(x).mean(2, keepdim=True)) * y),
    "views": lambda x, y, w: (
        x.flip(1)[:, ::2] + 1,
        x.reshape(-1) * 2,
        F.pad(y, (1, 2, 0, 1)).sum(1),
    ),
    "joined": lambda x, y, w: (torch.cat((x, y), 1) * 2, torch.stack((x, y)).sum(2)),
    "scan": lambda x, y, w: (x.cumsum(1) * y, (y > 0).cumsum(2)),
    "softmax": lambda x, y, w: (real(x).softmax(2), real(y).log_softmax(1)),
    "layer_norm": lambda x, y, w: F.layer_norm(real(x), x.shape[2:]) + y,
    "matmul": lambda x, y, w: (x @ w + 1, (x @ y.transpose(1, 2)).relu()),
    "matmul_net": lambda x, y, w: real((x + y) @ w).softmax(-1).sum(1),
}


@pytest.mark.parametrize("program", PROGRAMS)
@settings(max_examples=4)
# A value computed in three loops must round alike in all: a masked sum was not contracted to FMA.
@example((1, 1, 2, 5), torch.float32, "contiguous", "contiguous")
@given(
    st.tuples(EXTENTS, EXTENTS, EXTENTS, EXTENTS), DTYPES, *[st.sampled_from(sorted(LAYOUTS))] * 2
)
def test_random_shapes(
    program: str, shape: tuple[int, ...], dtype: torch.dtype, one: str, other: str
) -> None:
    torch.manual_seed(sum(shape))
    a, b, c, d = shape
    x, y, w = (torch.randn(s).mul(8).to(dtype) for s in ((a, b, c), (a, b, c), (c, d)))
    check(PROGRAMS[program], (LAYOUTS[one](x), LAYOUTS[other](y), w))
