"""Checkpoints: a run that resumes is the run that never stopped; nothing is lost by a failure."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import weft
from tests.train.work import SIMPLE, Compile, batches, eager, loss, started
from weft.core.errors import WeftError
from weft.train import State, Step, load, optimisers, run, save, schedules

ROOT = Path(__file__).resolve().parent.parent.parent


def losses(step: Step, until: int, path: Path | None = None, every: int = 4) -> list[float]:
    return [found.item() for _, found in run(step, batches, until, path, every)]


def held(state: State) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in state.tensors().items()}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


@pytest.mark.parametrize(
    ("compile", "optimiser"),
    [(eager, optimisers.clip(optimisers.ranger(every=3), 1.0)), (weft.compile, SIMPLE)],
    ids=["eager", "weft"],
)
def test_resumes_to_the_bit(
    tmp_path: Path, compile: Compile, optimiser: optimisers.Optimiser
) -> None:
    """Losses with dropout, batch norm, slow weights; then all tensors and the next draw."""
    path = tmp_path / "run.safetensors"
    through = started(compile, optimiser=optimiser)
    wanted = losses(through, 10)
    after = held(through.state), torch.rand(3)
    first = losses(started(compile, optimiser=optimiser), 6, path, every=6)
    torch.manual_seed(99)
    resumed = started(compile, optimiser=optimiser)
    load(path, resumed.state)
    assert resumed.state.step == resumed.state.place == 6
    assert first + losses(resumed, 10) == wanted
    same(held(resumed.state), after[0])
    assert torch.equal(torch.rand(3), after[1])
    assert len(set(wanted)) == 10 and os.listdir(tmp_path) == [path.name]


def test_draws_matter(tmp_path: Path) -> None:
    """The test above sees it where random numbers are not resumed."""
    path = tmp_path / "run.safetensors"
    wanted = losses(started(eager), 7)
    losses(started(eager), 6, path)
    step = started(eager)
    load(path, step.state)
    torch.manual_seed(1)
    assert losses(step, 7) != wanted[6:]


def test_layouts_and_dtypes(tmp_path: Path) -> None:
    """Tied weights, a frozen part, channels_last, bf16, an integer buffer, a scalar, no rows."""
    torch.manual_seed(0)

    def made() -> State:
        model = nn.Module()
        model.a = nn.Conv2d(2, 3, 3).to(memory_format=torch.channels_last)
        model.b = nn.Linear(2, 2).bfloat16()
        model.c, model.d = model.b, nn.Parameter(torch.randn(()))
        model.e = nn.Parameter(torch.randn(0, 3), requires_grad=False)
        model.register_buffer("f", torch.tensor([3, 4]))
        return State(model, optimisers.adam())

    state, other = made(), made()
    save(tmp_path / "a", state)
    load(tmp_path / "a", other)
    same(held(state), held(other))
    assert other.model.a.weight.is_contiguous(memory_format=torch.channels_last)


# --- what fails -----------------------------------------------------------------------------------


def saved(folder: Path) -> tuple[Path, State]:
    step = started(eager)
    losses(step, 2, folder / "run.safetensors")
    return folder / "run.safetensors", step.state


def refused(path: Path, state: State, why: str) -> None:
    before = held(state), state.step
    with pytest.raises(WeftError, match=why) as error:
        load(path, state)
    assert str(path) in str(error.value) and "\n" not in str(error.value)
    same(held(state), before[0])
    assert state.step == before[1]


@pytest.mark.parametrize("keep", [0, 7, 100, 0.5, -1])
def test_a_short_file(tmp_path: Path, keep: float) -> None:
    path, state = saved(tmp_path)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep) if keep == 0.5 else int(keep)])
    refused(path, state, "the file is damaged")


@pytest.mark.parametrize("place", [-1, -3000, -5200])
def test_a_changed_byte(tmp_path: Path, place: int) -> None:
    path, state = saved(tmp_path)
    data = bytearray(path.read_bytes())
    data[place] ^= 4
    path.write_bytes(data)
    refused(path, state, "damaged|cannot resume")


def test_other_files(tmp_path: Path) -> None:
    path, state = saved(tmp_path)
    refused(tmp_path / "none", state, "No such file")
    torch.save({}, tmp_path / "zip")
    refused(tmp_path / "zip", state, "damaged")
    wide = State(nn.Sequential(nn.Linear(7, 8)), SIMPLE)
    refused(path, wide, r"model.0.weight is float32\[8, 6\] there, float32\[8, 7\] here")
    adam = started(eager, optimiser=optimisers.adam()).state
    refused(path, adam, r"mean.model.0.bias is missing there, float32\[8\] here")


def test_a_full_disk(tmp_path: Path) -> None:
    """The limit on a file's size stands for the disk: EFBIG, part of the file written."""
    path, state = saved(tmp_path)
    before = path.read_bytes()
    was = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, was[1]))
        with pytest.raises(WeftError, match=r"cannot write .*, which is as it was: File too large"):
            save(path, state)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, was)
        signal.signal(signal.SIGXFSZ, handler)
    assert os.listdir(tmp_path) == [path.name] and path.read_bytes() == before
    load(path, state)
    with pytest.raises(WeftError, match=r"cannot write the checkpoint .*: No such file"):
        save(tmp_path / "none" / "run.safetensors", state)


def test_killed_in_the_middle(tmp_path: Path) -> None:
    """kill -9 once half of the second checkpoint is in its file: the first one serves."""
    path = tmp_path / "run.safetensors"
    code = f"""
        import os, signal
        from weft.train import checkpoint, run
        from tests.train.work import batches, eager, started

        def half(path, data):
            with path.open("wb") as file:
                file.write(data[: len(data) // 2])
                file.flush()
                os.kill(os.getpid(), signal.SIGKILL)

        for number, _ in run(started(eager), batches, 10, {str(path)!r}, every=3):
            if number == 6:
                checkpoint.write = half
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    assert subprocess.run(command, env=environment, cwd=ROOT).returncode == -signal.SIGKILL
    assert len(os.listdir(tmp_path)) == 2
    step = started(eager)
    load(path, step.state)
    assert step.state.step == 3
    assert losses(step, 10) == losses(started(eager), 10)[3:]


def test_none_of_a_loss_that_is_not_finite(tmp_path: Path) -> None:
    path, state = saved(tmp_path)
    before = path.read_bytes()
    step = Step(
        lambda model, x, y: loss(model, x, y) / 0, state, schedules.constant(0.0), compile=eager
    )
    with pytest.raises(WeftError, match="the loss of step 4 is nan"):
        losses(step, 9, path, every=4)
    assert path.read_bytes() == before


def test_none_of_parameters_that_are_not_finite(tmp_path: Path) -> None:
    """The loss is finite, and its gradient is not: the square root of 0."""
    model = nn.Linear(2, 1, bias=False)
    nn.init.zeros_(model.weight)
    state = State(model, SIMPLE)
    step = Step(lambda m, x: m(x).sqrt().mean(), state, schedules.constant(0.1), compile=eager)
    with pytest.raises(WeftError, match=r"loss of step 1 is 0; model\.weight is not finite"):
        list(run(step, lambda _: [torch.ones(3, 2)], 1, tmp_path / "run"))
    assert not os.listdir(tmp_path)
