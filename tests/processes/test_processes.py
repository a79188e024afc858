"""Programs of several processes are as in eager: forward and gradients, through both doors.

All checks of so many processes share one start of them, as torch takes seconds to begin.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes.programs import PROGRAMS

SCRIPT = Path(__file__).with_name("worker.py")
ROOT = SCRIPT.parent.parent.parent
OF_TWO = [f"program:{name}:{door}" for name in PROGRAMS for door in ("backend", "compile")]
OF_TWO += ["graphs:8:0", "late", "unread", "joined", "sizes"]
OF_FOUR = ["program:tensor_parallel:compile", "program:functional:backend", "unread"]


def reports(folder: Path, processes: int, checks: list[str]) -> list[dict[str, str]]:
    """What each process says of each check; all of them end when they take too long."""
    count = f"--nproc-per-node={processes}"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", count]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [*torchrun, str(SCRIPT), str(folder), *checks]
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "start_new_session": True}
    with subprocess.Popen(command, env=environment, cwd=ROOT, text=True, **how) as started:
        try:
            said, _ = started.communicate(timeout=300)
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, signal.SIGKILL)
            pytest.fail(f"{processes} processes hang: {started.communicate()[0][-2000:]}")
    files = [folder / f"{rank}.json" for rank in range(processes)]
    assert all(path.exists() for path in files), said[-4000:]
    return [json.loads(path.read_text()) for path in files]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    return reports(tmp_path_factory.mktemp("two"), 2, OF_TWO)


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    return reports(tmp_path_factory.mktemp("four"), 4, OF_FOUR)


@pytest.mark.parametrize("check", OF_TWO)
def test_of_two_processes(check: str, two: list[dict[str, str]]) -> None:
    assert [report[check] for report in two] == ["", ""]


@pytest.mark.parametrize("check", OF_FOUR)
def test_of_four_processes(check: str, four: list[dict[str, str]]) -> None:
    assert [report[check] for report in four] == [""] * 4
