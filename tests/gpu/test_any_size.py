"""Programs for any size on GPUs: one text for all sizes, launched with the grid of each.

Values at grown sizes of the whole corpus: python -m tests.agree.test_any_size simulator | opencl.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import weft
from tests.gpu.opencl import opencl_device
from tests.gpu.programs import PROGRAMS
from tests.gpu.simulated_device import simulated
from tests.gpu.test_launching import compiled, once, rows
from tests.gpu.test_programs import SIMULATOR
from weft.config import config
from weft.driver import compile_text
from weft.options import Options
from weft.runtime.cache import Cache
from weft.runtime.nvrtc import compile_all

ROWS = """program loop rows
size s0: 2..65536 near 100
size s1: 2..65536 near 500
input x: f32[s0,s1]

kernel y(x: f32[s0,s1]) -> y: f32[s0]
for a0 in 0..s0:  # free
    for a1 in 0..s1:  # reduce
        in0 = load x[a0, a1]
        acc0 <- add(acc0, in0)
    y[a0] = acc0

output y
"""
GROWN = (
    "long", "bf16", "integers", "softmax", "short_rows", "short_parts", "column_softmax", "argmax",
    "batch_norm", "transpose", "cat", "linear", "long_sum", "bf16_linear", "gather", "max_pool",
)  # fmt: skip


def grown(x: torch.Tensor, more: int) -> torch.Tensor:
    """A tensor like it whose every axis, but those of length 1, is longer."""
    shape = [n + more if n > 1 else n for n in x.shape]
    if x.dtype.is_floating_point:
        return torch.randn(shape).abs().to(x.dtype)
    return torch.randint(int(x.min()), int(x.max()) + 1, shape, dtype=x.dtype)


def check_sizes(f: Any, function: Callable[..., Any], args: tuple[torch.Tensor, ...]) -> None:
    """As eager, at sizes that come again, by one program."""
    for more in (0, 1, 8, 1, 0):
        given = tuple(grown(x, more) for x in args)
        got, wanted = f(*given), function(*given)
        for one, other in zip(pytree.tree_leaves(got), pytree.tree_leaves(wanted), strict=True):
            torch.testing.assert_close(one, other)
            assert one.stride() == other.stride()
    assert len(f.programs) == 1


@pytest.mark.parametrize("target", ["cuda:sm_90a", "hip:gfx942", "opencl", "metal"])
def test_text(target: str, golden: Callable[[str, str], None]) -> None:
    text = compile_text(ROWS, Options(target)).ir("source")
    golden(f"gpu/rows_of_any_size_{target.partition(':')[0]}.txt", text)


@SIMULATOR
@pytest.mark.parametrize("name", GROWN)
def test_launched_as_eager(name: str) -> None:
    function, make = PROGRAMS[name]
    with simulated():
        f = compiled(function, dynamic=True, fallback="error")
        check_sizes(f, function, make())


@SIMULATOR
@pytest.mark.parametrize("target", ["cuda:sm_80", "hip:gfx942", "metal", "opencl"])
def test_the_other_languages(target: str) -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x @ w).softmax(-1)

    if target == "opencl":
        opencl_device()
    options = {"dynamic": True, "fallback": "error", "simulate": target != "opencl"}
    f = weft.compile(function, target=target, **options)
    check_sizes(f, function, (torch.randn(5, 40), torch.randn(40, 33)))


@SIMULATOR
def test_operators_between_kernels() -> None:
    def sorts(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values, places = torch.sort(x * 2, dim=1)
        return values + 1, places, torch.sort(values.sum(1) + 1)[0] * x.shape[1]

    with simulated():
        check_sizes(compiled(sorts, dynamic=True), sorts, (torch.randn(5, 40),))


@SIMULATOR
def test_profiled() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.softmax(0) @ x.t().softmax(1)

    with simulated():
        f = compiled(function, dynamic=True, profile=True)
        x = torch.randn(5, 7)
        torch.testing.assert_close(f(x), function(x))
        assert all(k.measured_us for k in f.report.kernels)


@pytest.mark.parametrize(
    "function", [lambda x: x.roll(1, 1), lambda x: torch.arange(x.shape[1]) // x.shape[0]]
)
def test_checks_that_ranges_prove_are_none(function: Callable[..., Any]) -> None:
    opencl_device()
    f = weft.compile(function, target="opencl", dynamic=True, fallback="error")
    check_sizes(f, function, (torch.randn(5, 7),))


@SIMULATOR
def test_a_recording_is_of_one_tuple_of_sizes() -> None:
    """Also where another tuple comes with the same addresses, and as many elements."""
    w, memory = torch.randn(6, 6), torch.randn(12 * 6)
    shapes = (12, 6), (3, 6)
    with simulated() as device:
        f = compiled(rows, fuse="none", dynamic=True)
        f(memory.view(12, 6), w)
        (program,) = f.programs
        once("empty", program.__globals__)  # the result has 6 elements at all sizes
        once("new_arena", program.__globals__)  # of the larger size, which came first
        for _ in range(4):
            for shape in shapes:
                x = memory[: shape[0] * shape[1]].view(shape)
                torch.testing.assert_close(f(x, w), rows(x, w))
        assert len(f.programs) == 1
        assert (device.recorded, device.replayed) == (2, 2 * 3)


@SIMULATOR
def test_a_program_made_before_serves_other_sizes() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.sort(x.softmax(1) + 0.25)[0] * 2

    with simulated():
        for shape, cached in (((5, 40), False), ((300, 9), True)):
            x = torch.randn(shape)
            f = compiled(function, dynamic=True)
            torch.testing.assert_close(f(x), function(x))
            assert f.report.cached or not cached


@pytest.mark.skipif(find_spec("cuda") is None, reason="NVRTC is not installed")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_120"])
def test_the_compiler_takes_it(arch: str) -> None:
    def texts(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (x @ w).softmax(-1), x.sum(0), x.t().contiguous()

    f = weft.compile(texts, target=f"cuda:{arch}", dynamic=True, simulate=True)
    f(torch.randn(70, 96), torch.randn(96, 33))
    found = compile_all([f.ir("source")], arch, Cache(config.cache))
    used = [kernel for cubin in found.values() for kernel in cubin.kernels.values()]
    assert used and not any(kernel.spill_bytes for kernel in used)
