"""PyTorch's own samples of its modules (module_db) in training mode, through torch.compile.

for name, case in cases().items():
    problem = run(case, "weft")           # "" or a sentence
Compared are results, the gradients of inputs and parameters, and what buffers hold afterwards.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from tests.conformance.cases import differentiable, fresh, seeded
from tests.conformance.judge import compare
from tests.conformance.rounding import spread

WHAT = ("", "gradient, ", "buffer, ")


@dataclass(frozen=True)
class Case:
    """One module of module_db and the number of one of its samples."""

    info: Any
    number: int

    def made(self) -> tuple[torch.nn.Module, Any]:
        """The module and what it is called with."""
        torch.manual_seed(0)
        sample = samples(self.info)[self.number]
        module = self.info.module_cls(
            *sample.constructor_input.args, **sample.constructor_input.kwargs
        )
        given = (sample.forward_input.args, sample.forward_input.kwargs)
        if any(map(torch.nn.parameter.is_lazy, module.parameters())):
            args, kwargs = fresh(given)
            module(*args, **kwargs)
        return module.float().train(), given


def samples(info: Any) -> list[Any]:
    how: Any = {"dtype": torch.float32, "requires_grad": True, "training": True}
    return list(info.module_inputs_func(info, device="cpu", **how))


@cache
def cases() -> dict[str, Case]:
    """All samples of all modules, by name. The import takes seconds."""
    from torch.testing._internal.common_modules import module_db

    # which forbids to set flags such as allow_tf32, in all of this process
    flags = torch.backends.disable_global_flags.__globals__
    flags["__allow_nonbracketed_mutation_flag"] = True
    found: dict[str, Case] = {}
    for info in module_db:
        for number, sample in enumerate(samples(info)):
            if sample.forward_input is not None:
                found[f"{info.name}.{number}"] = Case(info, number)
    return found


def run(case: Case, backend: str, options: Any = None) -> str:
    """What is wrong with the backend's results; "" where they are eager's."""

    def through(module: torch.nn.Module) -> Any:
        return torch.compile(module, backend=backend, options=options, dynamic=False)

    module, given = case.made()
    try:
        eager = outcome(module, given)
    except Exception as error:  # what a backend does then is not compared
        return f"skip: eager raises {type(error).__name__}"
    double = copy.deepcopy(module).double(), fresh(given, _wider)
    try:
        exact = outcome(*double)
    except Exception:
        exact = (None, None, None)
    torch.compiler.reset()
    try:
        ours = outcome(module, given, through)
    except Exception as error:
        return f"error: {type(error).__name__}: {str(error).strip()[:300]}"
    return judged(ours, eager, exact, lambda: outcome(*double))


def judged(ours: Any, eager: Any, exact: Any, again: Callable[[], Any]) -> str:
    """The first difference that rounding does not explain."""
    problems = [*map(compare, ours, eager, exact)]
    if not any(problems) or exact[0] is None:
        return next((f"wrong: {w}{p}" for w, p in zip(WHAT, problems, strict=True) if p), "")
    moved = spread(again, exact)
    counts = [len(tree_leaves(part)) for part in exact]
    for i, what in enumerate(WHAT):
        own = moved[sum(counts[:i]) : sum(counts[: i + 1])]
        problem = problems[i] and compare(ours[i], eager[i], exact[i], own)
        if problem:
            return f"wrong: {what}{problem}"
    return ""


def _wider(t: torch.Tensor) -> torch.Tensor:
    return t.double() if t.is_floating_point() else t.clone()


def outcome(module: Any, given: Any, how: Callable[[Any], Any] = lambda m: m) -> Any:
    """Results, gradients of inputs and parameters, and the state afterwards."""
    module, (args, kwargs) = copy.deepcopy(module), fresh(given)
    torch.manual_seed(2)
    out = how(module)(*args, **kwargs)
    results = [t for t in tree_leaves(out) if differentiable(t)]
    leaves = [t for t in tree_leaves((args, kwargs)) if differentiable(t) and t.is_leaf]
    leaves += [*module.parameters()]
    plain, state = tree_map_only(torch.Tensor, torch.Tensor.detach, out), module.state_dict()
    if not results or not leaves:
        return plain, [], dict(state)
    weights = [
        torch.randn(t.shape, dtype=torch.float64, generator=seeded(i)).to(t.dtype)
        for i, t in enumerate(results)
    ]
    found = torch.autograd.grad(results, leaves, weights, allow_unused=True)
    return plain, list(found), dict(state)
