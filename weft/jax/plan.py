"""A jaxpr as a list of calls of rows: calls inlined, loops of known length unrolled.

plan = planned(closed_jaxpr)
plan.run([x, w])             # tensors to tensors, by torch's functions
What JAX can compute beforehand, such as the counter of a loop, never becomes a call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from weft.core.errors import UnsupportedOpError
from weft.frontend.lines import innermost_line
from weft.jax import folds, indexing, linear, pointwise, products, shapes, windows
from weft.jax.library import evaluated, expanded, held, known_tensor, physical, stack_of
from weft.jax.rows import MISSING, ROWS, Out
from weft.jax.steps import Branch, Loop, Plan, Scan, Step, kept

FAMILIES = folds, indexing, linear, pointwise, products, shapes, windows  # their rows are in ROWS
SMALL = 64  # most elements of a value that is computed beforehand, if it is larger than operands
UNROLLED = 64  # most iterations of a loop that is unrolled, where JAX knows how many there are
INLINED = {
    **dict.fromkeys(("jit", "pjit", "closed_call", "remat2", "checkpoint", "composite"), "jaxpr"),
    "custom_vmap_call": "call",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
}
RULES = {*"custom_jvp_call custom_vjp_call custom_vjp_call_jaxpr".split()}  # of gradients
SAME = {*"random_wrap random_unwrap copy optimization_barrier device_put pvary name".split()}


class Slot(NamedTuple):
    """A value that a call computes, or an input."""

    number: int
    aval: Any


class Known(NamedTuple):
    """A value that JAX has computed."""

    value: Any


Value = Slot | Known


def planned(closed: Any) -> Plan:
    """The plan of a closed jaxpr; UnsupportedOpError for a primitive without a row."""
    builder = Builder()
    given = [builder.input(physical(v.aval)) for v in closed.jaxpr.invars]
    consts = [Known(c) for c in closed.consts]
    builder.close(builder.evaluate(closed.jaxpr, consts, given))
    return builder.plan


def out_of(aval: Any, where: str | None) -> Out:
    return Out(tuple(aval.shape), held(aval.dtype, where), np.dtype(aval.dtype).name)


class Builder:
    """Walks a jaxpr and writes a plan."""

    def __init__(self) -> None:
        self.plan = Plan()
        self.count = 0
        self.constants: dict[int, tuple[Slot, Known]] = {}  # by the id of a value that is kept
        self.stack = ""  # the lines that calls come from
        self.inside = False  # a primitive that others define: calls come from its line

    def number(self) -> int:
        self.count += 1
        return self.count

    def input(self, aval: Any) -> Slot:
        found = Slot(self.number(), aval)
        self.plan.inputs.append(found.number)
        return found

    def slot(self, value: Value) -> Slot:
        """A value that a call can read: a known one becomes a constant."""
        if isinstance(value, Slot):
            return value
        if id(value.value) in self.constants:
            return self.constants[id(value.value)][0]
        tensor, shape = known_tensor(value.value), known_aval(value.value)
        found = Slot(self.number(), shape)
        if tensor.dim():
            self.plan.constants[found.number] = tensor
            self.constants[id(value.value)] = found, value
        else:  # part of the program, not an operand
            full = partial(torch.full, (), tensor.item(), dtype=tensor.dtype)
            out = Out((), tensor.dtype, np.dtype(shape.dtype).name)
            self.plan.steps.append(Step("full", full, (), (found.number,), (out,), self.stack))
        return found

    def close(self, results: Sequence[Value]) -> None:
        """Makes them the results of the plan: what no input reaches is a caller's own copy."""
        plan, slots = self.plan, [self.slot(r) for r in results]
        reached = {*plan.inputs}
        for step in plan.steps:
            reached.update(step.outputs if reached.intersection(step.inputs) else ())
        for slot in slots:
            if slot.number not in reached:
                slot = self.slot(self.step("copy", torch.clone, [slot], [slot.aval])[0])
            plan.outputs.append(slot.number)

    @property
    def where(self) -> str | None:
        """The line that calls come from."""
        return innermost_line(self.stack)

    def step(
        self, name: str, run: Callable[..., Any], inputs: Sequence[Value], avals: Sequence[Any]
    ) -> list[Value]:
        """Adds a call; its results."""
        slots = [self.slot(v) for v in inputs]
        results = [Slot(self.number(), physical(a)) for a in avals]
        outs = tuple(out_of(r.aval, self.where) for r in results)
        numbers = tuple(s.number for s in slots), tuple(r.number for r in results)
        self.plan.steps.append(Step(name, run, *numbers, outs, self.stack))
        return [*results]

    def evaluate(self, jaxpr: Any, consts: Sequence[Value], args: Sequence[Value]) -> list[Value]:
        values: dict[Any, Value] = {}
        values.update(zip(jaxpr.constvars, consts, strict=True))
        values.update(zip(jaxpr.invars, args, strict=True))

        def read(atom: Any) -> Value:
            return Known(atom.val) if hasattr(atom, "val") else values[atom]

        outer = self.stack
        for eqn in jaxpr.eqns:
            self.stack = outer if self.inside else stack_of(eqn) or outer
            found = self.equation(eqn, [read(v) for v in eqn.invars])
            self.stack = outer
            values.update(zip(eqn.outvars, found, strict=True))
        return [read(v) for v in jaxpr.outvars]

    def closed(self, closed: Any, args: Sequence[Value]) -> list[Value]:
        jaxpr = getattr(closed, "jaxpr", closed)
        return self.evaluate(jaxpr, [Known(c) for c in getattr(closed, "consts", ())], args)

    def equation(self, eqn: Any, inputs: list[Value]) -> list[Value]:
        name = eqn.primitive.name
        if name in INLINED:
            self.plan.rules = self.plan.rules or name in RULES
            return self.closed(eqn.params[INLINED[name]], inputs)
        if name in SAME:
            return inputs
        if eqn.effects:
            raise UnsupportedOpError(f"JAX's primitive {name} has effects", self.where)
        known = all(isinstance(v, Known) for v in inputs)
        if known and (is_small(eqn) or name not in ROWS):
            return [Known(v) for v in evaluated(eqn, [v.value for v in inputs])]  # type: ignore[union-attr]
        if name in CONTROL:
            return CONTROL[name](self, eqn, inputs)
        if name in ROWS:
            return self.call(eqn, inputs)
        inner = expanded(eqn, [aval_of(v) for v in inputs])
        if inner is None:
            told = f"JAX's primitive {name} has no row in weft/jax"
            raise UnsupportedOpError(told, self.where)
        outer, self.inside = self.inside, True
        results = self.closed(inner, inputs)
        self.inside = outer
        return results

    def call(self, eqn: Any, inputs: list[Value]) -> list[Value]:
        where, params, name = self.where, dict(eqn.params), eqn.primitive.name
        for key in ("jaxpr", "update_jaxpr"):
            if params.get(key) is not None:
                consts = params.get("consts", params.get("update_consts", ()))
                params[key] = Combine(params[key], consts)
        ranks = [len(physical(v.aval).shape) for v in eqn.invars]
        missing = MISSING[name](params, ranks) if name in MISSING else ""
        if missing:
            raise UnsupportedOpError(f"weft.from_jax has no {missing}", where)
        outs = [out_of(physical(v.aval), where) for v in eqn.outvars]
        names = [np.dtype(physical(v.aval).dtype).name for v in eqn.invars]
        run = partial(ROWS[name], **params, out=outs[0], names=names)
        return self.step(name, run, inputs, [v.aval for v in eqn.outvars])


