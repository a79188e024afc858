"""Steps of an optimiser by themselves, and what else has gradients off: in place, as eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import weft
from weft.frontend.python import _Keys  # pyright: ignore[reportPrivateUsage]
from weft.library.calls import wrote

Make = Callable[[list[Tensor]], Callable[[], Any]]
SHAPES = ((7, 5), (64,), (), (1,), (0,), (3, 1, 4))
NAMES = """SGD Adam AdamW RMSprop Adagrad NAdam RAdam Adadelta Adamax ASGD Rprop""".split()


def parameters(dtype: torch.dtype, turned: bool) -> list[nn.Parameter]:
    """Of mixed shapes, with gradients; where `turned`, one is not contiguous."""
    torch.manual_seed(0)
    leaves = [nn.Parameter(torch.randn(s).to(dtype)) for s in SHAPES]
    if turned:
        leaves.append(nn.Parameter(torch.randn(6, 4).to(dtype).t()))
    for p in leaves:
        p.grad = torch.randn(p.shape).to(dtype)
    return leaves


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "dtype, turned", [(torch.float32, False), (torch.bfloat16, False), (torch.float32, True)]
)
def test_a_step_alone_writes_in_place(name: str, dtype: torch.dtype, turned: bool) -> None:
    """Not by copies of what AOTAutograd has made functional.

    State of a parameter that is not contiguous is made by a library call, or in eager.
    """
    runs: list[Any] = []
    for how in (lambda f: f, weft.compile):
        leaves = parameters(dtype, turned)
        opt: torch.optim.Optimizer = getattr(torch.optim, name)(leaves, lr=0.01)
        step: Any = how(lambda opt=opt: opt.step())
        for _ in range(4):
            step()
        runs.append([[p.detach() for p in leaves], [*opt.state.values()]])
        assert all(p.requires_grad and p.grad_fn is None for p in leaves)
    tolerance = 1e-5 if dtype is torch.float32 else 2e-2
    torch.testing.assert_close(runs[1], runs[0], rtol=tolerance, atol=tolerance)
    if not turned:
        writes, _ = step.programs[-1].artifact.launched
        assert len(writes) >= len(SHAPES)
        assert not step.reasons and not weft.report(step).externs


def step_of(opt: torch.optim.Optimizer) -> Callable[[], Any]:
    return opt.step


def named_before(opt: torch.optim.Optimizer) -> Callable[[], Any]:
    step = opt.step
    return lambda: step()


def scheduled(opt: torch.optim.Optimizer) -> Callable[[], Any]:
    torch.optim.lr_scheduler.StepLR(opt, 2)
    return opt.step


def hooked(opt: torch.optim.Optimizer) -> Callable[[], Any]:
    opt.register_step_pre_hook(lambda *_: opt.param_groups[0].update(lr=0.02))
    return opt.step


@pytest.mark.parametrize(
    "make, whole", [(step_of, 1), (named_before, 1), (scheduled, 1), (hooked, 0)]
)
def test_a_bound_step(make: Callable[[torch.optim.Optimizer], Any], whole: int) -> None:
    """The method itself, not a function that calls it: one program as well, but for hooks."""
    runs: list[Any] = []
    for how in (lambda f: f, weft.compile):
        leaves = parameters(torch.float32, False)
        opt = torch.optim.AdamW(leaves, lr=0.01)
        step: Any = how(make(opt))
        for _ in range(4):
            step()
        runs.append(leaves)
    torch.testing.assert_close(runs[1], runs[0], rtol=1e-5, atol=1e-5)
    assert not whole or (not step.reasons and len(step.programs) <= 2)


def halved(s: list[Tensor]) -> Callable[[], Any]:
    def call() -> None:
        with torch.no_grad():
            s[0].sub_(s[1] * 0.5)

    return call


def gains_history(s: list[Tensor]) -> Callable[[], Any]:
    def call() -> None:
        with torch.no_grad():
            s[0].mul_(0.5)
        s[1].add_(s[0] * 2)

    return call


def result_has_history(s: list[Tensor]) -> Callable[[], Any]:
    def call() -> Tensor:
        with torch.no_grad():
            s[0].mul_(0.5)
        return s[0] * 2

    return call


def facts(tensors: list[Tensor]) -> list[Any]:
    return [(t.detach().clone(), t.requires_grad, t.grad_fn is None) for t in tensors]


@pytest.mark.parametrize("make", [halved, gains_history, result_has_history])
def test_gradients_that_are_off_in_a_part(make: Make) -> None:
    found: list[Any] = []
    for how in (lambda f: f, weft.compile):
        held = [nn.Parameter(torch.arange(5.0)), torch.ones(5)]
        result: Any = how(make(held))()
        found.append(facts([*held, *([] if result is None else [result])]))
    torch.testing.assert_close(found[1], found[0])


def test_tensors_that_come_to_overlap() -> None:
    """After calls in which they lay apart: Dynamo's guards do not look at that."""
    found: list[Any] = []
    for how in (lambda f: f, weft.compile):
        held = [nn.Parameter(torch.arange(8.0)[:5].clone()), torch.ones(5)]
        call = how(halved(held))
        for i in range(6):
            if i == 3:
                storage = held[0].data.untyped_storage()
                held[1].set_(storage, 0, (5,), (1,))  # type: ignore[call-overload]
            call()
        found.append(facts(held))
    torch.testing.assert_close(found[1], found[0])


def test_keys_are_read_anew_in_each_call() -> None:
    keys, d = _Keys(), {"a": 1, "b": 2}
    read = keys.within(lambda: [keys.at(d, i) for i in range(2)])
    assert read() == ["a", "b"]
    d["a"] = d.pop("a")
    assert read() == ["b", "a"]
    with pytest.raises(IndexError):
        keys.within(lambda: keys.at(d, 2))()
    d["b"] = d.pop("b")
    assert read() == ["a", "b"]


def test_versions_of_tensors_of_inference_mode() -> None:
    with torch.inference_mode():
        frozen = torch.ones(2)
    plain = torch.ones(2)
    before = plain._version
    wrote([frozen, plain])
    assert plain._version > before
