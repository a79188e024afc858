"""The guards on parameters, gradients and an optimiser's state, which are one for all of them."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import Parameter

import weft
from tests.frontend import step_changes


def pair() -> tuple[Any, Any]:
    return step_changes.pair(torch.optim.AdamW)


def replaced(net: Any, optimiser: Any) -> None:
    new = Parameter(torch.ones(5, 3).double())
    new.grad = torch.ones(5, 3).double()
    optimiser.state[new] = optimiser.state.pop(net[0].weight)
    optimiser.param_groups[0]["params"][0] = net[0].weight = new


def values(net: Any, optimiser: Any) -> None:
    net[0].weight.data = torch.ones(5, 3).double()


def resized(net: Any, optimiser: Any) -> None:
    """As long, at the same address."""
    p, state = net[0].weight, optimiser.state[net[0].weight]
    p.data = p.data.view(3, 5)
    p.grad = p.grad.view(3, 5)
    state["exp_avg"], state["exp_avg_sq"] = (state[k].view(3, 5) for k in ("exp_avg", "exp_avg_sq"))


def shorter(net: Any, optimiser: Any) -> None:
    p, state = net[0].bias, optimiser.state[net[0].bias]
    p.data, p.grad = p.data[:4], p.grad[:4]
    state["exp_avg"], state["exp_avg_sq"] = state["exp_avg"][:4], state["exp_avg_sq"][:4]


def shared(net: Any, optimiser: Any) -> None:
    """One tensor in two places."""
    state = optimiser.state[net[0].bias]
    state["exp_avg"] = net[0].bias.grad


def unwatched(net: Any, optimiser: Any) -> None:
    net[1].bias.requires_grad_(False)


def reordered(net: Any, optimiser: Any) -> None:
    optimiser.state[net[0].weight] = optimiser.state.pop(net[0].weight)


def swapped(net: Any, optimiser: Any) -> None:
    state = optimiser.state[net[0].weight]
    state["exp_avg"], state["exp_avg_sq"] = state["exp_avg_sq"] ** 2, state["exp_avg"] ** 2


def subclassed(net: Any, optimiser: Any) -> None:
    """State that is no plain dict, with another key."""
    state = optimiser.state[net[0].weight]
    optimiser.state[net[0].weight] = OrderedDict(state, other=torch.ones(2))
    state["exp_avg"].mul_(2)


def longer(net: Any, optimiser: Any) -> None:
    optimiser.state[net[0].weight]["other"] = torch.ones(2)


CHANGES = (
    *(subclassed, longer),
    *step_changes.SEEN,
    *(replaced, values, resized, shorter, shared, unwatched, reordered, swapped),
)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_what_changes_between_steps_is_seen(change: Callable[[Any, Any], None]) -> None:
    (net, optimiser), (eager, other) = pair(), pair()
    step = weft.compile(lambda: optimiser.step())
    for number in range(6):
        if number == 3:
            assert "20 tensors of objects" in str(step._weft.hot[-1].guards)
            change(net, optimiser)
            change(eager, other)
        step()
        other.step()
    for group, same in zip(optimiser.param_groups, other.param_groups, strict=True):
        for p, q in zip(group["params"], same["params"], strict=True):
            # while it compiles, torch computes powers of betas in f32, as steps are
            found, wanted = (p, optimiser.state[p]), (q, other.state[q])
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
            assert p.requires_grad == q.requires_grad


@pytest.mark.parametrize("key", ("exp_avg", "step"))
def test_state_that_is_gone_is_an_error(key: str) -> None:
    net, optimiser = pair()
    step = weft.compile(lambda: optimiser.step())
    for _ in range(3):
        step()
    state = optimiser.state[net[0].weight]
    state["other"] = state.pop(key)
    with pytest.raises(Exception, match=key):
        step()
    state[key] = state.pop("other")
    step()


def test_an_argument_that_is_a_parameter() -> None:
    """Arguments have guards of their own, and so has all that is not to be one of them."""
    net, optimiser = pair()
    seen: list[bool] = []

    def read(x: torch.Tensor) -> torch.Tensor:
        seen.append(any(x is p for p in net.parameters()))
        states = ((*s.values(), p, p.grad) for p, s in optimiser.state.items())
        with torch.no_grad():
            return sum((t.sum() for held in states for t in held), x.sum()) + seen[-1]

    optimiser.step()
    f = weft.compile(read)
    ones = torch.ones(5).double()
    for x in (ones, ones * 2, net[0].bias, ones):
        seen.clear()
        torch.testing.assert_close(f(x), read(x))


def test_which_tensor_is_another_is_told(caplog: pytest.LogCaptureFixture) -> None:
    net, optimiser = pair()
    step = weft.compile(lambda: optimiser.step())
    for _ in range(3):
        step()
    step_changes.transposed(net, optimiser)
    with caplog.at_level(logging.INFO, logger="weft.frontend.python"):
        step()
    (said,) = [r.getMessage() for r in caplog.records if "compiled again" in r.getMessage()]
    assert ".grad' stride mismatch at index 0. expected 3, actual 1" in said


@pytest.mark.parametrize("change", (subclassed, longer, replaced, unwatched))
def test_what_is_no_longer_so_is_told(change: Any, caplog: pytest.LogCaptureFixture) -> None:
    said = {
        subclassed: "type(", longer: "len(", replaced: " is list(dict.keys(",
        unwatched: "requires_grad",
    }  # fmt: skip
    net, optimiser = pair()
    step = weft.compile(lambda: optimiser.step())
    for _ in range(3):
        step()
    change(net, optimiser)
    with caplog.at_level(logging.INFO, logger="weft.frontend.python"):
        step()
    (told,) = [r.getMessage() for r in caplog.records if "compiled again" in r.getMessage()]
    assert said[change] in told


# --- hooks of saved tensors -----------------------------------------------------------------------


class Same(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.clone()


def test_hooks_of_saved_tensors_are_seen() -> None:
    """Those that a graph can have: it is compiled with them. Others the call itself runs."""
    f = weft.compile(lambda x: (x * x).sum())
    x = torch.ones(3, requires_grad=True)
    for _ in range(2):
        f(x).backward()
    (hot,) = f._weft.hot
    frame = {"args": (x,), "kwargs": {}, "fn": f._weft.fn}
    graphs = [torch.fx.symbolic_trace(Same()) for _ in range(2)]
    with torch.autograd.graph.saved_tensors_hooks(*graphs):
        assert not hot.fits(frame)
    seen: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t) or t, lambda t: t):
        assert hot.fits(frame)
        f(x).backward()
    assert hot.fits(frame) and seen
    torch.testing.assert_close(x.grad, torch.full((3,), 6.0))


# --- one tensor in two places ---------------------------------------------------------------------


def new(net: Any) -> None:
    net[2].weight = Parameter(torch.ones(8, 8).double())


def tied(net: Any) -> None:
    net[2].weight = net[1].weight


def exchanged(net: Any) -> None:
    net[1].weight, net[2].weight = net[2].weight, net[1].weight


def whole(given: bool) -> tuple[Any, Callable[[], torch.Tensor]]:
    torch.manual_seed(0)
    net = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(3)]).double()
    x, optimiser = torch.randn(4, 8).double(), torch.optim.SGD(net.parameters(), 0.01, momentum=0.9)

    def step(optimiser: Any = optimiser) -> torch.Tensor:
        optimiser.zero_grad()
        loss = net(x).square().sum()
        loss.backward()
        optimiser.step()
        return loss.detach()

    return net, (lambda: step(optimiser)) if given else step


@pytest.mark.parametrize("given", (False, True))
@pytest.mark.parametrize("change", (new, tied, exchanged), ids=lambda change: change.__name__)
def test_a_parameter_that_the_optimiser_has_no_more(change: Any, given: bool) -> None:
    (net, step), (eager, same) = whole(given), whole(given)
    call = weft.compile(step)
    for number in range(6):
        if number == 3:
            change(net)
            change(eager)
        torch.testing.assert_close(call(), same())


@pytest.mark.parametrize("change", (new, tied, exchanged), ids=lambda change: change.__name__)
def test_an_optimiser_that_is_an_argument(change: Any) -> None:
    """One of two paths to a parameter starts at an argument, and one at a closure."""
    found: list[list[torch.Tensor]] = []
    for compiled in (False, True):
        torch.manual_seed(0)
        net: Any = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(3)]).double()

        def step(optimiser: Any, x: torch.Tensor, net: Any = net) -> torch.Tensor:
            optimiser.zero_grad()
            loss = net(x).square().sum()
            loss.backward()
            optimiser.step()
            return loss.detach()

        call = weft.compile(step) if compiled else step
        optimiser = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9)
        x, losses = torch.randn(4, 8).double(), list[torch.Tensor]()
        for number in range(6):
            if number == 3:
                change(net)
            losses.append(call(optimiser, x))
        found.append(losses)
    torch.testing.assert_close(*found)


OTHER = torch.ones(3)


def test_an_argument_that_is_a_global(monkeypatch: pytest.MonkeyPatch) -> None:
    call = weft.compile(lambda x: x + OTHER * 2)
    for _ in range(2):
        assert torch.equal(call(OTHER), torch.full((3,), 3.0))
    assert torch.equal(call(torch.zeros(3)), torch.full((3,), 2.0))
    monkeypatch.setitem(globals(), "OTHER", torch.full((3,), 5.0))
    assert torch.equal(call(torch.ones(3)), torch.full((3,), 11.0))