class Combine:
    """How two values become one: a jaxpr of scalars, over whole tensors."""

    def __init__(self, jaxpr: Any, consts: Sequence[Any]) -> None:
        inner = getattr(jaxpr, "jaxpr", jaxpr)
        self.rank = len(inner.outvars)
        one = inner.eqns[0] if len(inner.eqns) == 1 else None
        ends = [*inner.invars], [*inner.outvars]
        self.is_second = [*inner.outvars] == [*inner.invars[1:2]]
        self.name = ""  # of the primitive, where it is just one
        if one is not None and ([*one.invars], [*one.outvars]) == ends:
            self.name = one.primitive.name
        builder = Builder()
        given = [builder.input(v.aval) for v in inner.invars]
        held = [Known(c) for c in getattr(jaxpr, "consts", consts)]
        results = builder.evaluate(inner, held, given)
        builder.plan.outputs = [builder.slot(r).number for r in results]
        self.plan = builder.plan

    def __call__(self, *values: torch.Tensor) -> list[torch.Tensor]:
        return self.plan.run(values)


def known_aval(value: Any) -> Any:
    base = getattr(value, "_base_array", value)
    array = np.asarray(base)
    return np.broadcast_to(np.zeros((), array.dtype), array.shape)


def aval_of(value: Value) -> Any:
    return value.aval if isinstance(value, Slot) else known_aval(value.value)


def is_small(eqn: Any) -> bool:
    """Whether what it computes is worth keeping: few elements, or no more than it reads."""
    made = sum(int(np.prod(physical(v.aval).shape)) for v in eqn.outvars)
    read = sum(int(np.prod(physical(v.aval).shape)) for v in eqn.invars)
    return made <= max(SMALL, read)


# --- control flow ---------------------------------------------------------------------------------


