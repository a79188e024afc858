"""PyTorch's own samples of its optimisers (optim_db), stepped through torch.compile.

for name, case in cases().items():
    problem = run(case, "weft")           # "" or a sentence
Compared are the parameters after each step and the state after the last; in between, the state is
saved and loaded, and schedules change the learning rate.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.optim import lr_scheduler
from torch.utils._pytree import tree_map

SHAPES = ((7, 5), (3, 1, 4), ())
MATRICES = ((7, 5), (3, 6))  # for what takes no others
STEPS = 5
LOADED = 3  # the step before which the state is loaded
SCHEDULES: dict[str, Callable[[Any], Any]] = {
    "step_lr": lambda o: lr_scheduler.StepLR(o, 2, 0.5),
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, 10),
    "one_cycle": lambda o: lr_scheduler.OneCycleLR(o, 0.05, total_steps=10, cycle_momentum=False),
}


@dataclass(frozen=True)
class Case:
    """One optimiser: its arguments, and which of torch's implementations.

    groups       half of the parameters have a learning rate of their own
    schedule     one of SCHEDULES, or none
    tensor_rate  the learning rate is a tensor
    """

    kind: Any
    arguments: dict[str, Any]
    implementation: str
    groups: bool = False
    schedule: str = ""
    tensor_rate: bool = False

    def takes(self, name: str) -> bool:
        return name in inspect.signature(self.kind.__init__).parameters

    def options(self, compiled: bool) -> dict[str, Any]:
        """The arguments of the optimiser; eager's own have no `capturable`, which wants a GPU."""
        given, how = dict(self.arguments), self.implementation
        if how in ("foreach", "fused", "differentiable"):
            given[how] = True
        elif how == "forloop" and self.takes("foreach"):
            given["foreach"] = False
        if self.tensor_rate:
            given["lr"] = torch.tensor(0.01)
            if not compiled:
                given["foreach"] = False
        capturable = how == "capturable" or (self.tensor_rate and how == "foreach")
        if compiled and capturable and self.takes("capturable"):
            given["capturable"] = True
        elif not compiled:
            given.pop("capturable", None)
        return (
            given if self.takes("foreach") else {k: v for k, v in given.items() if k != "foreach"}
        )


@cache
def cases() -> dict[str, Case]:
    """All variants of all optimisers, by name. The import takes seconds."""
    from torch.testing._internal.common_optimizers import optim_db

    found: dict[str, Case] = {}
    for info in optim_db:
        kind, label = info.optim_cls, info.optim_cls.__name__
        ways = ["forloop", *info.supported_impls]
        for variant in info.optim_inputs_func(device="cpu"):
            given = {k: v for k, v in variant.kwargs.items() if k not in ("foreach", "fused")}
            words = [f"{k}={v}".replace(".", "_") for k, v in given.items()]
            for how in [*ways, *["capturable"] * info.has_capturable_arg]:
                found[".".join([label, how, *words])] = Case(kind, given, how)
        for how in [w for w in ways if w != "differentiable"]:
            case = Case(kind, {"lr": 0.01}, how)
            if info.supports_param_groups:
                found[f"{label}.{how}.groups"] = Case(kind, case.arguments, how, groups=True)
            for name in SCHEDULES:
                found[f"{label}.{how}.{name}"] = Case(kind, case.arguments, how, schedule=name)
            if case.takes("foreach") and label != "Rprop":
                found[f"{label}.{how}.tensor_lr"] = Case(
                    kind, case.arguments, how, tensor_rate=True
                )
    return found


class _Training:
    """Parameters and their optimiser, whose step is called by itself or through a compiler."""

    def __init__(self, case: Case, compiler: Callable[[Any], Any] | None = None) -> None:
        self.case = case
        few = case.kind in (torch.optim.Muon, torch.optim.SparseAdam)
        draw = torch.Generator().manual_seed(0)
        shapes = MATRICES if few else SHAPES
        self.leaves = [torch.nn.Parameter(torch.randn(s, generator=draw)) for s in shapes]
        self.differentiable = case.implementation == "differentiable"
        self.parameters: list[torch.Tensor] = [*self.leaves]
        if self.differentiable:
            self.parameters = [p.clone() for p in self.leaves]
        groups: Any = self.parameters
        if case.groups:
            groups = [{"params": groups[::2]}, {"params": groups[1::2], "lr": 0.003}]
        self.optimiser = case.kind(groups, **case.options(compiler is not None))
        self.scheduler = SCHEDULES[case.schedule](self.optimiser) if case.schedule else None
        self.step = (compiler or (lambda f: f))(self.optimiser.step)

    def gradients(self, number: int) -> None:
        draw = torch.Generator().manual_seed(100 + number)
        for p in self.parameters:
            g = torch.randn(p.shape, generator=draw)
            if self.case.kind is torch.optim.SparseAdam:
                g = (g * (torch.rand(p.shape[0], 1, generator=draw) < 0.5)).to_sparse(1)
            p.grad = g

    def closure(self) -> torch.Tensor:
        self.optimiser.zero_grad()
        loss = sum((((p - 1) ** 2).sum() for p in self.parameters), torch.zeros(()))
        loss.backward()
        return loss

    def run(self) -> Any:
        """The parameters after each step, the gradients through the steps, and the state."""
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
        if self.differentiable:
            loss = sum((p.sin().sum() for p in self.parameters), torch.zeros(()))
            seen.append(torch.autograd.grad(loss, self.leaves))
        return tree_map(_plain, (seen, [dict(s) for s in self.optimiser.state.values()]))


def _plain(leaf: Any) -> Any:
    """A tensor or number as a dense tensor of float64: eager counts some steps in Python."""
    if isinstance(leaf, torch.Tensor):
        return leaf.detach().to(torch.float64).to_dense().clone()
    return torch.tensor(float(leaf), dtype=torch.float64) if isinstance(leaf, int | float) else leaf


def run(case: Case, backend: str, options: Any = None) -> str:
    """What is wrong with the backend's steps; "" where they are eager's."""
    try:
        eager = _Training(case).run()
    except RuntimeError as error:  # such as a state written in place that a gradient needs
        return f"skip: eager raises {type(error).__name__}"
    torch._dynamo.reset()
    try:
        compiler = lambda f: torch.compile(f, backend=backend, options=options)  # noqa: E731
        ours = _Training(case, compiler).run()
    except Exception as error:
        return f"error: {type(error).__name__}: {str(error).strip()[:300]}"
    try:
        torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-5)
    except AssertionError as error:
        return f"wrong: {' '.join(str(error).split())[:300]}"
    return ""
