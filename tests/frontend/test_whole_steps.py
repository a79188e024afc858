"""Training steps with backward and the optimiser inside: one program, and always as eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_map_only

import weft

Make = Callable[[nn.Module, Any], Callable[..., Any]]  # a step of a network and its optimiser


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(5, 7), nn.Linear(7, 3)
        self.frozen = nn.Parameter(torch.ones(7), requires_grad=False)
        self.unused = nn.Parameter(torch.ones(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x).relu() * self.frozen)


def plain(net: nn.Module, opt: Any) -> Callable[..., Any]:
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        opt.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        return loss

    return step


def cleared_after(net: nn.Module, opt: Any) -> Callable[..., Any]:
    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss.detach()

    return step


def zeroed(net: nn.Module, opt: Any) -> Callable[..., Any]:
    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        opt.zero_grad(set_to_none=False)
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        return loss.detach()

    return step


def accumulating(net: nn.Module, opt: Any) -> Callable[..., Any]:
    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        loss = nn.functional.cross_entropy(net(x), y)
        (loss / 2).backward()
        opt.step()
        return loss.detach()

    return step


def clipped(net: nn.Module, opt: Any) -> Callable[..., Any]:
    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        opt.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        opt.step()
        return loss.detach(), norm

    return step


def twice(net: nn.Module, opt: Any) -> Callable[..., Any]:
    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        opt.zero_grad()
        out = net(x)
        loss = nn.functional.cross_entropy(out, y)
        loss.backward(retain_graph=True)
        out.square().mean().backward()
        opt.step()
        return loss.detach()

    return step


def penalised(net: nn.Module, opt: Any) -> Callable[..., Any]:
    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        opt.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        (g,) = torch.autograd.grad(loss, [net.first.weight], create_graph=True)  # type: ignore[list-item]
        total = loss + g.square().sum()
        total.backward()
        opt.step()
        return total.detach()

    return step


def in_bfloat16(net: nn.Module, opt: Any) -> Callable[..., Any]:
    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        opt.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        return loss.detach()

    return step


def with_a_number(net: nn.Module, opt: Any) -> Callable[..., Any]:
    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        opt.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        return loss.item()

    return step


def with_its_outputs(net: nn.Module, opt: Any) -> Callable[..., Any]:
    """What backward has used up comes out."""

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        for p in net.parameters():
            p.grad = None
        out = net(x)
        loss = nn.functional.cross_entropy(out, y)
        loss.backward()
        opt.step()
        return out

    return step


def adamw(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(net.parameters(), 0.01)


def sgd(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(net.parameters(), 0.1)


def states(net: nn.Module, opt: Any) -> list[Any]:
    """Parameters, gradients and the optimiser's state."""
    own = [(p.detach(), p.grad) for p in net.parameters()]
    return [own, opt.state_dict()["state"]]


def both(
    make: Make,
    optimiser: Callable[[nn.Module], Any],
    calls: int = 4,
    between: Callable[[int, nn.Module, Any], Any] = lambda i, net, opt: None,
    tolerance: float = 1e-5,
) -> Any:
    """Train in eager and compiled, compare everything after every call; the compiled step."""
    runs: list[list[Any]] = []
    compiled: Any = None
    for how in (lambda f: f, weft.compile):
        torch.manual_seed(0)
        net = Net()
        opt = optimiser(net)
        step = how(make(net, opt))
        found: list[Any] = []
        for i in range(calls):
            x, y = torch.randn(6, 5), torch.randint(0, 3, (6,))
            out = step(x, y)
            out = out.detach() if isinstance(out, torch.Tensor) else out
            found.append([out, *(_copied(s) for s in states(net, opt))])
            between(i, net, opt)
        runs.append(found)
        compiled = step
    torch.testing.assert_close(runs[1], runs[0], rtol=10 * tolerance, atol=tolerance)
    return compiled


def _copied(tree: Any) -> Any:
    return tree_map_only(torch.Tensor, torch.clone, tree)


OPTIMISERS = """SGD Adam AdamW RMSprop Adagrad NAdam RAdam Adadelta Adamax ASGD Rprop""".split()


