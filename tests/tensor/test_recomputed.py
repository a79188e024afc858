"""A sum that a program uses twice has one value: the greatest less the maximum is 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest
import torch
from torch.nn import functional as F

import weft

Tensor = torch.Tensor
PROGRAMS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "rows": lambda x, w: (t := F.linear(x, w, w[0])).exp() * 0 + t - t.amax(1, keepdim=True),
    "whole": lambda x, w: (t := x @ w.t()) - t.amax(),
    "sum": lambda x, w: (t := (x[:, None] + w).sum(-1)) - t.amax(1, keepdim=True),
    "scan": lambda x, w: (t := x @ w.t()) - t.cummax(1).values.amax(1, keepdim=True),
}


@pytest.mark.parametrize("fuse", ["greedy", "all"])
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_a_sum_has_one_value(
    program: Callable[[Tensor, Tensor], Tensor], fuse: Literal["greedy", "all"]
) -> None:
    compiled = weft.compile(program, fuse=fuse)
    for seed in range(10):
        torch.manual_seed(seed)
        x, w = torch.randn(9, 8), torch.randn(8, 8)
        assert torch.equal(compiled(x, w) == 0, program(x, w) == 0), seed


def test_it_is_stored_after_what_alone_reads_it() -> None:
    """The epilogue stays with its sum, as do sums that are computed at one place."""
    compiled = weft.compile(lambda x, w: torch.log_softmax(F.rms_norm(x, (8,)) @ w.t() + 1, 1))
    compiled.prepare(torch.empty(8, 8), torch.empty(8, 8))
    assert len(compiled.report.kernels) == 2
