"""Backends in processes of their own: compared, checked, and reported when they fail."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from weft.cli.bench import Bench, Comparison, Measurement
from weft.cli.program import SourceSpec
from weft.core.errors import SourceError
from weft.runtime.child import ChildError


def test_workers_stay_for_several_programs() -> None:
    with Bench(["eager"]) as bench:
        for text in ("torch.randn(64) + 1", "torch.nn.Linear(8, 8)(torch.randn(2, 8))"):
            row = bench.compare(SourceSpec(text=text), rounds=1).measurements["eager"]
            assert row.passed and row.ms is not None and 0 < row.ms < 1000


def test_workers_stand_still_between_requests() -> None:
    """Threads that spin after a round would slow the next backend down: onnxruntime's do."""
    with Bench(["eager"]) as bench:
        bench.compare(SourceSpec(text="torch.ones(3) + 1"), rounds=1, seconds=0.01)
        status, end = 0, time.monotonic() + 10
        while not status and time.monotonic() < end:
            _, status = os.waitpid(bench.workers[0].process.pid, os.WUNTRACED | os.WNOHANG)
        assert os.WIFSTOPPED(status)


def test_a_result_is_checked_in_the_parent() -> None:
    """The worker draws a random number of its own, which is not what the parent expects."""
    text = "import os\nfactor = os.getpid()\ntorch.ones(3) * factor"
    with Bench(["eager"]) as bench:
        row = bench.compare(SourceSpec(text=text), rounds=1).measurements["eager"]
    assert not row.passed and row.verdict is not None and row.verdict.error > 0


def test_a_worker_that_dies_is_its_own_row() -> None:
    text = (
        "import os, sys\n"
        "if 'pytest' not in sys.modules:\n    print('no more', file=sys.stderr); os._exit(7)\n"
        "torch.ones(3) * 2"
    )
    with Bench(["eager"]) as bench:
        row = bench.compare(SourceSpec(text=text), rounds=1).measurements["eager"]
        assert row.failure == "eager: its process ended: exit code 7, no more"
        with pytest.raises(ChildError):
            bench.workers[0].ask(do="round", seconds=0.1)
        after = bench.compare(SourceSpec(text="torch.ones(3) * 2"), rounds=1)
        assert after.measurements["eager"].passed  # by a process in its place


def test_a_worker_without_its_device_is_replaced() -> None:
    text = "import sys\nif 'pytest' not in sys.modules: raise RuntimeError('CUDA error: {}')\n"
    with Bench(["eager"]) as bench:
        first = bench.workers[0].process.pid
        row = bench.compare(SourceSpec(text=text + "torch.ones(3) * 2"), rounds=1)
        assert "CUDA error" in (row.measurements["eager"].failure or "")
        row = bench.compare(SourceSpec(text="torch.ones(3) * 2"), rounds=1)
        assert row.measurements["eager"].passed and bench.workers[0].process.pid != first


def test_ir_text_runs_on_weft_alone(tmp_path: Path) -> None:
    path = tmp_path / "double.tensor"
    path.write_text(
        "program tensor double\ninput x: f32[3]\ny = map{add}(x, x): f32[3]\noutput y\n"
    )
    with Bench(["eager", "weft"]) as bench:
        (row,) = bench.compare(SourceSpec(path=str(path)), rounds=1).measurements.values()
        assert row.backend == "weft" and row.verdict is not None and row.passed
        with pytest.raises(SourceError, match="cannot read stdin"):
            bench.compare(SourceSpec(path="-"))


def test_ratios() -> None:
    rows = {b: Measurement(b, ms=ms) for b, ms in [("eager", 3.0), ("weft", 1.5), ("x", None)]}
    comparison = Comparison("", rows)
    assert comparison.ratio("weft") == 2.0
    assert comparison.ratio("x") is None
    assert comparison.ratio("weft", to="inductor") is None
