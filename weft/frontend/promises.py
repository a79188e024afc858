"""Sizes that a caller of weft.compile promises to keep to: free from the first call on.

promises = Promises({"x": {0: (1, 4096)}, "state": [{1: Dim("length", max=64)}, None]})
with promises.made(fn, args, kwargs):     # WeftError for a size outside of its range
    compile(fn, *args, **kwargs)          # Dynamo leaves these sizes free
hold(graph, examples, names)              # WeftError where the program takes only some of them
"""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import inspect
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch

from weft.core.errors import WeftError, choice
from weft.frontend.capture import Name
from weft.frontend.extents import MOST, OPEN

Range = tuple[int, int]


MARKS = ("_dynamo_weak_dynamic_indices", "_has_dynamo_dim_marking")  # what marking a tensor sets
# What is promised of the tensors of the call that Dynamo may compile now, by their id.
MARKED: ContextVar[Mapping[int, Mapping[int, Range]]] = ContextVar("marked")


@dataclass(frozen=True)
class Promises:
    """What is promised of each argument, by its name in Python."""

    ranges: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @contextmanager
    def made(
        self, fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any], free: bool
    ) -> Generator[None, None, None]:
        """While Dynamo may compile for these arguments: it is told which sizes to leave free."""
        marked: dict[int, dict[int, Range]] = {}
        tensors = [*self._tensors(fn, args, kwargs)] if self.ranges else []
        before = [(vars(x), name, copy(vars(x).get(name))) for x, _, _ in tensors for name in MARKS]
        for x, d, (low, high) in tensors:
            if free and x.shape[d] >= OPEN[0] and high > max(low, OPEN[0]):
                torch._dynamo.maybe_mark_dynamic(x, d)
                marked.setdefault(id(x), {})[d] = low, high
        token = MARKED.set(marked)
        try:
            yield
        finally:
            MARKED.reset(token)
            for attributes, name, value in before:
                attributes.pop(name, None)
                attributes.update({name: value} if value is not None else {})

    def _tensors(self, fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Found:
        signature = inspect.signature(fn.forward if isinstance(fn, torch.nn.Module) else fn)
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError:  # the call itself says so
            return
        more = [p.name for p in signature.parameters.values() if p.kind == p.VAR_KEYWORD]
        given |= given.get(more[0], {}) if more else {}
        for name, promise in self.ranges.items():
            if not more:
                choice("argument of sizes", name, signature.parameters)
            yield from _promised(name, given.get(name), promise)


Found = Iterator[tuple[torch.Tensor, int, Range]]  # of each promise its tensor and dimension


def _promised(name: str, value: Any, promise: Any) -> Found:
    """What is promised of an argument: ranges by dimension, or that of what it holds each."""
    if value is None or not promise:
        return
    if not isinstance(promise, Mapping | list | tuple):
        raise WeftError(f"sizes: {promise!r} is no promise of {name}, such as {{0: (1, 4096)}}")
    pairs = promise.items() if isinstance(promise, Mapping) else enumerate(promise)
    for key, given in pairs:
        if not isinstance(value, torch.Tensor):
            try:
                inner = value[key]
            except (LookupError, TypeError):
                raise WeftError(f"sizes: {name} has no {key!r}") from None
            yield from _promised(f"{name}[{key!r}]", inner, given)
            continue
        if not isinstance(key, int) or not -value.ndim <= key < value.ndim:
            raise WeftError(f"sizes: {name} of {value.ndim} dimensions has no {key!r}")
        d, ends = key % value.ndim, _ends(given)
        if ends is not None and not ends[0] <= value.shape[d] <= ends[1]:
            told = f"dimension {d} of {name} is {value.shape[d]}, and {_show(ends)} is promised"
            raise WeftError(f"{told}: pass such sizes, or have sizes= promise more")
        if ends is not None:
            yield value, d, ends


def _ends(given: Any) -> Range | None:
    """The least and the greatest size of (1, 4096), (1, None) or a torch.export.Dim."""
    if given is None or getattr(getattr(given, "type", None), "name", "") == "STATIC":
        return None
    is_dim = hasattr(given, "min") and not hasattr(given, "root")  # one that is no multiple
    pair = (given.min, given.max) if is_dim else given
    low, high = pair if isinstance(pair, tuple) and len(pair) == 2 else (1, 0)
    low, high = int(low or 0), MOST if high is None else int(min(high, MOST))
    if not 0 <= low <= high:
        raise WeftError(f"sizes: {given!r} is neither a range, such as (1, 4096), nor a Dim")
    return low, high


def _show(ends: Range) -> str:
    return f"{ends[0]}..{ends[1]}" if ends[1] < MOST else f"at least {ends[0]}"


def hold(graph: torch.fx.GraphModule, examples: Sequence[Any], names: Sequence[Name]) -> None:
    """Guard that what was promised is so; WeftError where the program takes less."""
    marked = MARKED.get({})
    inputs = graph.graph.find_nodes(op="placeholder") if marked else []
    for placeholder, x, name in zip(inputs, examples, names, strict=False):
        for d, ends in marked.get(id(x), {}).items():
            size = placeholder.meta["example_value"].shape[d]
            if isinstance(size, torch.SymInt):
                _hold(size.node, ends, f"dimension {d} of {name.label}")


def _hold(node: Any, ends: Range, what: str) -> None:
    """Guards that keep a size to a range, where the trace has left it free in all of that."""
    env, symbol, known = node.shape_env, node._expr, node.expr
    low, high = max(ends[0], OPEN[0]), ends[1]  # 0 and 1 have programs of their own
    bounds = env.bound_sympy(known)
    if not known.free_symbols:
        told = f"fixes it to {known}"
    elif bounds.lower > low or bounds.upper < high:
        told = f"takes {max(bounds.lower, low)}..{min(bounds.upper, high)}"
    else:
        env.evaluate_expr(sympy.Ge(known, low))
        env.evaluate_expr(sympy.Le(known, high))
        return
    at_ends = ((g, g.expr.xreplace({symbol: sympy.Integer(n)})) for g in env.guards for n in ends)
    narrow = next((g for g, holds in at_ends if holds == sympy.false), None)
    where = getattr(narrow and narrow.sloc, "maybe_user_loc", None)
    message = f"{what} is promised to be {_show(ends)}, but the program {told}"
    raise WeftError(f"{message}: change that, or promise what it takes (sizes=)", where)
