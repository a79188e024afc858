"""A quick part of the GPU corpus (`make corpus` is all of it), and that it finds what is wrong."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pytest
import torch

from tests.gpu.corpus import checks, player
from tests.gpu.corpus.checks import examine
from tests.gpu.corpus.compilers import check_hip
from tests.gpu.corpus.row import Row
from tests.gpu.corpus.schedules import FIRST, LEFT_OUT
from tests.gpu.corpus.table import GROUPS
from tests.gpu.opencl import opencl_device
from weft.emit import sources
from weft.emit.languages import CUDA, LANGUAGES, OPENCL, Language

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the simulator needs g++")
NVRTC = find_spec("cuda") is not None

QUICK = [("programs", name) for name in GROUPS["programs"]] + [
    ("reductions", "var of middle"),
    ("reductions", "argmin of rows, bf16"),
    ("reductions", "several along (0, 2)"),
    ("layouts", "softmax of strided, f32"),
    ("layouts", "product of transposed, bf16"),
    ("layouts", "rows of expanded rows, f32"),
    ("layouts", "softmax of expanded columns, f32"),
    ("layouts", "pointwise of overlapping, f32"),
    ("layouts", "convolution of channels last"),
    ("layouts", "written in place, transposed"),
    ("indexing", "scatter of many rows"),
    ("indexing", "scatter of short rows"),
    ("indexing", "scatter along rows"),
    ("agree", "lstm_cell"),
    ("agree", "rank_0"),
    ("chance", "chance 3"),
]


@pytest.mark.parametrize(("group", "name"), QUICK)
def test_quick_part(group: str, name: str) -> None:
    row = examine(GROUPS[group][name], nvrtc=NVRTC)
    assert not row.failures, "\n".join(row.failures)


def test_the_corpus_is_large_enough() -> None:
    assert sum(map(len, GROUPS.values())) >= 150
    assert all(program.real for program in GROUPS["workloads"].values())


def broken(
    monkeypatch: pytest.MonkeyPatch,
    old: str,
    new: str,
    name: str = "softmax",
    languages: tuple[Language, ...] = tuple(LANGUAGES.values()),
) -> Row:
    """What the corpus says where a text of every kernel in these languages is another."""
    right = sources.emit_gpu

    def wrong(kernel: Any, symbol: str, language: Language, *args: Any) -> Any:
        launch = right(kernel, symbol, language, *args)
        source = launch.source.replace(old, new) if language in languages else launch.source
        return replace(launch, source=source)

    monkeypatch.setattr(sources, "emit_gpu", wrong)
    return examine(GROUPS["programs"][name], nvrtc=NVRTC)


def test_a_race_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    row = broken(monkeypatch, "__syncthreads();", "")
    assert row.faults and not row.errors
    assert any(FIRST in failure and "nothing orders the two" in failure for failure in row.failures)


def test_a_wrong_result_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    row = broken(monkeypatch, "in0 + in1", "in0 - in1", "add")
    assert row.misses and not row.faults and not row.errors
    assert "result 0: error" in row.failures[0]


def test_a_refused_kernel_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    row = broken(monkeypatch, "__global__ void", "__global__ void nothing", "add")
    assert row.errors


def test_what_opencl_alone_gets_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    opencl_device()
    wrong = broken(monkeypatch, "in0 + in1", "in0 - in1", "add", (OPENCL,))
    assert wrong.misses == 1 and not wrong.errors
    assert wrong.failures[0].startswith("opencl: result 0: error")
    monkeypatch.undo()
    refused = broken(monkeypatch, "__kernel", "__nothing", "add", (OPENCL,))
    assert refused.errors == 1 and not refused.misses
    assert re.match("opencl: .* refused a kernel", refused.failures[0])


def one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each kernel one block runs, as if it were long."""
    monkeypatch.setattr(player, "LONG", 0)
    for name in ("DEFAULT", "LEFT_OUT"):
        monkeypatch.setattr(player, name, player.Part(1, 1, 1, 10**9))


def test_what_runs_in_part_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    one_block(monkeypatch)
    right = examine(GROUPS["programs"]["add"], nvrtc=False, hip=False)
    assert right.partly and not right.failures
    wrong = broken(monkeypatch, "in0 + in1", "in0 - in1", "add", (CUDA,))
    assert wrong.misses == wrong.partly > 0
    monkeypatch.undo()
    one_block(monkeypatch)
    races = broken(monkeypatch, "__syncthreads();", "", "two_axes", (CUDA,))
    assert races.faults and races.partly and not races.misses


def test_opencl_is_checked_where_the_simulator_runs_in_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opencl_device()
    one_block(monkeypatch)
    row = broken(monkeypatch, "acc0_own + in0", "acc0_own - in0", "two_axes", (OPENCL,))
    assert row.partly and row.misses == 1
    assert row.failures[0].startswith("opencl: result 0: error")


@pytest.mark.skipif(shutil.which("hipcc") is None, reason="there is no hipcc")
def test_what_hipcc_refuses_is_found_in_its_program(monkeypatch: pytest.MonkeyPatch) -> None:
    right = examine(GROUPS["programs"]["softmax"], nvrtc=False, hip=False)
    monkeypatch.setattr(checks, "check_hip", lambda rows: None)
    wrong = broken(monkeypatch, "in0 + in1", "in0 + nothing", "add", (LANGUAGES["hip"],))
    assert right.hip and wrong.hip and not wrong.failures
    check_hip([right, wrong])
    assert not right.failures and wrong.errors == 1 and "refused" in wrong.failures[0]


def test_a_pass_that_changes_nothing_is_not_left_out() -> None:
    """A program of nothing but one loop has no slabs, no sums and no tiles."""
    row = examine(GROUPS["programs"]["long"], nvrtc=False, hip=False)
    assert not row.failures and row.schedules <= 6


def test_eager_is_the_reference_where_its_dtype_ends_before() -> None:
    largest = torch.finfo(torch.float32).max
    eager = torch.tensor([largest, 1.0, float("inf")])
    reference = torch.tensor([torch.finfo(torch.float64).max, 1.5, 1e300], dtype=torch.float64)
    wanted = torch.tensor([largest, 1.5, 1e300], dtype=torch.float64)
    assert torch.equal(checks.known(eager, reference), wanted)


def test_every_pass_is_left_out() -> None:
    """A softmax along rows of another length than a block's is changed by most."""
    row = examine(GROUPS["programs"]["softmax"], nvrtc=False)
    assert 1 < row.schedules <= 3 + len(LEFT_OUT)
