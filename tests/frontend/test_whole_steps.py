"""Training steps with backward and the optimiser inside: one program, and always as eager."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_map_only
from torch.utils.checkpoint import checkpoint

import weft


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(5, 7), nn.Linear(7, 3)
        self.frozen = nn.Parameter(torch.ones(7), requires_grad=False)
        self.unused = nn.Parameter(torch.ones(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x).relu() * self.frozen)


def cross_entropy(net: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(net(x), y)


def twice(net: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = net(x)
    nn.functional.cross_entropy(out, y).backward(retain_graph=True)
    return out.square().mean()


def penalised(net: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    loss = cross_entropy(net, x, y)
    (g,) = torch.autograd.grad(loss, [net.first.weight], create_graph=True)
    return loss + g.square().sum()


def in_bfloat16(net: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return cross_entropy(net, x, y)


def checkpointed(net: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = checkpoint(lambda t: net(t).sin(), x, use_reentrant=False)
    return nn.functional.cross_entropy(out, y)  # type: ignore[arg-type]


def none(net: Any, opt: Any) -> None:
    return None


def cleared(net: Any, opt: Any) -> None:
    opt.zero_grad()


def zeroed(net: Any, opt: Any) -> None:
    opt.zero_grad(set_to_none=False)


def each_cleared(net: Any, opt: Any) -> None:
    for p in net.parameters():
        p.grad = None


def clipped(net: Any, opt: Any) -> None:
    nn.utils.clip_grad_norm_(net.parameters(), 0.1)


@dataclass(frozen=True)
class Steps:
    """How a step goes: what it does before, its loss, what between backward and the optimiser's
    step and after that, and what comes out of the loss."""

    before: Callable[..., None] = cleared
    loss: Callable[..., torch.Tensor] = cross_entropy
    between: Callable[..., None] = none
    after: Callable[..., None] = none
    result: Callable[[torch.Tensor], Any] = torch.Tensor.detach

    def of(self, net: nn.Module, opt: Any) -> Callable[..., Any]:
        def step(x: torch.Tensor, y: torch.Tensor) -> Any:
            self.before(net, opt)
            loss = self.loss(net, x, y)
            loss.backward()
            self.between(net, opt)
            opt.step()
            self.after(net, opt)
            return self.result(loss)

        return step


PLAIN = Steps(result=lambda loss: loss)
ONE_PROGRAM = {
    "cleared after": Steps(none, after=cleared),
    "zeroed": Steps(zeroed),
    "accumulating": Steps(none),
    "clipped": Steps(between=clipped),
    "twice": Steps(loss=twice),
    "penalised": Steps(loss=penalised),
}


def with_its_outputs(net: nn.Module, opt: Any) -> Callable[..., Any]:
    """What backward has used up comes out."""

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        each_cleared(net, opt)
        out = net(x)
        nn.functional.cross_entropy(out, y).backward()
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
    make: Callable[[nn.Module, Any], Callable[..., Any]],
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
    step = both(PLAIN.of, lambda net: getattr(torch.optim, name)(net.parameters(), lr=0.01))
    assert not step.reasons and not weft.report(step).externs
    assert len(step.programs) <= 2  # with gradients there, and where none are yet


@pytest.mark.parametrize("name", ONE_PROGRAM)
@pytest.mark.parametrize("optimiser", [sgd, adamw])
def test_one_program(name: str, optimiser: Callable[[nn.Module], Any]) -> None:
    step = both(ONE_PROGRAM[name].of, optimiser)
    assert len(step.programs) <= 2 and not step.reasons


def test_autocast() -> None:
    step = both(Steps(loss=in_bfloat16).of, sgd, tolerance=2e-3)
    assert not step.reasons


def test_checkpoints() -> None:
    """Whose operator has a body, which AOTAutograd takes in."""
    step = both(Steps(loss=checkpointed).of, sgd)
    assert not step.reasons


@pytest.mark.parametrize("optimiser", [sgd, adamw])
def test_more_than_one_graph(optimiser: Callable[[nn.Module], Any]) -> None:
    both(Steps(result=torch.Tensor.item).of, optimiser)
    both(with_its_outputs, optimiser)


def test_gradients_that_nobody_keeps_are_not_stored() -> None:
    torch.manual_seed(0)
    net = Net()
    opt = adamw(net)
    step = weft.compile(ONE_PROGRAM["cleared after"].of(net, opt))
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
    both(PLAIN.of, adamw, 6, between)
    both(ONE_PROGRAM["accumulating"].of, sgd, 6, between)


def test_a_schedule() -> None:
    def scheduled(net: nn.Module) -> torch.optim.Optimizer:
        opt = adamw(net)
        opt.schedule = torch.optim.lr_scheduler.StepLR(opt, 1, 0.5)  # type: ignore[attr-defined]
        return opt

    both(PLAIN.of, scheduled, 5, lambda i, net, opt: opt.schedule.step())


def test_after_a_step_compiled_by_itself() -> None:
    """Which marks the parameters' addresses: Dynamo then makes no inputs of them."""

    def compiled_before(net: nn.Module) -> torch.optim.Optimizer:
        opt = sgd(net)
        for p in net.parameters():
            p.grad = torch.zeros_like(p)
        torch.compile(opt.step, backend="eager")()
        return opt

    step = both(PLAIN.of, compiled_before)
    assert len(step.programs) == 1


def test_a_loss_has_no_history_after_backward() -> None:
    net = Net()
    step = weft.compile(PLAIN.of(net, sgd(net)))
    x, y = torch.randn(6, 5), torch.randint(0, 3, (6,))
    step(x, y)
    with pytest.raises(RuntimeError):
        step(x, y).backward()


def test_a_first_step_where_all_is_to_be_compiled() -> None:
    """It runs in eager all the same, once: the next call is compiled."""
    p, other = (nn.Parameter(torch.ones(4)) for _ in range(2))
    opt, same = (torch.optim.SGD([q], lr=0.1, momentum=0.9) for q in (p, other))

    def step(p: nn.Parameter, opt: torch.optim.Optimizer) -> torch.Tensor:
        opt.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        opt.step()
        return loss.detach()

    call = weft.compile(lambda: step(p, opt), fallback="error")
    for _ in range(3):
        torch.testing.assert_close(call(), step(other, same))
    torch.testing.assert_close(p, other)
    assert len(call.programs) == 1
