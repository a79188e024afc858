"""Training for quantisation, and graphs that torchao's PT2E makes: as eager gives them."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn

import weft
from tests.frontend.entries import ENTRIES


@contextmanager
def quiet() -> Iterator[None]:
    """torchao warns, as it is imported, of kernels that it has not."""
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


with quiet():
    pytest.importorskip("torchao")
    import torchao.quantization.pt2e.quantizer.x86_inductor_quantizer as x86
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig, PerGroup, quantize_
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e, prepare_qat_pt2e
    from torchao.quantization.qat import QATConfig

pytestmark = pytest.mark.filterwarnings("ignore")  # torchao's, of its own classes
STRICT = {
    "weft.compile": lambda fn: weft.compile(fn, fallback="error"),
    "torch.compile": lambda fn: torch.compile(
        fn, backend="weft", options={"fallback": "error"}, fullgraph=True
    ),
}


@pytest.fixture(params=STRICT)
def strict(request: pytest.FixtureRequest) -> Any:
    torch._dynamo.reset()
    return STRICT[request.param]


class Layer(nn.Module):
    """One layer of a transformer, of width 32."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.o = nn.Linear(32, 96), nn.Linear(32, 32)
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)
        self.norm = nn.LayerNorm(32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = self.qkv(x).unflatten(-1, (3, 2, 16)).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.o(mixed.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 32))


SHAPES = {mlp: (5, 32), Layer: (2, 5, 32)}


def made(kind: Any) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    return kind(), torch.randn(SHAPES[kind])


def grads(module: nn.Module, fn: Any, x: torch.Tensor) -> list[torch.Tensor]:
    """The result, and the gradients of its squares to x and each parameter."""
    x = x.clone().requires_grad_()
    y = fn(x)
    inputs = [x, *(p for p in module.parameters() if p.requires_grad)]
    return [y.detach(), *torch.autograd.grad(y.square().sum(), inputs)]


def near(ours: Any, eager: Any) -> None:
    for a, b in zip(ours, eager, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert (a.double() - b.double()).norm() <= 1e-5 * b.double().norm()


def config() -> Any:
    return Int8DynamicActivationIntxWeightConfig(
        weight_dtype=torch.int4, weight_granularity=PerGroup(16)
    )


def test_a_layer_made_ready_for_training_then_converted(strict: Any) -> None:
    module, x = made(Layer)
    quantize_(module, QATConfig(config(), step="prepare"))
    near(grads(module, strict(module), x), grads(module, module, x))
    quantize_(module, QATConfig(config(), step="convert"))
    torch._dynamo.reset()
    with torch.no_grad():
        near([strict(module)(x)], [module(x)])


def test_a_step_changes_what_the_next_call_rounds() -> None:
    module, x = made(mlp)
    quantize_(module, QATConfig(config(), step="prepare"))
    ours = copy.deepcopy(module)
    f = weft.compile(ours, fallback="error")
    for fn, own in ((f, ours), (module, module)):
        step = torch.optim.SGD(own.parameters(), lr=0.1)
        for _ in range(2):
            fn(x).square().mean().backward()
            step.step()
            step.zero_grad()
    with torch.no_grad():
        near([f(x)], [module(x)])


def exported(x: torch.Tensor, dynamic: bool, trains: bool) -> Any:
    """The MLP as torch.export's graph, with observers, or fake quantisation where it trains."""
    graph = torch.export.export(mlp(), (x,)).module()
    settings = x86.get_default_x86_inductor_quantization_config(is_dynamic=dynamic, is_qat=trains)
    with quiet():
        quantizer = x86.X86InductorQuantizer().set_global(settings)
        return (prepare_qat_pt2e if trains else prepare_pt2e)(graph, quantizer)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_a_converted_graph_is_generated(strict: Any, dynamic: bool) -> None:
    x = torch.randn(5, 32)
    graph = exported(x, dynamic, trains=False)
    with torch.no_grad(), quiet():
        graph(x)
        graph = convert_pt2e(graph)
        near([strict(graph)(x)], [graph(x)])


def test_observers_see_the_same_values() -> None:
    x = torch.randn(5, 32)
    graph = exported(x, False, trains=False)
    ours = copy.deepcopy(graph)
    f = ENTRIES["weft.compile"](ours)
    with torch.no_grad():
        for values in (x, 3 * x):
            near([f(values)], [graph(values)])
    near(ours.state_dict().values(), graph.state_dict().values())


@pytest.mark.parametrize("entry", ENTRIES)
def test_training_of_a_graph_from_its_first_call(entry: str) -> None:
    """Which gives the least and largest values of a channel, empty until then, their size."""
    torch._dynamo.reset()
    x = torch.randn(5, 32)
    graph = exported(x, False, trains=True)
    ours = copy.deepcopy(graph)
    f = ENTRIES[entry](ours)
    for values in (x, 3 * x, x + 1):
        near(grads(ours, f, values), grads(graph, graph, values))
    near(ours.state_dict().values(), graph.state_dict().values())


def test_a_state_without_a_size_is_an_error_where_all_is_to_be_compiled() -> None:
    x = torch.randn(5, 32)
    graph = exported(x, False, trains=True)
    f = weft.compile(graph, fallback="error")
    with pytest.raises(weft.CaptureError, match="gives a tensor of its state a size: call it in"):
        f(x)
