"""Long sums on GPUs: whatever a thread adds alone, rounding stays within what eager is allowed.

Passes that would keep sums short are left out, so that each way to block one is reached.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest
import torch

import weft
from weft.cli.check import check, run_reference
from weft.cli.program import Source

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the simulator needs g++")

# What is left out, the program, the shapes of its arguments, and the loop whose sums are parts.
LONG: dict[str, tuple[str, Callable[..., torch.Tensor], list[tuple[int, ...]], str]] = {
    "shared by threads": (
        "-split_matmul_k",
        lambda x: x.sum(),
        [(1 << 20,)],
        "reduce thread into acc0_s0",
    ),
    "beside slabs": (
        "-split_matmul_k",
        torch.matmul,
        [(32, 8192), (8192, 32)],
        "reduce serial into acc0_s0",
    ),
    "of deviations": ("-cooperative_reduce", lambda x: x.var(), [(7, 9, 70)], "acc2_s0 <- welford"),
    "so far": ("", lambda x: x.cumsum(0), [(5000, 40)], "running acc0_s0"),
    "in uneven parts": (
        "-block_sums",
        lambda x: x.sum(),
        [(1_000_003,)],
        "in 0..min(4100, 1000003 - ",
    ),
    "in a thread": ("-cooperative_reduce", lambda x: x.sum(1), [(3, 5000)], "acc0_s0 <- add"),
}


@pytest.mark.parametrize("name", LONG)
def test_rounding_stays_small(name: str) -> None:
    passes, function, shapes, part = LONG[name]
    torch.manual_seed(0)
    args = tuple(torch.randn(shape) for shape in shapes)
    f = weft.compile(function, target="cuda:sm_90a", passes=passes, simulate=True)
    verdicts = check(f(*args), function(*args), run_reference(Source(function, args, {}, name)))
    assert all(v.passed for v in verdicts), verdicts
    assert part in f.ir("tile")


def test_short_sums_stay_as_they_are() -> None:
    """Nor do products, whose tiles have accumulators enough, below 4096 terms."""
    f = weft.compile(torch.matmul, target="cuda:sm_90a", simulate=True, passes="-split_matmul_k")
    f.prepare(torch.randn(32, 4096), torch.randn(4096, 32))
    assert "partial" not in f.ir("tile")
