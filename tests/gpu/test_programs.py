"""What is asked of GPU targets wrongly: one sentence says what to do. The corpus tests the rest."""

from __future__ import annotations

import shutil
from functools import partial
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import weft
from tests.gpu.programs import PROGRAMS
from weft.driver import compile_text
from weft.levels import GPU_THREADS
from weft.options import Options
from weft.targets.cpu import CPUS
from weft.targets.gpu import GPUS
from weft.tile.schedule import ASKED, NEEDED, schedule_for

SIMULATOR = pytest.mark.skipif(shutil.which("g++") is None, reason="the simulator needs g++")


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


def test_without_the_simulator_the_error_says_what_to_do() -> None:
    with pytest.raises(weft.WeftError, match="simulate=True"):
        weft.compile(lambda x: x + 1, target="cuda:sm_90a")(torch.ones(3))
    with pytest.raises(weft.WeftError, match="simulate is for cuda:sm_80"):
        weft.compile(lambda x: x + 1, simulate=True)


@pytest.mark.parametrize("passes", ["008", "stage_inputs", "-008;-009"])
def test_passes_are_left_out(passes: str) -> None:
    with pytest.raises(weft.WeftError, match="-stage_inputs leaves that pass out"):
        weft.compile(lambda x: x, passes=passes)


@pytest.mark.parametrize("target", ["cpu:avx2", "cuda:sm_80"])
def test_a_pass_that_does_not_exist_cannot_be_left_out(target: str) -> None:
    f = weft.compile(torch.relu, target=target, passes="-block_sums,-stage_input")
    with pytest.raises(weft.WeftError, match="unknown pass to leave out 'stage_input'"):
        f.prepare(torch.ones(3))


@pytest.mark.parametrize("target", [GPUS["cuda:sm_80"], CPUS["avx2"]], ids=["gpu", "cpu"])
def test_a_name_and_its_number_are_one_pass(target: Any) -> None:
    """Numbers are places in the order of the passes, over the program and then over kernels."""
    made = partial(schedule_for, target, threads=GPU_THREADS, asked=ASKED)
    whole = made()
    names = [name for part in whole for name, _ in part]
    assert [int(name[:3]) for name in names] == list(range(1, len(names) + 1))
    for number, name in (n.split("_", 1) for n in names if n[4:] not in NEEDED):
        assert made([name]) == made([number]) != whole


@SIMULATOR
def test_a_pass_of_the_kernel_level_is_left_out() -> None:
    """Fragments of a bf16 product are loaded by ldmatrix, or one by one: no digit differs."""
    torch.manual_seed(0)
    args = [torch.randn(64, 64).bfloat16() for _ in "ab"]
    texts, results = list[str](), list[torch.Tensor]()
    for passes in ("", "-load_matrices"):
        options = {"target": "cuda:sm_80", "simulate": True, "fallback": "error", "passes": passes}
        compiled = weft.compile(torch.matmul, **options)
        results.append(compiled(*args))
        texts.append(compiled.ir("cuda"))
    assert "load_matri" in texts[0] and "load_matri" not in texts[1] and torch.equal(*results)


@pytest.mark.parametrize("name", NEEDED)
def test_what_a_thread_cannot_be_without_stays(name: str) -> None:
    with pytest.raises(weft.WeftError, match=f"unknown pass to leave out '{name}'"):
        schedule_for(GPUS["cuda:sm_80"], [name], threads=GPU_THREADS)


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
