"""PyTorch's own optimisers (optim_db), stepped through torch.compile beside eager.

for name, case in cases().items():
    problem = run(case, "weft")           # "" or a sentence
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

SHAPES = ((7, 5), (5,), (3, 1, 4), (1,), ())  # of the parameters of one group
STEPS = 5
LOADED = 3  # the step before which the state is saved and loaded


@dataclass(frozen=True)
class Case:
    """One optimiser with one variant's arguments, in one of torch's implementations.

    `groups` says that half of the parameters have a learning rate of their own; `schedule` makes a
    scheduler of an optimiser.
    """

    kind: type[torch.optim.Optimizer]
    arguments: dict[str, Any]
    implementation: str
    groups: bool = False
    schedule: Callable[[Any], Any] | None = None
    tensor_rate: bool = False


def cases() -> dict[str, Case]:
    """All variants of all optimisers, by name. The import takes seconds."""
    from torch.testing._internal.common_optimizers import optim_db

    found: dict[str, Case] = {}
    for info in optim_db:
        kind, label = info.optim_cls, info.optim_cls.__name__
        variants = [v.kwargs for v in info.optim_inputs_func(device="cpu")]
        for variant in variants:
            given = {k: v for k, v in variant.items() if k not in ("foreach", "fused")}
            for how in ("forloop", *info.supported_impls):
                words = [f"{k}={_short(v)}" for k, v in given.items()]
                found[".".join([label, how, *words])] = Case(kind, given, how)
            if info.has_capturable_arg and "capturable" not in given:
                name = ".".join(
                    [label, "capturable", *(f"{k}={_short(v)}" for k, v in given.items())]
                )
                found[name] = Case(kind, given, "capturable")
        for how in [
            h for h in ("forloop", "foreach", "fused") if h in ("forloop", *info.supported_impls)
        ]:
            rate = {"lr": 0.01}
            if info.supports_param_groups:
                found[f"{label}.{how}.groups"] = Case(kind, rate, how, groups=True)
            for schedule in SCHEDULES:
                name = f"{label}.{how}.{schedule}"
                found[name] = Case(kind, rate, how, schedule=SCHEDULES[schedule])
            if kind.__name__ not in ("LBFGS", "SparseAdam", "Rprop"):
                found[f"{label}.{how}.tensor_lr"] = Case(kind, rate, how, tensor_rate=True)
    return found


SCHEDULES: dict[str, Callable[[Any], Any]] = {
    "step_lr": lambda o: torch.optim.lr_scheduler.StepLR(o, 2, 0.5),
    "cosine": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 10),
    "one_cycle": lambda o: torch.optim.lr_scheduler.OneCycleLR(
        o, 0.05, total_steps=10, cycle_momentum=False
    ),
}


def _short(value: Any) -> str:
    return f"{value}".replace(".", "_")


class _Run:
    """Parameters, their optimiser and what they hold after some steps."""

    def __init__(self, case: Case, backend: str | None, options: Any = None) -> None:
        self.case = case
        draw = torch.Generator().manual_seed(0)
        shapes = [(7, 5), (6, 3)] if case.kind.__name__ in ("Muon", "SparseAdam") else SHAPES
        values = [torch.randn(s, generator=draw) for s in shapes]
        self.leaves = [torch.nn.Parameter(v) for v in values]
        self.differentiable = case.implementation == "differentiable"
        self.parameters: list[torch.Tensor] = [*self.leaves]
        if self.differentiable:
            self.parameters = [p.clone() for p in self.leaves]
        given = dict(case.arguments)
        how = case.implementation
        if how in ("foreach", "fused", "differentiable"):
            given[how] = True
        elif how == "forloop" and case.kind.__name__ not in ("LBFGS", "Muon", "SparseAdam"):
            given["foreach"] = False
        elif how == "capturable" and backend is not None:
            given["capturable"] = True
        if given.get("capturable") and backend is None:
            del given["capturable"]
        if case.tensor_rate:
            given["lr"] = torch.tensor(0.01)
            if how == "foreach" and backend is not None and _capturable(case.kind):
                given["capturable"] = True
        groups: Any = self.parameters
        if case.groups:
            groups = [
                {"params": self.parameters[::2]},
                {"params": self.parameters[1::2], "lr": 0.003},
            ]
        self.make = lambda: case.kind(groups, **given)
        self.optimiser: Any = self.make()
        self.scheduler = case.schedule(self.optimiser) if case.schedule else None
        self.step = self.optimiser.step
        if backend is not None:
            self.step = torch.compile(self.optimiser.step, backend=backend, options=options)

    def gradients(self, number: int) -> None:
        draw = torch.Generator().manual_seed(100 + number)
        for p in self.parameters:
            g = torch.randn(p.shape, generator=draw)
            if self.case.kind.__name__ == "SparseAdam":
                g = (g * (torch.rand(p.shape[0], 1, generator=draw) < 0.5)).to_sparse(1)
            p.grad = g

    def closure(self) -> torch.Tensor:
        self.optimiser.zero_grad()
        loss = sum((((p - 1) ** 2).sum() for p in self.parameters), torch.zeros(()))
        loss.backward()
        return loss

    def run(self) -> Any:
        """The parameters after each step, and the state after the last."""
        seen: list[Any] = []
        for number in range(STEPS):
            if number == LOADED and not self.differentiable:
                self.optimiser.load_state_dict(copy.deepcopy(self.optimiser.state_dict()))
            if self.case.kind is torch.optim.LBFGS:
                self.step(self.closure)
            else:
                self.gradients(number)
                self.step()
            if self.scheduler is not None:
                self.scheduler.step()
            seen.append([p.detach().clone() for p in self.parameters])
        state = [{k: v for k, v in s.items()} for s in self.optimiser.state.values()]
        if self.differentiable:
            loss = sum((p.sin().sum() for p in self.parameters), torch.zeros(()))
            seen.append(torch.autograd.grad(loss, self.leaves))
        return seen, state


def run(case: Case, backend: str, options: Any = None) -> str:
    """What is wrong with the backend's steps; "" where they are eager's."""
    eager = (
        copy.deepcopy(_Run(case, None).run())
        if case.implementation != "differentiable"
        else _Run(case, None).run()
    )
    torch._dynamo.reset()
    try:
        ours = _Run(case, backend, options).run()
    except Exception as error:
        return f"error: {type(error).__name__}: {str(error).strip()[:300]}"
    try:
        torch.testing.assert_close(_plain(ours), _plain(eager), rtol=1e-4, atol=1e-5)
    except AssertionError as error:
        return f"wrong: {' '.join(str(error).split())[:300]}"
    return ""


def _capturable(kind: Any) -> bool:
    return "capturable" in inspect.signature(kind.__init__).parameters


def _plain(tree: Any) -> Any:
    def leaf(t: Any) -> Any:
        if isinstance(t, torch.Tensor):
            return t.detach().to(torch.float64).to_dense()
        return torch.tensor(float(t), dtype=torch.float64) if isinstance(t, (int, float)) else t

    return torch.utils._pytree.tree_map(leaf, tree)
