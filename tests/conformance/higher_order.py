"""PyTorch's own samples of operators that take functions (hop_db), through torch.compile.

for name, case in cases().items():
    problem = run(case, "weft")           # "" or a sentence
Compared are results, and gradients where the sample wants some.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from tests.conformance.cases import fresh

TOLERANCE: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-5}


@dataclass(frozen=True)
class Case:
    """A sample of an operator of hop_db, with or without gradients."""

    info: Any
    gradients: bool
    number: int

    def given(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        torch.manual_seed(0)
        sample = samples(self.info, self.gradients)[self.number]
        return fresh(((sample.input, *sample.args), sample.kwargs))


def samples(info: Any, gradients: bool) -> list[Any]:
    return list(info.sample_inputs("cpu", torch.float32, requires_grad=gradients))


@cache
def cases() -> dict[str, Case]:
    """All samples of all operators, by name. The import takes seconds."""
    from torch.testing._internal.hop_db import hop_db

    found: dict[str, Case] = {}
    for info in hop_db:
        for gradients in (False, True):
            for number, _ in enumerate(samples(info, gradients)):
                kind = "gradients" if gradients else "results"
                name = f"{info.name}.{info.variant_test_name}.{kind}.{number}"
                found[name] = Case(info, gradients, number)
    return found


def run(case: Case, backend: str, options: Any = None) -> str:
    """What is wrong with the backend's results; "" where they are eager's."""

    def through(fn: Callable[..., Any]) -> Any:
        return torch.compile(fn, backend=backend, options=options, fullgraph=True, dynamic=False)

    torch.compiler.reset()
    try:
        eager = outcome(case, case.info.op)
    except Exception as error:
        return f"skip: eager raises {type(error).__name__}"
    try:
        ours = outcome(case, through(case.info.op))
    except Exception as error:
        return f"error: {type(error).__name__}: {str(error).strip()[:300]}"
    try:
        torch.testing.assert_close(ours, eager, **TOLERANCE)
    except AssertionError as error:
        return f"wrong: {str(error).strip()[:300]}"
    return ""


def outcome(case: Case, fn: Callable[..., Any]) -> list[Any]:
    """The tensors it gives, and the gradients of their sum by what wants some; 0 for none."""
    args, kwargs = case.given()
    results = [t for t in tree_leaves(fn(*args, **kwargs)) if isinstance(t, torch.Tensor)]
    by = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor) and t.requires_grad]
    of = [t for t in results if t.requires_grad]
    if not (of and by):
        return results
    found = torch.autograd.grad(of, by, [torch.ones_like(t) for t in of], allow_unused=True)
    return [*results, *(torch.zeros(()) if g is None else g for g in found)]
