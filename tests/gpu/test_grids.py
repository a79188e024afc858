"""No kernel of real size leaves most of a device idle: results of one block are combined ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import weft

X = torch.empty(1024, 1024)
TARGETS = torch.zeros(1024, dtype=torch.int64)
IMAGES = torch.empty(8, 64, 32, 32)

PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "softmax_of_all": (lambda x: x.flatten().softmax(0), (X,)),
    "standardised": (lambda x: (x - x.mean()) / x.std(), (X,)),
    "batch_norm": (lambda x: F.batch_norm(x, None, None, training=True), (IMAGES,)),
    "full_sum": (lambda x: x.sum(), (X,)),
    "cross_entropy": (F.cross_entropy, (X, TARGETS)),
    "kl_div": (lambda x, y: F.kl_div(x.log_softmax(-1), y.softmax(-1)), (X, X)),
    "greatest_share": (lambda x: x.softmax(-1).max(), (X,)),
    "mean_of_rows": (lambda x: x.logsumexp(-1).mean(), (X,)),
    "norms": (lambda x: x.norm(dim=-1).sum(), (X,)),
    "deviations": (lambda x: x.std(-1).mean(), (X,)),
    "row_times_matrix": (lambda x: x[0] @ x, (X,)),
    "few_rows": (lambda x, w: w @ x, (X, torch.empty(16, 1024))),
    "cat": (lambda x: torch.cat((x, x + 1), 1), (X,)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_blocks(name: str) -> None:
    function, args = PROGRAMS[name]
    compiled = weft.compile(function, target="cuda:sm_90a", fallback="error")
    compiled.prepare(*args)
    levels = compiled.programs[0].artifact.levels()
    launches = {
        k.name: levels.launches[levels.symbols[k.name]] for k in levels.program("kernel").kernels
    }
    for kernel in levels.program("kernel").kernels:
        read = sum(b.type.size for b in kernel.inputs)
        assert launches[kernel.name].grid >= 32 or read <= 1 << 16, kernel.name


@pytest.mark.parametrize("target", ["cuda:sm_90a", "hip:gfx90a", "metal"])
@pytest.mark.parametrize("columns", [96, 70])
def test_warps_share_few_columns(columns: int, target: str) -> None:
    """A fold that is not split over the grid, of columns that fill few blocks."""

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.var(0), x.argmax(0), x.logsumexp(0)

    x = torch.randn(333, columns)
    compiled = weft.compile(function, target=target, simulate=True, fallback="error")
    for found, wanted in zip(compiled(x), function(x), strict=True):
        torch.testing.assert_close(found, wanted)
    kernels = compiled.programs[0].artifact.levels().launches.values()
    assert "# reduce warp" in compiled.ir("tile")
    assert max(k.block for k in kernels) == (256 if target == "metal" else 512)


def test_rows_that_reduce_themselves_over_the_grid() -> None:
    """A block has some of the rows, and a second kernel adds all up."""
    x, targets = torch.randn(96, 300), torch.randint(300, (96,))
    programs: list[tuple[Any, tuple[Any, ...]]] = [
        (lambda x: x.logsumexp(-1).mean(), (x,)),
        (F.cross_entropy, (x, targets)),
    ]
    for function, args in programs:
        f = weft.compile(function, target="cuda:sm_90a", simulate=True, fallback="error")
        torch.testing.assert_close(f(*args), function(*args))
        launches = f.programs[0].artifact.levels().launches.values()
        assert max(one.grid for one in launches) > 1


@pytest.mark.parametrize("shape", [(128, 512, 512), (262144, 64)])
def test_a_softmax_is_one_kernel(shape: tuple[int, ...]) -> None:
    """Its price on a GPU is not that of rows which a pass of CPUs would stage."""
    compiled = weft.compile(lambda x: x.softmax(-1), target="cuda:sm_90a", fallback="error")
    compiled.prepare(torch.empty(shape))
    assert len(compiled.programs[0].artifact.levels().launches) == 1
