"""What a training run is, and a step of it as one compiled program.

state = State(model, adamw(), seed=1)
step = Step(lambda model, x, y: F.mse_loss(model(x), y), state, warm_up(100, constant(1e-3)))
loss = step(x, y)                # f32[]: parameters, buffers and slots are new, in place

A step is the loss, its gradients and the update, compiled together, so that nothing stands between
a gradient and its use. Under torchrun it is two programs, and gradients are averaged in between.
"""

from __future__ import annotations  # Dynamo traces functions in functions, not their types

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.func import functional_call, grad_and_value

import weft
from weft.train.finite import refuse_not_finite
from weft.train.optimisers import Optimiser, Slots, Tensors
from weft.train.schedules import Schedule

Loss = Callable[..., Tensor]
"""loss(model, *batch) gives a tensor of no dimensions."""
Compile = Callable[[Callable[..., Any]], Callable[..., Any]]
Batch = Sequence[Any]
Held = tuple[Tensors, Tensors, Slots]
"""Parameters, buffers, and the slots of the optimiser."""


def ranks() -> tuple[int, int]:
    """This process's number and their count: 0 and 1 but under torch.distributed."""
    ready = dist.is_available() and dist.is_initialized()
    return (dist.get_rank(), dist.get_world_size()) if ready else (0, 1)


class State:
    """The model, the optimiser and its slots, the numbers of steps taken and of the next batch.

    Random numbers are torch's: they begin at `seed`, with another one for each process. The model
    stays where it is from now on. Processes begin with the parameters of the first.
    """

    def __init__(self, model: nn.Module, optimiser: Optimiser, seed: int = 0) -> None:
        self.model, self.optimiser, self.step, self.place = model, optimiser, 0, 0
        named = {f"model.{name}": p for name, p in model.named_parameters()}
        self.params = {name: p for name, p in named.items() if p.requires_grad}
        self.buffers = {f"model.{name}": b for name, b in model.named_buffers()}
        self.all: dict[str, Tensor] = {**named, **self.buffers}
        for tensor in self.all.values() if ranks()[1] > 1 else ():
            dist.broadcast(tensor.detach(), 0)
        self.slots: Slots = optimiser.init([p.detach() for p in self.params.values()])
        torch.manual_seed(seed + ranks()[0])

    def tensors(self) -> dict[str, Tensor]:
        """All of them by name, as a checkpoint has them, but random numbers."""
        slots = {
            f"{slot}.{name}": tensor
            for slot, held in self.slots.items()
            for name, tensor in zip(self.params, held, strict=True)
        }
        return {name: tensor.detach() for name, tensor in {**self.all, **slots}.items()}


class Objective(nn.Module):
    """The loss as a module of the model, whose tensors have the names they have in a State."""

    def __init__(self, loss: Loss, model: nn.Module) -> None:
        super().__init__()
        self.loss, self.model = loss, model

    def forward(self, *batch: Any) -> Tensor:
        return self.loss(self.model, *batch)


@dataclass
class Step:
    """A step: step(*batch) gives the loss of the batch before the update.

    `rate` is a schedule of the number of steps taken. With `check_finite`, a loss or a gradient
    that is not finite is a WeftError that names its tensor, and the state is that of before.
    `compile` is what makes programs; `lambda f: f` for eager.
    """

    loss: Loss
    state: State
    rate: Schedule
    check_finite: bool = False
    compile: Compile = weft.compile

    def __post_init__(self) -> None:
        self.objective = Objective(self.loss, self.state.model)
        params = [p.detach() for p in self.state.params.values()]
        self.held: Held = (params, list(self.state.buffers.values()), self.state.slots)
        parts: list[Callable[..., Any]] = [self.gradients, self.update]
        self.programs = [self.compile(f) for f in (parts if ranks()[1] > 1 else [self.whole])]

    def __call__(self, *batch: Any) -> Tensor:
        state, rate = self.state, self.rate(self.state.step)
        numbers = [torch.tensor(x, dtype=torch.float64) for x in (state.step + 1.0, rate)]
        if ranks()[1] > 1:
            grads, loss, buffers = self.programs[0](*self.held[:2], batch)
            loss = averaged([*grads, loss])
            good = self.programs[1](self.held, *numbers, grads, loss, buffers)
        else:
            loss, good = self.programs[0](self.held, *numbers, batch)
        if self.check_finite and not good:
            refuse_not_finite(self.objective, state, batch, loss)
        state.step, state.place = state.step + 1, state.place + ranks()[1]
        return loss

    def whole(self, held: Held, step: Tensor, rate: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        grads, loss, buffers = self.gradients(held[0], held[1], batch)
        return loss, self.update(held, step, rate, grads, loss, buffers)

    def gradients(
        self, params: Tensors, buffers: Tensors, batch: Batch
    ) -> tuple[Tensors, Tensor, Tensors]:
        """Of the parameters; the loss; the buffers after the model has changed copies of them."""

        def loss(given: Tensors) -> tuple[Tensor, Tensors]:
            copies = [b.clone() for b in buffers]
            named = zip((*self.state.params, *self.state.buffers), (*given, *copies), strict=True)
            return functional_call(self.objective, dict(named), tuple(batch)), copies

        grads, (value, new) = grad_and_value(loss, has_aux=True)(params)
        return grads, value, new

    @torch.no_grad()
    def update(
        self, held: Held, step: Tensor, rate: Tensor, grads: Tensors, loss: Tensor, buffers: Tensors
    ) -> Tensor:
        """Stores the new state; with `check_finite` only where all is finite, which it returns."""
        params, old_buffers, slots = held
        new, moved = self.state.optimiser.update(grads, slots, params, step, rate)
        good = torch.ones((), dtype=torch.bool)
        if self.check_finite:
            good = torch.stack([x.isfinite().all() for x in (loss, *grads)]).all()
        old = [*params, *old_buffers, *(t for slot in slots.values() for t in slot)]
        now = [*new, *buffers, *(t for name in slots for t in moved[name])]
        for a, b in zip(old, now, strict=True):
            a.copy_(torch.where(good, b, a) if self.check_finite else b)
        return good


def averaged(tensors: Tensors) -> Tensor:
    """Replaces tensors by their means over the processes, all in one message; gives the last."""
    flat = torch.cat([t.flatten() for t in tensors])
    dist.all_reduce(flat)
    parts = (flat / ranks()[1]).split([t.numel() for t in tensors])
    for tensor, part in zip(tensors, parts, strict=True):
        tensor.copy_(part.view(tensor.shape))
    return tensors[-1]
