"""Sizes that a caller of weft.compile promises to keep to: free from the first call on.

promises = {"x": {0: (1, 4096)}, "state": [{1: Dim("length", max=64)}, None]}
with made(promises, True, fn, args, kwargs):    # WeftError for a size outside of its range
    compile(fn, *args, **kwargs)                # Dynamo leaves these sizes free
hold(graph, examples, names)                    # WeftError where the program takes only some
"""

# pyright: reportPrivateUsage=false

import inspect
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import sympy
import torch
from torch.utils._sympy.numbers import int_oo

from weft.core.errors import WeftError, choice
from weft.frontend.capture import Name
from weft.frontend.extents import MOST, OPEN, is_symbolic
from weft.frontend.parts import FX

Range = tuple[int, int]
Found = Iterator[tuple[torch.Tensor, int, Range]]  # of each promise its tensor and dimension

MARK, SEEN = "_dynamo_weak_dynamic_indices", "_has_dynamo_dim_marking"  # what marking sets
# What is promised of the tensors of the call that Dynamo may compile now, by their id.
MARKED: ContextVar[Mapping[int, Mapping[int, Range]]] = ContextVar("marked", default={})  # noqa: B039


@contextmanager
def made(
    promises: Mapping[str, Any], free: bool, fn: Any, args: Any, kwargs: Mapping[str, Any]
) -> Generator[None, None, None]:
    """While Dynamo may compile for these arguments: it is told which sizes to leave `free`."""
    marked: dict[int, dict[int, Range]] = {}
    own: list[tuple[torch.Tensor, int]] = []
    for x, d, (low, high) in [*_tensors(promises, fn, args, kwargs)] if promises else ():
        if free and x.shape[d] >= OPEN[0]:
            if d not in vars(x).get(MARK, ()):
                torch._dynamo.maybe_mark_dynamic(x, d)
                own.append((x, d))
            before = marked.setdefault(id(x), {}).get(d, (low, high))
            marked[id(x)][d] = max(low, before[0]), min(high, before[1])
    token = MARKED.set(marked)
    try:
        yield
    finally:
        MARKED.reset(token)
        for x, d in own:
            vars(x).get(MARK, {d}).discard(d)
            for name in (MARK, SEEN) if not vars(x).get(MARK) else ():
                vars(x).pop(name, None)


def _tensors(promises: Mapping[str, Any], fn: Any, args: Any, kwargs: Mapping[str, Any]) -> Found:
    """What is promised of each tensor of a call; WeftError for a size outside of its range."""
    try:
        bound = inspect.signature(getattr(fn, "forward", fn)).bind(*args, **kwargs)
    except ValueError as error:
        raise WeftError(f"sizes: {error}, whose arguments have no names") from error
    except TypeError:  # the call itself says so
        return
    bound.apply_defaults()
    known = bound.signature.parameters
    for name, promise in promises.items():
        if all(p.kind != p.VAR_KEYWORD for p in known.values()):
            choice("argument of sizes", name, known)
        yield from _promised(name, {**bound.arguments, **kwargs}.get(name), promise)


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
    low, high = 0 if low is None else low, MOST if high in (None, int_oo) else high
    if not (type(low) is type(high) is int and 0 <= low <= high):
        raise WeftError(f"sizes: {given!r} is neither a range, such as (1, 4096), nor a Dim")
    return low, high


def _show(ends: Range) -> str:
    return f"{ends[0]}..{ends[1]}" if ends[1] < MOST else f"at least {ends[0]}"


def hold(graph: FX, examples: Sequence[Any], names: Sequence[Name]) -> list[tuple[Any, str]]:
    """Guard that what was promised is so; WeftError where the program takes less.

    Returns the sizes that are free as yet, and what they are called.
    """
    inputs = zip(graph.graph.find_nodes(op="placeholder"), examples, names, strict=False)
    sizes = [
        (placeholder.meta["example_value"].shape[d], ends, f"dimension {d} of {name.label}")
        for placeholder, x, name in (inputs if MARKED.get() else ())
        for d, ends in MARKED.get().get(id(x), {}).items()
    ]
    for size, ends, what in sizes:
        _check(size, ends, what)
    for size, (low, high), _ in sizes:  # once all are checked, for each may narrow the others
        bool(max(low, OPEN[0]) <= size <= high)
    return [(size, what) for size, (low, high), what in sizes if low < high and is_symbolic(size)]


def _check(size: Any, ends: Range, what: str) -> None:
    """WeftError where the trace has not left a size free in all of a range."""
    if not isinstance(size, torch.SymInt):
        return
    env, symbol, known = size.node.shape_env, size.node._expr, size.node.expr
    low, high = max(ends[0], OPEN[0]), ends[1]  # 0 and 1 have programs of their own
    bounds = env.bound_sympy(known)
    if not known.free_symbols and low < high:
        told = f"the program, or an argument without a promise, fixes it to {known}"
    elif bounds.lower > low or bounds.upper < high:
        told = f"the program takes {max(bounds.lower, low)}..{min(bounds.upper, high)}"
    else:
        return
    numbers = [sympy.Integer(n) for n in (low, high)]
    at_ends = ((g, g.expr.xreplace({symbol: n})) for g in env.guards for n in numbers)
    narrow = next((g for g, holds in at_ends if holds == sympy.false), None)
    where = getattr(narrow and narrow.sloc, "maybe_user_loc", None)
    message = f"{what} is promised to be {_show(ends)}, but {told}"
    raise WeftError(f"{message}: change that, or promise what it takes (sizes=)", where)
