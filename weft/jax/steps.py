"""Plans: calls of torch's functions in order, as what runs, and as a graph for weft to compile.

plan.run([x, w])             # tensors to tensors, one call after the other
plan.graph(["x", "w"])       # a torch.fx.GraphModule: a node for each call, with the user's lines
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import getitem
from typing import Any, NamedTuple

import torch

from weft.core.errors import CaptureError
from weft.jax.library import WIDER
from weft.jax.rows import Out

Backend = Callable[[torch.fx.GraphModule, Sequence[torch.Tensor]], Callable[..., Any]]


class Step(NamedTuple):
    """A call of a row; `stack` has the lines that it comes from."""

    name: str
    run: Callable[..., Any]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    results: tuple[Out, ...]
    stack: str = ""

    def __call__(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        found = self.run(*tensors)
        found = found if isinstance(found, list | tuple) else (found,)
        return [finished(*pair) for pair in zip(found, self.results, strict=True)]


@dataclass
class Plan:
    """Calls in order over numbered values."""

    inputs: list[int] = field(default_factory=list)
    constants: dict[int, torch.Tensor] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    rules: bool = False  # calls stand for what JAX differentiates in another way

    def run(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        values = {**self.constants, **dict(zip(self.inputs, tensors, strict=True))}
        for step in self.steps:
            found = step(*[values[i] for i in step.inputs])
            values.update(zip(step.outputs, found, strict=True))
        return [values[i] for i in self.outputs]

    def inner(self) -> list[Plan]:
        """Plans that calls run: bodies of loops that are not unrolled, branches."""
        parts = [s.run for s in self.steps if isinstance(s.run, Body | Branch)]
        return [plan for part in parts for plan in part.plans]

    def loops(self) -> list[Body]:
        """Loops that are not unrolled, also in branches and in other loops."""
        own = [step.run for step in self.steps if isinstance(step.run, Body)]
        return own + [loop for plan in self.inner() for loop in plan.loops()]

    def has_rules(self) -> bool:
        return self.rules or any(plan.has_rules() for plan in self.inner())

    def graph(self, names: Sequence[str]) -> torch.fx.GraphModule:
        """The same as a graph of one node for each call, over inputs of these names."""
        graph, root, values = torch.fx.Graph(), torch.nn.Module(), dict[int, Any]()
        for i, name in zip(self.inputs, names, strict=True):
            values[i] = graph.placeholder(name)
        for i, tensor in self.constants.items():
            root.register_buffer(f"constant{i}", tensor)
            values[i] = graph.get_attr(f"constant{i}")
        for step in self.steps:
            node = graph.call_function(as_function(step), tuple(values[i] for i in step.inputs))
            node.stack_trace = step.stack
            several = len(step.outputs) > 1
            for at, i in enumerate(step.outputs):
                values[i] = graph.call_function(getitem, (node, at)) if several else node
        graph.output(tuple(values[i] for i in self.outputs))
        return torch.fx.GraphModule(root, graph)


def as_function(step: Step) -> Callable[..., Any]:
    """A call as a function, which a graph prints by its name."""

    def call(*tensors: torch.Tensor) -> Any:
        found = step(*tensors)
        return found if len(found) > 1 else found[0]

    call.__name__ = call.__qualname__ = re.sub(r"\W", "_", step.name)
    return call


def finished(value: torch.Tensor, out: Out) -> torch.Tensor:
    """The value in the dtype that JAX gives it; unsigned integers wrap around."""
    value = value if value.dtype == out.dtype else value.to(out.dtype)
    return value & WIDER[out.name][1] if out.name in WIDER else value


@dataclass
class Body:
    """A plan that runs again and again, in Python; a back end, where there is one, compiles it."""

    body: Plan
    backend: Backend | None = field(default=None, kw_only=True)
    compiled: Callable[..., Any] | None = field(default=None, kw_only=True)

    @property
    def plans(self) -> list[Plan]:
        return [self.body]

    def refuse_tracers(self, what: str, values: Sequence[torch.Tensor]) -> None:
        """CaptureError for values that stand for others: a tracer cuts the loop out."""
        if any(type(x) not in (torch.Tensor, torch.nn.Parameter) for x in values):
            raise CaptureError(f"{what} runs in Python, its body compiled")

    def step(self, values: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        if self.backend is None:
            return self.body.run(values)
        if self.compiled is None:
            names = [f"x{i}" for i in range(len(values))]
            self.compiled = self.backend(self.body.graph(names), values)
        return self.compiled(*values)


@dataclass
class Loop(Body):
    """A loop that reads its condition.

    The values are those that the condition reads alone, those that the body does, and the rest.
    """

    cond: Plan
    of_cond: int
    of_body: int

    def __call__(self, *values: torch.Tensor) -> list[torch.Tensor]:
        self.refuse_tracers("a loop that reads its condition", values)
        n, m = self.of_cond, self.of_cond + self.of_body
        of_cond, of_body, carry = values[:n], values[n:m], [*values[m:]]
        while bool((pred := self.cond.run([*of_cond, *carry])[0]).any()):
            after = self.step([*of_body, *carry])
            carry = [kept(pred, *both) for both in zip(after, carry, strict=True)]
        return carry


@dataclass
class Scan(Body):
    """A long loop over slices: constants, what it carries on, and what it takes slices of."""

    consts: int
    carried: int
    order: range

    def __call__(self, *values: torch.Tensor) -> list[torch.Tensor]:
        self.refuse_tracers(f"a scan of {len(self.order)} iterations", values)
        n, m = self.consts, self.consts + self.carried
        consts, carry, xs = values[:n], values[n:m], values[m:]
        made: list[Sequence[torch.Tensor]] = []
        for t in self.order:
            found = self.step([*consts, *carry, *(x[t] for x in xs)])
            carry = found[: self.carried]
            made.append(found[self.carried :])
        made = made if self.order.step > 0 else made[::-1]
        return [*carry, *map(torch.stack, zip(*made, strict=True))]


@dataclass
class Branch:
    """One of several plans, which a number chooses: read in Python."""

    plans: list[Plan]

    def __call__(self, index: torch.Tensor, *values: torch.Tensor) -> list[torch.Tensor]:
        return self.plans[min(max(int(index), 0), len(self.plans) - 1)].run(values)


def kept(pred: torch.Tensor, after: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
    """What a loop that vmap has made leaves: rows whose condition is off stay as they were."""
    shape = *pred.shape, *[1] * (after.dim() - pred.dim())
    return torch.where(pred.reshape(shape), after, before) if pred.dim() else after