@pytest.mark.parametrize("name", OPTIMISERS)
def test_an_optimiser_is_part_of_one_program(name: str) -> None:
    step = both(plain, lambda net: getattr(torch.optim, name)(net.parameters(), lr=0.01))
    assert not step.reasons and not weft.report(step).externs
    assert len(step.programs) <= 2  # with gradients there, and where none are yet


STEPS = (cleared_after, zeroed, accumulating, clipped, twice, penalised)


@pytest.mark.parametrize("make", STEPS, ids=lambda m: m.__name__)
@pytest.mark.parametrize("optimiser", [sgd, adamw])
def test_one_program(make: Make, optimiser: Callable[[nn.Module], Any]) -> None:
    step = both(make, optimiser)
    assert len(step.programs) <= 2 and not step.reasons


def test_autocast() -> None:
    step = both(in_bfloat16, sgd, tolerance=2e-3)
    assert not step.reasons


@pytest.mark.parametrize("make", [with_a_number, with_its_outputs], ids=lambda m: m.__name__)
def test_more_than_one_graph(make: Make) -> None:
    both(make, sgd)
    both(make, adamw)


def test_gradients_that_nobody_keeps_are_not_stored() -> None:
    torch.manual_seed(0)
    net = Net()
    opt = adamw(net)
    step = weft.compile(cleared_after(net, opt))
    for _ in range(3):
        step(torch.randn(6, 5), torch.randint(0, 3, (6,)))
    returned = weft.ir(step, "torch").strip().splitlines()[-1].removeprefix("output ").split(", ")
    assert len(returned) == 1 + 4 * len(opt.state)  # the loss; a parameter, its step and moments


def clear(p: torch.Tensor) -> None:
    p.grad.zero_()  # type: ignore[union-attr]


def hooked(i: int, net: Any, opt: Any) -> None:
    if i == 1:
        net.first.weight.register_hook(lambda g: g * 2)
    if i == 3:
        net.last.bias.register_post_accumulate_grad_hook(clear)


def stepped(i: int, net: Any, opt: Any) -> None:
    if i == 1:
        opt.register_step_post_hook(lambda o, args, kwargs: net.first.bias.data.fill_(0.5))


def replaced(i: int, net: Any, opt: Any) -> None:
    if i == 2:
        opt.step = lambda: None


def rescheduled(i: int, net: Any, opt: Any) -> None:
    opt.param_groups[0]["lr"] *= 0.5


def reloaded(i: int, net: Any, opt: Any) -> None:
    opt.load_state_dict(opt.state_dict())
    if i == 2:
        net.first.weight.requires_grad_(False)


def other_gradients(i: int, net: Any, opt: Any) -> None:
    for p in net.parameters():
        p.grad = torch.ones_like(p) if i % 2 else None


@pytest.mark.parametrize(
    "between",
    [hooked, stepped, replaced, rescheduled, reloaded, other_gradients],
    ids=lambda m: m.__name__,
)
def test_state_that_changes_between_calls(between: Any) -> None:
    both(plain, adamw, 6, between)
    both(accumulating, sgd, 6, between)


def test_a_schedule() -> None:
    def scheduled(net: nn.Module) -> torch.optim.Optimizer:
        opt = adamw(net)
        opt.schedule = torch.optim.lr_scheduler.StepLR(opt, 1, 0.5)  # type: ignore[attr-defined]
        return opt

    both(plain, scheduled, 5, lambda i, net, opt: opt.schedule.step())


def test_after_a_step_compiled_by_itself() -> None:
    """Which marks the parameters' addresses: Dynamo then makes no inputs of them."""

    def compiled_before(net: nn.Module) -> torch.optim.Optimizer:
        opt = sgd(net)
        for p in net.parameters():
            p.grad = torch.zeros_like(p)
        torch.compile(opt.step, backend="eager")()
        return opt

    step = both(plain, compiled_before)
    assert len(step.programs) == 1


def test_a_loss_has_no_history_after_backward() -> None:
    net = Net()
    step = weft.compile(plain(net, sgd(net)))
    x, y = torch.randn(6, 5), torch.randint(0, 3, (6,))
    step(x, y)
    with pytest.raises(RuntimeError):
        step(x, y).backward()
