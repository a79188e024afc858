"""A quick part of the GPU corpus (`make corpus` is all of it), and that it finds what is wrong."""

from __future__ import annotations

import shutil
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pytest

from tests.gpu.corpus.checks import FIRST, LEFT_OUT, Row, examine
from tests.gpu.corpus.table import GROUPS
from weft.emit import sources

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
    ("indexing", "scatter along rows"),
    ("agree", "lstm_cell"),
    ("agree", "rank_0"),
    ("chance", "chance 3"),
    ("small workloads", "attention, grouped 32/4x512x64, small"),
]


@pytest.mark.parametrize(("group", "name"), QUICK)
def test_quick_part(group: str, name: str) -> None:
    row = examine(GROUPS[group][name], nvrtc=NVRTC)
    assert not row.failures, "\n".join(row.failures)


def test_the_corpus_is_large_enough() -> None:
    assert sum(map(len, GROUPS.values())) >= 150
    assert all(program.real for program in GROUPS["workloads"].values())


def broken(monkeypatch: pytest.MonkeyPatch, old: str, new: str, name: str = "softmax") -> Row:
    """What the corpus says where a text of every kernel is another."""
    right = sources.emit_gpu

    def wrong(*args: Any) -> Any:
        launch = right(*args)
        return replace(launch, source=launch.source.replace(old, new))

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


def test_every_pass_is_left_out() -> None:
    """A softmax along rows of another length than a block's is changed by most."""
    row = examine(GROUPS["programs"]["softmax"], nvrtc=False)
    assert 1 < row.schedules <= 3 + len(LEFT_OUT)
