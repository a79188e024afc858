"""Which target a name stands for where tensors are, and the sentence where a program cannot run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

import weft
from weft.core.errors import CompilerError
from weft.options import Options, find_target
from weft.runtime import nvidia
from weft.runtime.cuda import refusal
from weft.targets.nvidia import runs_on

CUDA = torch.device("cuda", 1)
NO_DEVICE = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


def board(monkeypatch: pytest.MonkeyPatch, *capability: int) -> None:
    """torch finds two devices, the second of that compute capability."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: f"board {index}")
    found = lambda index: capability if index == 1 else (8, 0)  # noqa: E731
    monkeypatch.setattr(torch.cuda, "get_device_capability", found)


@pytest.mark.parametrize(
    ("arch", "capability", "runs"),
    [
        ("sm_80", (8, 0), True),
        ("sm_80", (8, 9), True),
        ("sm_80", (9, 0), False),
        ("sm_80", (7, 5), False),
        ("sm_90a", (9, 0), True),
        ("sm_90a", (9, 1), False),
        ("sm_90a", (10, 0), False),
        ("sm_120", (12, 0), True),
        ("sm_120", (12, 1), True),
    ],
)
def test_machine_code_runs_within_a_generation(
    arch: str, capability: tuple[int, int], runs: bool
) -> None:
    assert runs_on(arch, capability) is runs


@pytest.mark.parametrize(
    ("capability", "name"),
    [((8, 6), "cuda:sm_80"), ((9, 0), "cuda:sm_90a"), ((12, 1), "cuda:sm_120")],
)
def test_the_device_chooses(
    capability: tuple[int, int], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    board(monkeypatch, *capability)
    assert Options("cuda").on(CUDA).target == Options("auto").on(CUDA).target == name
    assert Options("cuda").on(torch.device("cpu")).target == name
    assert Options("auto").on(torch.device("cpu")).target == "cpu"
    assert Options("cuda:sm_80").on(CUDA).target == "cuda:sm_80"
    assert find_target("cuda") is find_target(name)


def test_a_device_that_no_target_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    board(monkeypatch, 10, 0)
    with pytest.raises(weft.WeftError, match=r"no target is for board 1, .* 10\.0: "):
        Options("auto").on(CUDA)
    assert refusal(0, "sm_80") is None
    told = "kernels for sm_90a do not run on cuda:1: board 1, of compute capability 10.0"
    assert refusal(1, "sm_90a") == told


@NO_DEVICE
def test_without_a_device() -> None:
    with pytest.raises(weft.WeftError, match=r"no CUDA device .* name one of cuda:sm_80, cuda:sm_"):
        weft.compile(torch.relu, target="cuda")
    f = weft.compile(torch.relu, target="cuda:sm_80")
    with pytest.raises(weft.WeftError, match=r"need tensors on a CUDA device.*finds none here"):
        f(torch.ones(3))
    assert "k_relu" in f.ir("cuda")


def test_tensors_where_the_target_is_not() -> None:
    with pytest.raises(weft.WeftError, match=r"the tensors are on meta.*they have no values"):
        weft.compile(torch.relu, target="cpu")(torch.ones(3, device="meta"))
    with pytest.raises(weft.WeftError, match="these are on meta"):
        weft.compile(torch.relu, target="cuda:sm_80")(torch.ones(3, device="meta"))


def test_two_devices_in_one_program() -> None:
    def both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x + 1, torch.ones(3, device="meta")

    with pytest.raises(weft.CaptureError, match="tensors on cpu and meta in one program"):
        weft.compile(both, fallback="error")(torch.ones(3))


def test_a_number_of_the_cpu_is_no_other_device() -> None:
    f = weft.compile(lambda x, y: x * y + torch.tensor(2.0), target="cuda:sm_80")
    f.prepare(torch.ones(3, device="meta"), torch.tensor(2.0))
    assert len(f.report.kernels) == 1 and not f.reasons


def test_without_the_bindings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nvidia.nvrtc.cache_clear()
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(CompilerError, match=r"pip install 'weft\[cuda\]'"):
        nvidia.nvrtc()
    f = weft.compile(torch.relu, target="cuda:sm_80")
    f.prepare(torch.ones(3))
    assert "k_relu" in f.ir("cuda")  # text needs no compiler
    nvidia.nvrtc.cache_clear()
