"""Steps beside a loop in plain torch; what is not finite; processes side by side."""

from __future__ import annotations

import copy
import math
from itertools import islice

import pytest
import torch
from torch import Tensor, nn

import weft
from tests.train.work import Compile, batches, eager, loss, network, started
from weft.core.errors import IndexOutOfRange, WeftError
from weft.train import State, Step, evaluation, optimisers, run, schedules


@pytest.mark.parametrize("compile", [eager, weft.compile], ids=["eager", "weft"])
def test_a_loop_in_torch(compile: Compile) -> None:
    """AdamW, batch norm with its buffers, a frozen parameter, tied weights."""

    def made() -> nn.Module:
        model = network(0.0)
        model.append(nn.Linear(1, 6)).append(nn.Linear(6, 8)).append(nn.Linear(8, 1))
        model[7].weight = model[4].weight
        model[0].bias.requires_grad_(False)
        return model

    model, other = made(), made()
    step = Step(loss, State(model, optimisers.adamw()), schedules.steps(0.01, 5), compile=compile)
    torch_ = torch.optim.AdamW([p for p in other.parameters() if p.requires_grad], 0.01)
    for i in range(10):
        for group in torch_.param_groups:
            group["lr"] = schedules.steps(0.01, 5)(i)
        torch_.zero_grad()
        wanted = loss(other, *batches(i))
        wanted.backward()
        torch_.step()
        torch.testing.assert_close(step(*batches(i)), wanted.detach(), rtol=1e-4, atol=1e-5)
    for (name, a), b in zip(model.state_dict().items(), other.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4, msg=name)
    assert step.state.step == step.state.place == 10
    if compile is weft.compile:
        (program,) = step.programs
        assert len(program.programs) == 1 and not program.reasons
        assert "0 externs" in str(weft.report(program))


def test_evaluation() -> None:
    step = started(eager)
    for _ in run(step, batches, 5):
        pass
    model = step.state.model
    before = copy.deepcopy(model.state_dict())
    rows = [(x[:n], y[:n]) for n, (x, y) in zip((16, 16, 5), map(batches, range(3)), strict=True)]
    model.eval()
    wanted = loss(model, *(torch.cat(part) for part in zip(*rows, strict=True))).item()
    model.train()
    assert evaluation(loss, model)(rows) == pytest.approx(wanted, rel=1e-5)
    assert model.training and math.isnan(evaluation(loss, model)([]))
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]), name


# --- what is not finite ---------------------------------------------------------------------------


def spoilt(place: int) -> tuple[Tensor, Tensor]:
    x, y = batches(place)
    return (x.index_fill(0, torch.tensor([2]), math.inf), y) if place == 3 else (x, y)


@pytest.mark.parametrize("compile", [eager, weft.compile], ids=["eager", "weft"])
def test_stops_at_the_first_step_that_is_not_finite(compile: Compile) -> None:
    step = started(compile, check_finite=True)
    list(run(step, spoilt, 3))
    before = {name: tensor.clone() for name, tensor in step.state.tensors().items()}
    with pytest.raises(
        WeftError, match=r"step 4: the loss is nan; .* is input 0, float32\[16, 6\]"
    ):
        list(run(step, spoilt, 10))
    assert step.state.step == step.state.place == 3
    for name, tensor in step.state.tensors().items():
        assert torch.equal(tensor, before[name]), name


class Root(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.sqrt()


@pytest.mark.parametrize("compile", [eager, weft.compile], ids=["eager", "weft"])
@pytest.mark.parametrize(
    ("value", "named"),
    [
        (-1.0, r"the loss is nan; .* is float32\[4, 1\] by aten.sqrt.default in model.1;"),
        (0.0, r"the loss is 0; .* is float32\[4, 1\] by aten.div.Tensor.*;"),  # of the gradient
    ],
)
def test_names_the_operator(compile: Compile, value: float, named: str) -> None:
    model = nn.Sequential(nn.Linear(2, 1, bias=False), Root())
    nn.init.constant_(model[0].weight, value)
    state = State(model, optimisers.sgd())

    def first(model: nn.Module, x: Tensor) -> Tensor:
        return model(x).mean()

    step = Step(first, state, schedules.constant(0.1), True, compile)
    with pytest.raises(WeftError, match=named):
        step(torch.ones(4, 2))
    assert model[0].weight.eq(value).all()


def test_a_run_unchecked_stops_at_its_next_line(capsys: pytest.CaptureFixture[str]) -> None:
    step = started(eager)
    with pytest.raises(WeftError, match=r"loss of step 4 is nan: .*check_finite=True"):
        list(run(step, spoilt, 10, log=2))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("step 2 of 10, loss ")
    assert "rate 0.01" in lines[0] and "samples/s" in lines[0]


def test_an_index_out_of_range() -> None:
    """Stops the step before anything is stored."""
    torch.manual_seed(0)
    model = nn.EmbeddingBag(8, 4, mode="sum")

    def first(model: nn.Module, x: Tensor) -> Tensor:
        return model(x).square().mean()

    step = Step(first, State(model, optimisers.adam()), schedules.constant(0.1))
    step(torch.zeros(3, 2, dtype=torch.long))
    before = {name: tensor.clone() for name, tensor in step.state.tensors().items()}
    with pytest.raises(IndexOutOfRange):
        step(torch.full((3, 2), 8))
    assert step.state.step == 1
    for name, tensor in step.state.tensors().items():
        assert torch.equal(tensor, before[name]), name
    assert step(torch.ones(3, 2, dtype=torch.long)).isfinite()


def test_yields_every_step() -> None:
    found = list(islice(run(started(eager), batches, 10), 4))
    assert [number for number, _ in found] == [1, 2, 3, 4]
