"""Gradients through both entries equal eager's, and an optimizer's steps are seen."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import weft
from tests.frontend.frontend_programs import Interpreter, interpret, native
from weft.calling import compiled
from weft.frontend.autograd import graph_backend
from weft.frontend.specialise import Session
from weft.frontend.torch_level import Aten


def direct(module: Callable[..., Any]) -> Callable[..., Any]:
    return compiled(module, native)


def through_dynamo(module: Callable[..., Any]) -> Callable[..., Any]:
    torch._dynamo.reset()
    return torch.compile(module, backend=graph_backend(native.session()))


ENTRIES = pytest.mark.parametrize("entry", [direct, through_dynamo], ids=lambda e: e.__name__)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out, self.norm = nn.Linear(8, 24), nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(y.transpose(1, 2).flatten(2))


MODULES = {
    "mlp": lambda: nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)),
    "attention": Attention,
    "batch_norm": lambda: nn.Sequential(nn.Conv1d(5, 6, 3), nn.BatchNorm1d(6), nn.ReLU()),
    "recurrent": lambda: nn.GRU(8, 4, batch_first=True),
}


def loss(out: Any) -> torch.Tensor:
    tensors = out if isinstance(out, tuple) else (out,)
    return sum(((t * t).mean() for t in tensors), torch.zeros(()))


@ENTRIES
@pytest.mark.parametrize("name", MODULES)
def test_training_steps(entry, name):
    torch.manual_seed(0)
    module = MODULES[name]()
    reference = copy.deepcopy(module)
    f = entry(module)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (module, reference)]
    for _ in range(3):
        x = torch.randn(2, 5, 8)
        inputs = [x.clone().requires_grad_(), x.clone().requires_grad_()]
        for call, given, optimizer in zip((f, reference), inputs, optimizers, strict=True):
            optimizer.zero_grad()
            loss(call(given)).backward()
            optimizer.step()
        torch.testing.assert_close(inputs[0].grad, inputs[1].grad)
        torch.testing.assert_close(module.state_dict(), reference.state_dict())
    with torch.no_grad():
        torch.testing.assert_close(f(x), reference(x))


@pytest.mark.parametrize("strict", [False, True])
def test_backward_is_primitives(strict):
    """But for attention, which CPUs leave to ATen where that is allowed."""
    back_end = Interpreter()
    back_end.session = lambda title: Session(back_end, strict=strict, title=title)
    compiled(Attention(), back_end)(torch.randn(2, 5, 8)).sum().backward()
    assert len(back_end.captured) == 2
    nodes = [n for p in back_end.captured for n in p.graph.nodes()]
    names = {n.op.target for n in nodes if isinstance(n.op, Aten)}
    whole = {n for n in names if "attention" in n or n.endswith("_backward.default")}
    attention = "aten._scaled_dot_product_flash_attention_for_cpu"
    assert whole == (set() if strict else {f"{attention}.default", f"{attention}_backward.default"})


@pytest.mark.parametrize("then", [torch.sin, lambda x: (x.t() * 3).sin(), lambda x: (x + 1) * 2])
def test_written_input_keeps_its_history(then):
    def f(x):
        x.mul_(2)
        return then(x) * x

    grads = []
    for call in (f, compiled(f, interpret)):
        leaf = torch.arange(9.0).reshape(3, 3).requires_grad_()
        x = leaf.clone()
        (call(x).sum() + x.sum()).backward()
        grads.append(leaf.grad)
    torch.testing.assert_close(*grads)


def test_functions_over_modules_and_loose_tensors():
    layer, loose = nn.Linear(3, 3), torch.ones(3, requires_grad=True)
    f = compiled(lambda x: layer(x), interpret)
    g = compiled(lambda x: x * loose, interpret)
    f(torch.ones(1, 3)).sum().backward()
    g(torch.ones(1, 3)).sum().backward()
    assert layer.bias.grad is not None and loose.grad is not None
    assert not f.reasons and not g.reasons


def test_frozen_and_no_grad():
    layer = nn.Linear(3, 3)
    f = compiled(layer, interpret)
    x = torch.ones(1, 3)
    for _ in range(2):
        assert f(x).requires_grad
        with torch.no_grad():
            assert not f(x).requires_grad
        layer.requires_grad_(False)
        assert not f(x).requires_grad
        layer.requires_grad_(True)
    with torch.inference_mode():
        torch.testing.assert_close(f(x), layer(x))


def test_custom_autograd_function():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 7

    f = compiled(lambda x: Twice.apply(x), interpret)
    x = torch.ones(2, requires_grad=True)
    f(x).sum().backward()
    torch.testing.assert_close(x.grad, torch.full((2,), 7.0))


@pytest.mark.parametrize("shape", [(4, 4), (3, 19)])
@pytest.mark.parametrize("extremum", [lambda y: y.amax(1), lambda y: y.amin(0), torch.amax])
def test_the_largest_is_found_again(shape: tuple[int, ...], extremum: Any) -> None:
    """The backward looks for the elements that equal it: none would give 0 / 0."""

    def program(x: torch.Tensor) -> torch.Tensor:
        largest = extremum(torch.nn.functional.layer_norm(x, x.shape[-1:]).erf()).sum()
        return largest + extremum(x @ x.T).sum() + (x @ x.T).amax(1).amin()

    for seed in range(4):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
        ours, eager = (x.clone().requires_grad_() for _ in range(2))
        weft.compile(program)(ours).backward()
        program(eager).backward()
        torch.testing.assert_close(ours.grad, eager.grad, rtol=1e-4, atol=1e-5)


def test_what_is_drawn_is_compared_once() -> None:
    """Drawn again for the backward, it would be other numbers."""

    def program(x: torch.Tensor) -> torch.Tensor:
        drawn = torch.multinomial(x, 8, replacement=True).float()
        return torch.where(drawn == x, x * 2, x * 3)

    f = weft.compile(program)
    for seed in range(4):
        ours, eager = (torch.arange(8.0).requires_grad_() for _ in range(2))
        for x, function in ((ours, f), (eager, program)):
            torch.manual_seed(seed)
            function(x).sum().backward()
        assert torch.equal(ours.grad, eager.grad)
    assert not any("rng_state" in reason for reason in f.reasons)


def test_the_gradient_of_a_sum_is_for_any_size() -> None:
    """That gradient is one number, with strides of zero along sizes that nobody compares."""

    def program(x: torch.Tensor) -> torch.Tensor:
        return x * 2 + x.sum()

    f = weft.compile(program, dynamic=True, fallback="error")
    for shape in ((7, 3), (3, 7), (5, 5), (2, 90)):
        x = torch.randn(shape, requires_grad=True)
        (found,) = torch.autograd.grad(f(x).sum(), x)
        torch.testing.assert_close(found, torch.full(shape, 2.0 + x.numel()))
    assert len(f.programs) == 2
