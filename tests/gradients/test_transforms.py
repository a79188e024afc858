"""weft.grad and its kin beside torch.func and torch's autograd; most are interpreted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import weft
from tests.gradients.interpreted import gradients_of
from weft.core.errors import CaptureError, UnsupportedOpError

W, B, X = torch.randn(8, 4), torch.randn(4), torch.randn(16, 8)


def loss(w: torch.Tensor, b: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x @ w + b).square().mean()


def close(found: Any, wanted: Any) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


def test_compiled_as_torch_func() -> None:
    close(weft.grad(loss)(W, B, X), torch.func.grad(loss)(W, B, X))
    value, (gw, gx) = weft.value_and_grad(loss, argnums=(0, -1))(W, B, X)
    close((gw, gx), torch.func.grad(loss, argnums=(0, 2))(W, B, X))
    close(value, loss(W, B, X))


def test_compiled_gradient_of_a_gradient() -> None:
    def penalty(grad: Callable[..., Any]) -> Callable[..., Any]:
        return lambda w: (grad(loss)(w, B, X) ** 2).sum()

    close(weft.grad(penalty(weft.grad))(W), torch.func.grad(penalty(torch.func.grad))(W))


def test_a_module_gives_its_parameters_by_name() -> None:
    net = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
    net[0].bias.requires_grad_(False)
    labels = torch.randint(0, 4, (16,))

    def entropy(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(net(x), labels)

    value, found = weft.value_and_grad(entropy)(net, X)
    entropy(net, X).backward()
    close(found, {k: p.grad for k, p in net.named_parameters() if p.requires_grad})
    assert not value.requires_grad and "0.bias" not in found


def test_trees_and_more_results() -> None:
    def f(p: dict[str, Any], x: torch.Tensor) -> Any:
        y = x @ p["w"][0]
        return (y * p["b"]).sum(), {"y": y}

    p = {"w": [W.double()], "b": B.double()}
    found, more = weft.grad(f, has_aux=True)(p, X.double())
    wanted, _ = torch.func.grad(f, has_aux=True)(p, X.double())
    close(found, wanted)
    close(more["y"], X.double() @ W.double())


def test_a_whole_step_is_one_program() -> None:
    net = nn.Linear(8, 4)
    before = {k: p.detach().clone() for k, p in net.named_parameters()}

    @weft.compile(fallback="error")
    def step(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
        value, grads = weft.value_and_grad(lambda net: net(x).square().mean())(net)
        with torch.no_grad():
            for name, p in net.named_parameters():
                p.sub_(grads[name], alpha=0.1)
        return value.detach()

    value = step(net, X)
    params = {k: p.clone().requires_grad_() for k, p in before.items()}
    wanted = torch.func.functional_call(net, params, (X,)).square().mean()
    grads = dict(zip(params, torch.autograd.grad(wanted, [*params.values()]), strict=True))
    close(value, wanted.detach())
    for name, p in net.named_parameters():
        close(p.detach(), before[name] - 0.1 * grads[name])


# --- what is the program's to say -----------------------------------------------------------------


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> Any:  # pyright: ignore
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> Any:  # pyright: ignore
        (x,) = ctx.saved_tensors
        return g * x  # not the derivative


@weft.custom_gradient
def rounded(x: torch.Tensor) -> Any:
    return x.round(), lambda g: g


@weft.custom_gradient
def both(x: torch.Tensor, y: torch.Tensor) -> Any:
    a, b = x * y, x + y
    return (a, b), lambda g, h: (g * y * 2 + h, g * x * a)


def detached(x: torch.Tensor) -> torch.Tensor:
    return (x * x.detach()).sum() + (x + (x.round() - x).detach()).square().sum()


def without(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        scale = x.exp().sum()
    return (x * scale).sum()


def written(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y[0] = y[1] + y[2]
    with torch.no_grad():
        y.clamp_(-1, 1)  # to torch's gradients it is still what it was
    return y.sum()


def alias(x: torch.Tensor) -> torch.Tensor:
    y = x * 1
    z = y.detach()
    y.mul_(3)
    return (y * z).sum()


CASES: dict[str, Callable[..., torch.Tensor]] = {
    **{f.__name__: f for f in (detached, without, written, alias)},
    "Function": lambda x: (Cube.apply(x) * x).sum(),  # pyright: ignore
    "custom": lambda x: (rounded(x) * x).sum(),
    "custom of two": lambda x: sum((y * y).sum() for y in both(x, x.sin())),  # type: ignore
}


@pytest.mark.parametrize("name", CASES)
def test_as_torch_has_it(name: str) -> None:
    x = torch.linspace(-2, 2, 7, dtype=torch.float64) + 0.1
    leaf = x.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(CASES[name](leaf), leaf)
    close(gradients_of(CASES[name], (x,))[0], wanted)


def test_a_custom_gradient_has_gradients() -> None:
    @weft.custom_gradient
    def f(x: torch.Tensor) -> Any:
        return x.sin(), lambda g: g * x * x

    def slope(x: torch.Tensor) -> torch.Tensor:
        return weft.grad(lambda x: f(x).sum())(x).sum()

    x = torch.randn(5, dtype=torch.float64)
    close(gradients_of(slope, (x,))[0], 2 * x)


def test_only_the_argument_that_is_named() -> None:
    x = torch.randn(3, dtype=torch.float64)
    close(gradients_of(lambda x, y: (x * x * y).sum(), (x, x), (0,))[0], 2 * x * x)

    def inner(x: torch.Tensor) -> torch.Tensor:  # d/dx of x d/dy (x y) is d/dx of x x
        return (x * weft.grad(lambda y: (x * y).sum())(x)).sum()

    close(gradients_of(inner, (x,))[0], 2 * x)


def turned(x: torch.Tensor) -> torch.Tensor:
    return x.flip(0)


# Where a function has several slopes, or its parts have none.
TIES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "maximum": lambda x: torch.maximum(x, turned(x)),
    "minimum": lambda x: torch.minimum(x, turned(x)),
    "maximum with a number": lambda x: torch.maximum(x, torch.tensor(0.0, dtype=x.dtype)),
    "clamp": lambda x: x.clamp(-1, 1),
    "clamp between tensors": lambda x: x.clamp(-x.abs(), turned(x)),
    "clamp from a tensor": lambda x: x.clamp(min=turned(x)),
    "clamp to a tensor of one element": lambda x: x.clamp(max=x[1:2]),
    "clamp_min": lambda x: torch.clamp_min(x, turned(x)),
    "clamp_max": lambda x: torch.clamp_max(turned(x), x * x),
    "relu": torch.relu,
    "abs": torch.abs,
    "amax": lambda x: torch.stack([x, turned(x), x]).amax(0),
    "max.dim": lambda x: torch.stack([x, turned(x), x]).max(0).values,
    "cummax": lambda x: x.cummax(0).values,
    "hardtanh": F.hardtanh,
    "relu6": lambda x: F.relu6(x + 1),
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "leaky_relu": F.leaky_relu,
    "logsigmoid": F.logsigmoid,
    "elu": F.elu,
    "threshold": lambda x: F.threshold(x, 0.0, 1.0),
    "softshrink": lambda x: F.softshrink(x, 1.0),
    "smooth_l1": lambda x: F.smooth_l1_loss(x, turned(x)),
    "huber": lambda x: F.huber_loss(x, x * 0),
    "norm of zeros": lambda x: (x * 0).norm(),
    "norm": lambda x: x.norm(dim=0),
    "sinc": torch.sinc,
    "fmax": lambda x: torch.fmax(x, turned(x) * x),
    "fmin of NaN": lambda x: torch.fmin(x.log(), turned(x)),
    "logsumexp": lambda x: torch.stack([x, x]).masked_fill(x > 0, -torch.inf).logsumexp(0),
}


@pytest.mark.parametrize("name", TIES)
def test_ties_are_torchs(name: str) -> None:
    x = torch.tensor([-1.0, 0, 1, 0, -1, 0, 1, 3, -3, 5, 6], dtype=torch.float64)

    def weighted(x: torch.Tensor) -> torch.Tensor:
        y = TIES[name](x)
        return (y * torch.arange(1, y.numel() + 1, dtype=x.dtype).reshape(y.shape)).sum()

    leaf = x.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(weighted(leaf), leaf)
    close(gradients_of(weighted, (x,))[0], wanted)


# --- refusals -------------------------------------------------------------------------------------


def test_what_is_refused() -> None:
    with pytest.raises(UnsupportedOpError, match=r"aten.linalg_inv_ex.default is a library call"):
        gradients_of(lambda x: torch.linalg.inv(x).sum(), (torch.eye(3),))
    with pytest.raises(
        UnsupportedOpError, match=r"aten.abs"
    ):  # complex in between, not cut silently
        gradients_of(lambda x: torch.fft.rfft(x).abs().sum(), (torch.randn(8),))
    with pytest.raises(CaptureError, match="without axes"):
        weft.grad(lambda x: x * 2)(X)
    with pytest.raises(CaptureError, match=r"floating-point tensors, not torch.int64"):
        weft.grad(lambda x: x.double().sum())(torch.arange(3))
    with pytest.raises(CaptureError, match="depend"):
        weft.grad(lambda x: x.sum() if x.sum() > 0 else -x.sum())(X)


def test_to_torchs_autograd_a_gradient_is_constant() -> None:
    w = W.clone().requires_grad_()

    def step(w: torch.Tensor) -> torch.Tensor:
        return w * w - weft.grad(loss)(w, B, X)

    for f in (step, weft.compile(step)):
        (found,) = torch.autograd.grad(f(w).sum(), w)
        close(found, 2 * W)
        with torch.no_grad():
            close(f(w), w * w - torch.func.grad(loss)(w, B, X))
