"""Two processes under torchrun train as one does on batches of both."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch

from tests.train.work import batches, eager, loss, network
from weft.train import State, Step, optimisers, run, schedules

SCRIPT = Path(__file__).with_name("two_processes.py")
ROOT = SCRIPT.parent.parent.parent


def both(place: int) -> list[torch.Tensor]:
    pairs = zip(batches(2 * place), batches(2 * place + 1), strict=True)
    return [torch.cat(pair) for pair in pairs]


def test_two_processes(tmp_path: Path) -> None:
    """The script compares a resumed run with dropout, whose random numbers are of each process."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [*torchrun, str(SCRIPT), str(tmp_path)]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("step 3 of 3, loss") == 1  # the first process alone reports
    one, other = (torch.load(tmp_path / str(rank)) for rank in (0, 1))
    assert one[0] == other[0] and not torch.equal(one[3], other[3])
    for tensors, others in zip(one[1:3], other[1:3], strict=True):
        for name in tensors:
            assert torch.equal(tensors[name], others[name]), name
    state = State(network(0.0, norm=False), optimisers.clip(optimisers.adam(), 1.0))
    step = Step(loss, state, schedules.constant(0.01), compile=eager)
    torch.testing.assert_close(one[0], [loss.item() for _, loss in run(step, both, 4)])
    for name, tensor in state.tensors().items():
        torch.testing.assert_close(one[1][name], tensor, rtol=1e-4, atol=1e-5)
