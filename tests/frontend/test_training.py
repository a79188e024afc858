"""Training as torch has it: sparse gradients, compiled autograd, transforms, losses."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.frontend.frontend_programs import interpret
from weft.calling import compiled
from weft.driver import report

STRICT = {"fallback": "error"}


def through(fn: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    torch._dynamo.reset()
    return torch.compile(fn, backend="weft", options=options)


def test_a_tensor_that_dynamo_makes_no_input_of_keeps_its_history():
    found = []
    for how in (lambda f: f, lambda f: through(f, **STRICT)):
        leaf = torch.ones(3, requires_grad=True)
        p = leaf.clone()
        rate = {"lr": 0.1, "weight_decay": 0.1}
        step = how(torch.optim.SGD([p], **rate, differentiable=True).step)
        for _ in range(3):
            p.grad = torch.ones(3)
            step()
        found.append(torch.autograd.grad(p.sin().sum(), leaf))
    torch.testing.assert_close(*found)


SPARSE: dict[str, tuple[Callable[[], nn.Module], tuple[Any, ...]]] = {
    "embedding": (lambda: nn.Embedding(9, 4, sparse=True), ([[1, 2, 2], [4, 5, 1]],)),
    "bag": (lambda: nn.EmbeddingBag(9, 4, sparse=True), ([[1, 2, 2], [4, 5, 1]],)),
    "offsets": (lambda: nn.EmbeddingBag(9, 4, sparse=True, mode="sum"), ([1, 2, 2, 4], [0, 3])),
}


@pytest.mark.parametrize("name", SPARSE)
def test_sparse_gradients(name):
    torch.manual_seed(0)
    make, given = SPARSE[name]
    module, inputs = make(), [torch.tensor(x) for x in given]
    reference = copy.deepcopy(module)
    optimisers = [torch.optim.SparseAdam(list(m.parameters())) for m in (module, reference)]
    for _ in range(2):
        for call, optimiser in zip((through(module), reference), optimisers, strict=True):
            optimiser.zero_grad()
            (call(*inputs) * torch.arange(4.0)).sin().sum().backward()
            optimiser.step()
        assert module.weight.grad.is_sparse
        torch.testing.assert_close(module.weight.grad.to_dense(), reference.weight.grad.to_dense())
        torch.testing.assert_close(module.weight, reference.weight)


def test_compiled_autograd():
    module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    reference, x = copy.deepcopy(module), torch.randn(3, 4)

    def train(x):
        loss = module(x).square().sum()
        loss.backward()
        return loss.detach()

    before = len(report().kernels)
    with torch._dynamo.config.patch(compiled_autograd=True):
        for _ in range(2):
            module.zero_grad()
            loss = through(train, **STRICT)(x)
    expected = reference(x).square().sum()
    expected.backward()
    torch.testing.assert_close(loss, expected.detach())
    for p, q in zip(module.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad)
    assert len(report().kernels) > before


@pytest.mark.parametrize("inner", [torch.func.jacrev, torch.func.jacfwd])
@pytest.mark.parametrize("outer", [torch.func.jacrev, torch.func.jacfwd])
def test_second_derivatives(outer, inner):
    second = outer(inner(lambda x: (x.sin() * x).sum()))
    x = torch.randn(4)
    torch.testing.assert_close(through(second, **STRICT)(x), second(x))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("shape", [(3, 6), (1, 6), (6,), ()])
def test_labels_end_at_the_first_that_is_none(shape, reduction):
    loss = nn.MultiLabelMarginLoss(reduction=reduction)
    torch.manual_seed(0)
    call = through(loss, **STRICT)
    for _ in range(3):
        x = torch.randn(shape)
        target = torch.randint(-1, shape[-1] if shape else 1, shape)
        inputs = [x.clone().requires_grad_() for _ in range(2)]
        results = [f(i, target) for f, i in zip((call, loss), inputs, strict=True)]
        torch.testing.assert_close(*results)
        for r in results:
            r.sum().backward()
        torch.testing.assert_close(*(i.grad for i in inputs))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
def test_recurrent_layers_drop_out(kind, packed):
    torch.manual_seed(0)
    module = kind(3, 2, num_layers=3, bidirectional=True, batch_first=not packed, dropout=0.4)
    x, lengths = torch.randn(2, 3, 3), torch.tensor([2, 1, 1])

    def run(call, x):
        torch.manual_seed(1)
        if packed:
            return call(nn.utils.rnn.pack_padded_sequence(x, lengths))[0].data
        return call(x)[0]

    inputs = [x.clone().requires_grad_() for _ in range(2)]
    calls = compiled(module, interpret), module
    results = [run(call, i) for call, i in zip(calls, inputs, strict=True)]
    torch.testing.assert_close(*results)
    for r in results:
        (r * torch.arange(1.0, 1 + r.shape[-1])).sum().backward()
    torch.testing.assert_close(inputs[0].grad, inputs[1].grad)