def _linear_solve(b: Builder, eqn: Any, inputs: list[Value]) -> list[Value]:
    lengths, jaxprs = eqn.params["const_lengths"], eqn.params["jaxprs"]
    before = lengths.matvec + lengths.vecmat
    consts = inputs[before : before + lengths.solve]
    return b.closed(jaxprs.solve, [*consts, *inputs[sum(lengths) :]])


def _scan(b: Builder, eqn: Any, inputs: list[Value]) -> list[Value]:
    """Unrolled where it is short: the body once for each slice."""
    p = eqn.params
    consts, rest = inputs[: p["num_consts"]], inputs[p["num_consts"] :]
    carry, xs = rest[: p["num_carry"]], rest[p["num_carry"] :]
    order = range(p["length"])
    order = order[::-1] if p["reverse"] else order
    if len(order) > UNROLLED:
        run = Scan(planned(p["jaxpr"]), len(consts), len(carry), order)
        return b.step("scan", run, inputs, [v.aval for v in eqn.outvars])
    slices = [b.slot(x) for x in xs]
    of_slices = p["jaxpr"].jaxpr.invars[len(consts) + len(carry) :]
    stacked: list[list[Value]] = [[] for _ in eqn.outvars[p["num_carry"] :]]
    for t in order:
        parts = [
            b.step("select", partial(torch.select, dim=0, index=t), [x], [v.aval])[0]
            for x, v in zip(slices, of_slices, strict=True)
        ]
        found = b.closed(p["jaxpr"], [*consts, *carry, *parts])
        carry = found[: p["num_carry"]]
        for made, value in zip(stacked, found[p["num_carry"] :], strict=True):
            made.append(value)
    outs: list[Value] = []
    for made, v in zip(stacked, eqn.outvars[p["num_carry"] :], strict=True):
        ordered = made[::-1] if p["reverse"] else made
        shape, dtype = tuple(physical(v.aval).shape), held(physical(v.aval).dtype, b.where)
        stack = stacked_of if ordered else partial(torch.zeros, shape, dtype=dtype)
        outs += b.step("stack", stack, ordered, [v.aval])
    return [*carry, *outs]


def stacked_of(*parts: torch.Tensor) -> torch.Tensor:
    return torch.stack(parts)


def _while(b: Builder, eqn: Any, inputs: list[Value]) -> list[Value]:
    """Unrolled where JAX knows the condition and it is short; else a loop that reads it."""
    p = eqn.params
    n, m = p["cond_nconsts"], p["body_nconsts"]
    of_cond, of_body, carry = inputs[:n], inputs[n : n + m], inputs[n + m :]
    before = len(b.plan.steps)
    for _ in range(UNROLLED + 1):
        probe = Builder()
        probe.count = b.count
        (runs,) = probe.closed(p["cond_jaxpr"], [*of_cond, *carry])
        if isinstance(runs, Slot):
            break
        pred = np.asarray(runs.value)
        if not pred.any():
            return carry
        after = b.closed(p["body_jaxpr"], [*of_body, *carry])
        if not pred.all():
            outs = zip(after, carry, eqn.outvars, strict=True)
            after = [b.step("kept", kept, [runs, *xs], [v.aval])[0] for *xs, v in outs]
        carry = after
    del b.plan.steps[before:]
    loop = Loop(planned(p["body_jaxpr"]), planned(p["cond_jaxpr"]), n, m)
    return b.step("while", loop, inputs, [v.aval for v in eqn.outvars])


def _cond(b: Builder, eqn: Any, inputs: list[Value]) -> list[Value]:
    """One branch where the index is known; else all of them, of which one is selected.

    A branch with a loop that might not end runs only where it is chosen.
    """
    branches, (index, *args) = eqn.params["branches"], inputs
    if isinstance(index, Known):
        chosen = min(max(int(np.asarray(index.value)), 0), len(branches) - 1)
        return b.closed(branches[chosen], args)
    plans = [planned(branch) for branch in branches]
    if any(plan.loops() for plan in plans):
        return b.step("cond", Branch(plans), [index, *args], [v.aval for v in eqn.outvars])
    b.plan.rules = True  # what is not selected has a gradient in torch: 0 times NaN
    results = [b.closed(branch, args) for branch in branches]
    out: list[Value] = []
    for values, v in zip(zip(*results, strict=True), eqn.outvars, strict=True):
        out += b.step("cond", selected, [index, *values], [v.aval])
    return out


def selected(index: torch.Tensor, *values: torch.Tensor) -> torch.Tensor:
    found = values[-1]
    for i in reversed(range(len(values) - 1)):
        found = torch.where(index <= i, values[i], found)
    return found


CONTROL: dict[str, Callable[[Builder, Any, list[Value]], list[Value]]] = {
    "custom_linear_solve": _linear_solve,
    "scan": _scan,
    "while": _while,
    "cond": _cond,
}
