"""Training for quantisation by torchao's PT2E: values, gradients and observers as in eager."""

from __future__ import annotations

import copy
import logging
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import weft
from tests.frontend.entries import ENTRIES

pytestmark = pytest.mark.filterwarnings("ignore")  # torchao's, of its own classes
ON, OFF = 1, 0


def made(channels: int) -> list[Tensor]:
    """Whether it observes and whether it rounds, the extremes seen, the scale and zero point."""
    ends = torch.full((channels,), torch.inf), torch.full((channels,), -torch.inf)
    flags = torch.tensor([ON]), torch.tensor([ON])
    return [*flags, *ends, torch.ones(channels), torch.zeros(channels, dtype=torch.int32)]


def trained(fn: Any, state: list[Tensor], x: Tensor, g: Tensor) -> list[Tensor]:
    x = x.clone().requires_grad_()
    out = fn(x, *state)
    return [out.detach(), *torch.autograd.grad(out, x, g), *state]


@pytest.mark.parametrize("by_channel", [False, True])
@pytest.mark.parametrize("symmetric", [False, True])
def test_an_observer_that_rounds(by_channel: bool, symmetric: bool) -> None:
    """To the bit: of values that are tiny, of one sign, and 0; each of both on and off."""
    low, high = (-8, 7) if symmetric else (0, 255)

    def program(x: Tensor, *state: Tensor) -> Tensor:
        observe: Any = torch.fused_moving_avg_obs_fake_quant  # pyright: ignore
        return observe(x, *state, 0.01, low, high, 0, by_channel, symmetric)

    f = weft.compile(program, fallback="error")
    state = made(3 if by_channel else 1)
    ours = copy.deepcopy(state)
    flags = [(ON, ON)] * 5 + [(OFF, ON), (ON, OFF), (OFF, OFF), (ON, ON)]
    for step, (observes, rounds) in enumerate(flags):
        x, g = torch.randn(3, 9) * 10.0 ** (step - 3), torch.randn(3, 9)
        x = (x, x.abs(), -x.abs(), 0 * x)[step % 4]
        for own in (state, ours):
            own[0].fill_(observes)
            own[1].fill_(rounds)
        for got, want in zip(trained(f, ours, x, g), trained(program, state, x, g), strict=True):
            assert got.dtype == want.dtype and torch.equal(got, want)


def test_observers_that_eager_refuses() -> None:
    x, state = torch.randn(3, 9), made(3)
    observe: Any = torch.fused_moving_avg_obs_fake_quant  # pyright: ignore
    f = weft.compile(lambda x, *s: observe(x, *s, 0.1, 0, 255, 1, True, False), fallback="error")
    with pytest.raises(weft.CaptureError, match="along axis 1, where eager's takes axis 0"):
        f(x, *state)
    f = weft.compile(lambda x, *s: observe(x, *s, 0.1, 0, 255, 0, True, False), fallback="error")
    with pytest.raises(weft.CaptureError, match=r"of torch\.float16, where eager's takes"):
        f(x.half(), *state)
    with pytest.raises(weft.CaptureError, match="of 4 channels with a state of 3"):
        f(torch.randn(4, 9), *state)


@contextmanager
def quiet() -> Generator[None]:
    """torchao warns, as it is imported, of kernels that it has not."""
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def prepared(x: Tensor) -> Any:
    """A Linear, and a ReLU, as torch.export's graph with fake quantisation."""
    with quiet():
        pytest.importorskip("torchao")
        import torchao.quantization.pt2e.quantizer.x86_inductor_quantizer as x86
        from torchao.quantization.pt2e.quantize_pt2e import prepare_qat_pt2e

        graph = torch.export.export(nn.Sequential(nn.Linear(8, 5), nn.ReLU()), (x,)).module()
        settings = x86.get_default_x86_inductor_quantization_config(is_qat=True)
        return prepare_qat_pt2e(graph, x86.X86InductorQuantizer().set_global(settings))


def gradients(module: nn.Module, fn: Any, x: Tensor) -> list[Tensor]:
    """The result, and the gradients of its squares to x and each parameter."""
    x = x.clone().requires_grad_()
    y = fn(x)
    return [y.detach(), *torch.autograd.grad(y.square().sum(), [x, *module.parameters()])]


def near(ours: Any, eager: Any) -> None:
    for a, b in zip(ours, eager, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert (a.double() - b.double()).norm() <= 1e-5 * b.double().norm()


@pytest.mark.parametrize("entry", ENTRIES)
def test_training_of_a_graph_from_its_first_call(entry: str) -> None:
    """Which gives the least and largest values of a channel, empty until then, their size."""
    torch.compiler.reset()
    x = torch.randn(3, 8)
    graph = prepared(x)
    ours = copy.deepcopy(graph)
    f: Any = ENTRIES[entry](ours)
    for values in (x, 3 * x, x + 1):
        near(gradients(ours, f, values), gradients(graph, graph, values))
    near(ours.state_dict().values(), graph.state_dict().values())


def test_a_state_without_a_size_is_an_error_where_all_is_to_be_compiled() -> None:
    x = torch.randn(3, 8)
    graph = prepared(x)
    f = weft.compile(graph, fallback="error")
    with pytest.raises(weft.CaptureError, match="gives a tensor of its state a size: call it in"):
        f(x)
    expected = graph(x)
    near(gradients(graph, f, x), gradients(graph, graph, x))
    assert expected.shape == (3, 5) and f.report.externs == []
