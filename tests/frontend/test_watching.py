"""What a user can watch: rows of torch's profiler, warnings, logs, traces."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import weft
from tests.frontend.entries import Entry, assert_same


def test_the_profiler_has_a_row_per_kernel_while_it_records(entry: Entry) -> None:
    f, x = entry(lambda x: x.exp().softmax(1).sum(0).cumsum(0)), torch.randn(64, 64)
    f(x)
    for _ in range(2):
        with profile(activities=[ProfilerActivity.CPU]) as recorded:
            f(x)
        rows = {row.key: row.count for row in recorded.key_averages() if "weft::" in row.key}
        assert len(rows) >= 1 and set(rows.values()) == {1}
        if entry is weft.compile:
            assert rows.keys() == {f"weft::{kernel.name}" for kernel in f.report.kernels}
        f(x)  # all kernels in one call, which has no rows


class Scaled:
    by = 1.0


def test_a_warning_says_what_keeps_changing(caplog: pytest.LogCaptureFixture) -> None:
    torch.compiler.reset()
    scaled = Scaled()
    f, x = weft.compile(lambda x: x * scaled.by, dynamic=False), torch.randn(3)
    with caplog.at_level(logging.WARNING, logger="weft"):
        for number in range(8):
            scaled.by = float(number)
            f(x)
        assert caplog.messages == []
        for number in range(8, 11):
            scaled.by = float(number)
            assert_same(f(x), x * scaled.by)
    (message,) = caplog.messages  # once, not at every call
    assert "is compiled again (9)" in message and ".by == " in message


def test_a_warning_says_which_size_changes(caplog: pytest.LogCaptureFixture) -> None:
    torch.compiler.reset()
    f = weft.compile(lambda x: x * 2, dynamic=False)
    with caplog.at_level(logging.WARNING, logger="weft"):
        for n in range(3, 12):
            f(torch.ones(n))
    (message,) = caplog.messages
    assert "size mismatch at index 0" in message


def test_passes_in_logs_and_levels_in_traces(tmp_path: Path) -> None:
    """TORCH_LOGS=+weft and TORCH_TRACE, through `python -m weft`."""
    environment = {
        **{k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
        "TORCH_LOGS": "+weft",
        "TORCH_TRACE": str(tmp_path),
        "WEFT_CACHE": str(tmp_path / "c"),
    }
    done = subprocess.run(
        [sys.executable, "-m", "weft", "run", "-c", "torch.randn(4, 4).softmax(1)"],
        env=environment, capture_output=True, text=True, cwd=Path(weft.__file__).parents[1],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for name in ("n:001_simplify", "vectorize_loops", "merge_rows"):
        assert any(name in line and " ms " in line for line in done.stderr.splitlines())
    (trace,) = tmp_path.glob("*.log")
    lines = [line for line in trace.read_text().splitlines() if '"artifact"' in line]
    heads = [json.loads(line[line.index("{") :])["artifact"]["name"] for line in lines]
    levels = ("torch", "tensor", "loop", "tile", "kernel", "source")
    assert [n for n in heads if n.startswith("weft_")] == [f"weft_{level}" for level in levels]
