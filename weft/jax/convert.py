"""JAX's functions as functions that weft compiles.

f = weft.from_jax(jax.grad(loss))      # what grad and vmap make is in the jaxpr already
f(params, x)                           # arrays of JAX, of torch, numbers, in any tree
Arrays go over by dlpack, without copies; results are of JAX unless an argument is of torch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from weft.core.errors import CaptureError
from weft.driver import compile
from weft.jax.library import DTYPES, X64, is_jax, library, to_jax, to_torch, traced
from weft.jax.plan import planned

NAMES = {dtype: name for name, dtype in reversed(DTYPES.items())}  # as JAX calls torch's dtypes


class Program(NamedTuple):
    """A function for arguments of some shapes and dtypes."""

    run: Callable[..., Any]  # tensors to a list of tensors
    tree: Any  # of the results
    dtypes: tuple[Any, ...]  # of the results, as JAX has them


def from_jax(fn: Callable[..., Any], **options: Any) -> Converted:
    """A function of JAX compiled by weft, for each new shapes and dtypes of its arguments.

    `options` are those of weft.compile. At a call CaptureError says why JAX cannot trace it, and
    UnsupportedOpError which primitive has no row, with its line in `fn`. Gradients are what
    jax.grad makes, or torch's where an argument requires them.
    """
    return Converted(fn, options)


class Converted:
    """What from_jax returns; `programs` has a compiled function for each signature."""

    def __init__(self, fn: Callable[..., Any], options: dict[str, Any]) -> None:
        functools.update_wrapper(self, fn, updated=())
        self.fn, self.options = fn, options
        self.programs: dict[Any, Program] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        tree = library().jax.tree_util
        leaves, structure = tree.tree_flatten((args, kwargs))
        types = tuple(type_of(x, i) for i, x in enumerate(leaves))
        key = structure, tuple((t.shape, t.dtype, t.weak_type) for t in types)
        if key not in self.programs:
            self.programs[key] = self.program(structure, types)
        program = self.programs[key]
        given = [to_torch(x) for x in map(as_array, leaves, types)]
        found = program.run(*given)
        if not any(isinstance(x, torch.Tensor) for x in leaves):
            found = [to_jax(t, d) for t, d in zip(found, program.dtypes, strict=True)]
        return tree.tree_unflatten(program.tree, found)

    def ir(self, level: str) -> str:
        """Text of a level, of every signature so far."""
        return "\n".join(p.run.ir(level) for p in self.programs.values())  # type: ignore[attr-defined]

    def program(self, structure: Any, types: Sequence[Any]) -> Program:
        """Traces the function by JAX, and has weft compile the calls that it makes."""
        args, kwargs = library().jax.tree_util.tree_unflatten(structure, types)
        jaxpr, tree = traced(self.fn, args, kwargs)
        plan = planned(jaxpr)

        def run(*tensors: torch.Tensor) -> list[torch.Tensor]:
            return plan.run(tensors)

        run.__name__ = run.__qualname__ = getattr(self.fn, "__name__", "from_jax")
        dtypes = tuple(aval.dtype for aval in jaxpr.out_avals)
        return Program(compile(run, **self.options), tree, dtypes)


def type_of(x: Any, number: int) -> Any:
    """The type of an argument, as JAX traces it. CaptureError for one that it has not."""
    jax = library().jax
    if isinstance(x, torch.Tensor):
        name = NAMES.get(x.dtype, str(x.dtype).removeprefix("torch."))
        if name in X64 and not jax.config.jax_enable_x64:
            told = f"argument {number} is {name}, which JAX has only with jax_enable_x64"
            raise CaptureError(f"{told}: enable it, or pass another dtype")
        return jax.ShapeDtypeStruct(tuple(x.shape), jax.numpy.dtype(name))
    try:
        aval = jax.typeof(jax.numpy.asarray(x) if not is_jax(x) else x)
        weak = isinstance(x, bool | int | float | complex) or aval.weak_type
        return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=weak)
    except (TypeError, ValueError) as error:
        told = f"argument {number} is a {type(x).__name__}, and no array or number"
        raise CaptureError(told) from error


def as_array(x: Any, type_: Any) -> Any:
    """The argument as an array of its type."""
    if isinstance(x, torch.Tensor) or is_jax(x):
        return x
    return library().jax.numpy.asarray(x, type_.dtype)
