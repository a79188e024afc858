"""Recurrent layers in training: LSTMs by oneDNN as in eager, others taken apart, within limits."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import weft
from weft.frontend import recurrent
from weft.library.lstm import workspace

FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "no biases, batch first": {"bias": False, "batch_first": True},
    "two layers both ways": {"num_layers": 2, "bidirectional": True},
}


def gradients(f: Any, module: nn.Module, x: Tensor) -> list[Tensor]:
    """Results and gradients of a sum in which all results of the layer count."""
    x = x.clone().requires_grad_()
    module.zero_grad()
    y, state = f(x)
    states = state if isinstance(state, tuple) else (state,)
    total = y.square().mean() + sum(s.sin().sum() for s in states)
    total.backward()
    return [y.detach(), *(p.grad for p in (x, *module.parameters()) if p.grad is not None)]


def externs(f: Any) -> set[str]:
    return {name for name, *_ in f.report.externs}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_an_lstm_has_eager_s_bits(form: str, dtype: torch.dtype) -> None:
    if dtype is torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("eager has no bf16 layer on this CPU")
    torch.manual_seed(0)
    module = nn.LSTM(7, 9, **FORMS[form]).to(dtype)
    f = weft.compile(copy.deepcopy(module))
    for length in (40, 3):
        x = torch.randn(length, 5, 7).to(dtype)
        for found, wanted in zip(gradients(f, f, x), gradients(module, module, x), strict=True):
            torch.testing.assert_close(found, wanted, rtol=0, atol=0)
    assert externs(f) == {"weft.lstm_layer.default", "weft.lstm_layer_backward.default"}
    assert not f.reasons


def test_only_some_results_count() -> None:
    """The gradients of the others are no tensors."""
    torch.manual_seed(0)
    module = nn.LSTM(4, 6)
    f = weft.compile(copy.deepcopy(module))
    x = torch.randn(5, 2, 4)
    for g in (module, f):
        g(x)[1][1].sum().backward()
    for p, q in zip(module.parameters(), f.parameters(), strict=True):
        assert p.grad is not None and torch.equal(p.grad, q.grad)


@pytest.mark.parametrize("form", [{"proj_size": 3}, {"dtype": torch.float64}], ids=str)
def test_others_are_taken_apart(form: dict[str, Any]) -> None:
    """Those for which eager has no layer of oneDNN's."""
    torch.manual_seed(0)
    module = nn.LSTM(4, 6, **form)
    f = weft.compile(copy.deepcopy(module))
    x = torch.randn(3, 2, 4, dtype=form.get("dtype"))
    for found, wanted in zip(gradients(f, f, x), gradients(module, module, x), strict=True):
        torch.testing.assert_close(found, wanted)
    assert not externs(f)


def stepping(model: nn.Module, x: Tensor) -> Any:
    optimiser = torch.optim.SGD(model.parameters(), 0.1)

    def step() -> Tensor:
        optimiser.zero_grad()
        loss = model(x)[0].square().mean()
        loss.backward()
        optimiser.step()
        return loss.detach()

    return step


def trained_as_eager(module: nn.Module, x: Tensor) -> Any:
    """The compiled step, after four, whose losses and parameters are eager's."""
    twin = copy.deepcopy(module)
    f, eager = weft.compile(stepping(module, x)), stepping(twin, x)
    for _ in range(4):
        torch.testing.assert_close(f(), eager())
    for p, q in zip(module.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p, q)
    return f


def test_a_step_with_a_layer_is_one_program() -> None:
    torch.manual_seed(0)
    module, x = nn.LSTM(4, 6), torch.randn(5, 2, 4)
    f = trained_as_eager(module, x)
    assert len(f.programs) == 1 and len(externs(f)) == 2


