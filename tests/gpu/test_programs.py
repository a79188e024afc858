"""Emitted CUDA: it runs in the simulator without faults, agrees with eager, and compiles."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import weft
from tests.gpu.programs import PROGRAMS
from weft.config import config
from weft.driver import compile_text
from weft.options import Options
from weft.runtime.cache import Cache
from weft.tile.schedule import GPU_SCHEDULE

SIMULATOR = pytest.mark.skipif(shutil.which("g++") is None, reason="the simulator needs g++")
ARCHES = ("sm_80", "sm_90a", "sm_120")


def simulated(name: str, **options: Any) -> Any:
    torch.manual_seed(0)
    function, make = PROGRAMS[name]
    args = make()
    options = {"target": "cuda:sm_90a", "simulate": True, "fallback": "error", **options}
    compiled = weft.compile(function, **options)
    got, wanted = compiled(*args), function(*args)
    for one, other in zip(pytree.tree_leaves(got), pytree.tree_leaves(wanted), strict=True):
        torch.testing.assert_close(one, other)
        assert one.stride() == other.stride()
    return compiled


@SIMULATOR
@pytest.mark.parametrize("name", PROGRAMS)
def test_simulated_as_eager(name: str) -> None:
    simulated(name)


@SIMULATOR
@pytest.mark.parametrize("left_out", [name[:3] for name, _ in GPU_SCHEDULE])
@pytest.mark.parametrize("name", ["long", "softmax", "argmax", "column_sum", "matmul"])
def test_without_a_pass(name: str, left_out: str) -> None:
    simulated(name, passes=f"-{left_out}")


def test_every_kernel_compiles_without_spills() -> None:
    pytest.importorskip("cuda.bindings")
    from weft.runtime.nvrtc import compile_cubin

    for name, (function, make) in PROGRAMS.items():
        compiled = weft.compile(function, target="cuda:sm_90a", fallback="error")
        compiled.prepare(*make())
        text = compiled.ir("cuda")
        for arch in ARCHES if text else ():
            for kernel, used in compile_cubin(text, arch, Cache(config.cache)).kernels.items():
                assert used.spill_bytes == used.stack_bytes == 0, (name, arch, kernel)


def test_without_the_simulator_the_error_says_what_to_do() -> None:
    with pytest.raises(weft.WeftError, match="simulate=True"):
        weft.compile(lambda x: x + 1, target="cuda:sm_90a")(torch.ones(3))
    with pytest.raises(weft.WeftError, match="simulate is for cuda:sm_80"):
        weft.compile(lambda x: x + 1, simulate=True)


@pytest.mark.parametrize("passes", ["007", "-7", "-007;-008"])
def test_passes_are_named_by_number(passes: str) -> None:
    with pytest.raises(weft.WeftError, match="-007 leaves 007 out"):
        weft.compile(lambda x: x, passes=passes)


@pytest.mark.parametrize("level", ["tile", "kernel"])
@pytest.mark.parametrize(("one", "other"), [("cuda:sm_80", "cpu:avx2"), ("cpu:avx2", "cuda:sm_80")])
def test_text_for_another_machine_is_refused(level: str, one: str, other: str) -> None:
    compiled = weft.compile(lambda x: x.softmax(-1), target=one)
    compiled.prepare(torch.ones(4, 64))
    with pytest.raises(weft.WeftError, match="choose the target"):
        compile_text(compiled.ir(level), Options(other))


def test_sources_are_of_one_language() -> None:
    compiled = weft.compile(lambda x: x + 1, target="cuda:sm_80")
    compiled.prepare(torch.ones(3))
    with pytest.raises(weft.WeftError, match="are cuda, not c"):
        compiled.ir("c")
