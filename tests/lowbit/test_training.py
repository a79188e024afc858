"""prepare and convert: rounding while training, gradients of LSQ, the layers that are stored."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import weft
from weft.lowbit import LowBitError, convert, prepare

CASES: list[tuple[str, dict[str, Any]]] = [
    ("int8", {}),
    ("int8", {"group": 32}),
    ("int8", {"group": "tensor"}),
    ("int4", {}),
    ("int4", {"group": "tensor"}),
    ("int4", {"group": None, "activations": "int8"}),
    ("int4", {"activations": "int8"}),
    ("int8", {"activations": "int8"}),
]


def net(k: int = 48) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(k, 40), nn.ReLU(), nn.Linear(40, 5))


def distance(x: Tensor, y: Tensor) -> float:
    return ((x.double() - y.double()).norm() / y.double().norm()).item()


def trained(model: nn.Module, steps: int = 30) -> list[float]:
    torch.manual_seed(1)
    x, target = torch.randn(64, 48), torch.randn(64, 5)
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    losses: list[float] = []
    for _ in range(steps):
        optimiser.zero_grad()
        loss = F.mse_loss(model(x), target)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize(("kind", "options"), CASES)
def test_what_is_trained_is_what_is_stored(kind: Any, options: dict[str, Any]) -> None:
    model: Any = prepare(net(), kind, **options)
    losses = trained(model)
    assert losses[-1] < 0.9 * losses[0]
    x = torch.randn(7, 48)
    with torch.no_grad():
        before = model(x)
        weights = model[0].weight
        made: Any = convert(model)
        assert torch.equal(made[0].weight, weights)
        assert distance(made(x), before) < 1e-6
    assert {name for name, _ in made.named_parameters()} == {"0.bias", "2.bias"}
    assert made.lowbit_report.stored["float32"] == 4 * (40 + 5)


@pytest.mark.parametrize(("kind", "options"), [c for c in CASES if c[1].get("group") != "tensor"])
def test_without_training_it_is_quantize(kind: Any, options: dict[str, Any]) -> None:
    converted = convert(prepare(net(), kind, **options)).state_dict()
    quantised = weft.quantize(net(), kind, **options).state_dict()
    assert converted.keys() == quantised.keys()
    assert all(torch.equal(converted[key], quantised[key]) for key in quantised)


def test_gradients_are_those_of_lsq() -> None:
    """By the paper's formulas, element by element; one weight lies beyond the codes."""
    layer = nn.Linear(4, 2, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.3, -0.7, 1.1, -0.2], [0.05, 0.4, -2.0, 0.9]]))
    model: Any = prepare(layer, "int8", group="tensor")
    storage = model.storage
    with torch.no_grad():
        storage.scale.fill_(1 / 128)
    x = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    model(x).sum().backward()
    scale, expected = 1 / 128, 0.0
    for row in storage.values.detach().tolist():
        for value, slope in zip(row, x[0].tolist(), strict=True):
            q = value / scale
            inside = -127 <= q <= 127
            expected += slope * (round(q) - q if inside else (127 if q > 0 else -127))
    expected /= (8 * 127) ** 0.5
    assert storage.scale.grad.item() == pytest.approx(expected, rel=1e-4)
    passes = storage.values.detach().abs() <= 127 / 128
    assert torch.equal(storage.values.grad, torch.where(passes, x.expand(2, 4), 0))
    assert not passes.all()


@pytest.mark.parametrize(("kind", "options"), [CASES[0], CASES[6]])
def test_compiled_gradients_are_those_of_eager(kind: Any, options: dict[str, Any]) -> None:
    layer = nn.Linear(40, 5)  # K is no multiple of a group
    model: Any = prepare(layer, kind, **options)
    eager = copy.deepcopy(model)
    x = torch.randn(6, 40)
    compiled = weft.compile(model, fallback="error")
    for run in (compiled, eager):
        run(x).square().sum().backward()
    pairs = zip(model.named_parameters(), eager.parameters(), strict=True)
    for (name, mine), theirs in pairs:
        assert mine.grad is not None, name
        assert distance(mine.grad, theirs.grad) < 1e-5, name


def test_tied_embeddings_share_what_is_learned() -> None:
    torch.manual_seed(0)
    model: Any = nn.ModuleList([nn.Embedding(9, 64), nn.Linear(64, 9, bias=False)])
    model[1].weight = model[0].weight
    parameter = model[0].weight
    prepare(model, "int4")
    assert model[0].storage is model[1].storage
    assert model[0].storage.values is parameter
    index = torch.tensor([2, 5])
    model[1](model[0](index)).sum().backward()
    assert parameter.grad is not None
    with torch.no_grad():
        before = model[1](model[0](index))
        convert(model)
        assert model[0].storage is model[1].storage
        assert distance(model[1](model[0](index)), before) < 1e-6


def test_options_and_weights_that_do_not_fit() -> None:
    with pytest.raises(weft.WeftError, match="unknown kind of weight to train 'fp8'"):
        prepare(net(), "fp8")  # pyright: ignore[reportArgumentType]
    with pytest.raises(LowBitError, match="an even number"):
        prepare(net(), "int4", group=5)
    with pytest.raises(weft.WeftError, match="unknown group 'row'"):
        prepare(net(), "int4", group="row")  # pyright: ignore[reportArgumentType]
    model: Any = prepare(net(), "int8")
    with torch.no_grad():
        model[2].storage.scale[1] = torch.nan
    with pytest.raises(LowBitError, match=r"^2\.storage has elements that are not finite"):
        convert(model)