def test_long_ones_run_in_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are no recurrences: each step of time would be kernels of its own."""
    monkeypatch.setattr(recurrent, "LONGEST", 2)
    torch.manual_seed(0)
    module = nn.LSTM(4, 6, num_layers=2, proj_size=3)
    f = weft.compile(copy.deepcopy(module))
    x = torch.randn(3, 2, 4)
    for found, wanted in zip(gradients(f, f, x), gradients(module, module, x), strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=0)
    assert any("takes 3 steps, more than the 2 at most" in reason for reason in f.reasons)


LAYERS = {
    "gru": lambda **how: nn.GRU(4, 6, **how),
    "tanh": lambda **how: nn.RNN(4, 6, **how),
    "relu": lambda **how: nn.RNN(4, 6, nonlinearity="relu", **how),
    "lstm": lambda **how: nn.LSTM(4, 6, **how),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("layer", LAYERS)
def test_layers_are_recurrences(layer: str, form: str) -> None:
    """In float64: one loop for each layer and direction, forward and backward."""
    torch.manual_seed(0)
    module = LAYERS[layer](**FORMS[form]).double()
    x = torch.randn(5, 3, 4).double()
    f = weft.compile(copy.deepcopy(module), fallback="error")
    for found, wanted in zip(gradients(f, f, x), gradients(module, module, x), strict=True):
        torch.testing.assert_close(found, wanted)
    count = 4 if "two" in form else 1
    texts = [p.artifact.levels().text("loop") for p in f.programs]
    assert [t.count("\nrepeat ") for t in texts] == [count, count]
    with torch.no_grad():
        torch.testing.assert_close(f(x), module(x))


def test_a_step_of_an_optimiser_with_a_loop() -> None:
    """Parameters are written in place behind the loops."""
    torch.manual_seed(0)
    module, x = nn.GRU(4, 6), torch.randn(5, 2, 4)
    f = trained_as_eager(module, x)
    assert len(f.programs) == 1 and not f.reasons and not externs(f)


def test_half_precision_is_as_near_as_eager() -> None:
    torch.manual_seed(0)
    module = nn.GRU(8, 16).bfloat16()
    x = torch.randn(12, 3, 8).bfloat16()
    with torch.no_grad():
        exact = copy.deepcopy(module).double()(x.double())[0]
        far = [(g(x)[0].double() - exact).abs().max() for g in (weft.compile(module), module)]
    assert far[0] <= 2 * far[1]


def test_a_thousand_steps_compile_as_ten() -> None:
    torch.manual_seed(0)
    module = nn.GRU(4, 6)
    counts: list[int] = []
    for length in (10, 1000):
        f, x = weft.compile(module, dynamic=False), torch.randn(length, 2, 4)
        with torch.no_grad():
            torch.testing.assert_close(f(x), module(x))
        counts.append(len(f.report.kernels))
    assert counts[0] == counts[1]


@pytest.mark.parametrize("kind", ["gru", "rnn_tanh", "lstm"])
@pytest.mark.parametrize("reverse", [False, True])
def test_the_operator_has_gradients_of_any_order(kind: str, reverse: bool) -> None:
    torch.manual_seed(0)
    gates = {"gru": 3, "rnn_tanh": 1, "lstm": 4}[kind]
    sizes = (3, 2, gates * 2), (2, 4 if kind == "lstm" else 2), (gates * 2, 2), (gates * 2,)
    given = [torch.randn(s).double().requires_grad_() for s in sizes]
    layer = lambda *t: torch.ops.weft.recurrent_layer(*t, kind, reverse)  # noqa: E731
    assert torch.autograd.gradcheck(layer, given)
    assert torch.autograd.gradgradcheck(layer, given)


def test_second_derivatives_of_an_lstm_are_eager_s() -> None:
    torch.manual_seed(0)
    given = [torch.randn(s, requires_grad=True) for s in ((3, 2, 4), (8, 4), (8, 2), (8,), (8,))]
    given += [torch.randn(1, 2, 2, requires_grad=True) for _ in range(2)]
    module = nn.LSTM(4, 2)
    names = "weight_ih_l0 weight_hh_l0 bias_ih_l0 bias_hh_l0".split()

    def eager(x: Tensor, *rest: Tensor) -> Tensor:
        own = dict(zip(names, rest, strict=False))
        return torch.func.functional_call(module, own, (x, (rest[4], rest[5])))[0]

    def ours(*given: Tensor) -> Tensor:
        return torch.ops.weft.lstm_layer(*given, False, True)[0]

    found: list[list[Tensor]] = []
    for f in (eager, ours):
        first = torch.autograd.grad(f(*given).sin().sum(), given, create_graph=True)
        second = torch.autograd.grad(sum(g.square().sum() for g in first), given)
        found.append([*first, *second])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_the_workspace_is_as_large_as_onednn_says() -> None:
    sizes = [workspace(torch.float32, time, 2, 4, 6, False, True) for time in (1, 5, 9)]
    assert sizes == sorted(sizes) and sizes[0] > 0
