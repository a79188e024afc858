"""A fixed part of `python -m tests.conformance.training`: each optimiser, some modules and hops."""

from __future__ import annotations

import pytest

from tests.conformance import higher_order, modules, optimisers

OPTIMISERS = """Adadelta.foreach.weight_decay=0_1 Adafactor.forloop.weight_decay=0_1.maximize=True
Adagrad.fused.groups Adam.foreach.weight_decay=0_1.amsgrad=True Adam.fused.step_lr
Adamax.capturable AdamW.foreach.step_lr AdamW.capturable.lr=0_01 ASGD.foreach LBFGS.forloop
Muon.forloop.groups NAdam.foreach.groups RAdam.foreach RMSprop.foreach.tensor_lr Rprop.foreach
SGD.differentiable.weight_decay=0_5 SGD.fused.tensor_lr SparseAdam.forloop""".split()
MODULES = """nn.BatchNorm2d.1 nn.Bilinear.0 nn.ConvTranspose2d.0 nn.CTCLoss.0 nn.Embedding.0
nn.LayerNorm.1 nn.GRU.0 nn.MultiLabelMarginLoss.6 nn.AdaptiveMaxPool2d.0""".split()
HOPS = """invoke_subgraph.simple.gradients.0 map.nested.gradients.0 cond.simple.gradients.0
scan.simple.gradients.0 while_loop.simple.results.0 auto_functionalize.simple.results.0
flex_attention.simple.results.0""".split()
STRICT = {"fallback": "error"}


@pytest.mark.parametrize("name", OPTIMISERS)
def test_optimiser(name: str) -> None:
    assert optimisers.run(optimisers.cases()[name], "weft", STRICT) == ""


@pytest.mark.parametrize("name", MODULES)
def test_module(name: str) -> None:
    assert modules.run(modules.cases()[name], "weft", {"random": "eager"}) == ""


@pytest.mark.parametrize("name", HOPS)
def test_operator_of_functions(name: str) -> None:
    assert higher_order.run(higher_order.cases()[name], "weft") == ""


def test_a_wrong_step_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    case = optimisers.cases()["SGD.forloop.lr=0_01"]
    plain = type(case).options
    wrong = {"lr": 0.011}
    monkeypatch.setattr(
        type(case), "options", lambda c, compiled: plain(c, compiled) | (wrong if compiled else {})
    )
    assert optimisers.run(case, "eager").startswith("wrong")
