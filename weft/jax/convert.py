"""JAX's functions as functions that weft compiles.

f = weft.from_jax(jax.grad(loss))      # what grad and vmap make is in the jaxpr already
f(params, x)                           # arrays of JAX, of torch, numbers, in any tree
Arrays go over by dlpack, without copies; results are of JAX unless an argument is of torch.
"""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from weft.core.errors import CaptureError
from weft.driver import Builder
from weft.frontend.autograd import graph_backend
from weft.jax.gradients import by_jax
from weft.jax.library import DTYPES, X64, is_jax, library, to_jax, to_torch, traced
from weft.jax.plan import planned
from weft.options import Options

NAMES = {dtype: name for name, dtype in reversed(DTYPES.items())}  # as JAX calls torch's dtypes


class Program(NamedTuple):
    """A function for arguments of some shapes and dtypes."""

    run: Callable[..., Any]  # tensors to a list of tensors
    tree: Any  # of the results
    dtypes: tuple[Any, ...]  # of the results, as JAX has them
    by_jax: Callable[..., Any] | None  # leaves that gradients are wanted of, to a function of all


def from_jax(fn: Callable[..., Any], **options: Any) -> Converted:
    """A function of JAX compiled by weft, for each new shapes and dtypes of its arguments.

    `options` are those of weft.compile, but for `sizes`. At a call CaptureError says why JAX cannot
    trace it, and UnsupportedOpError which primitive has no row, with its line in `fn`. Gradients
    are what jax.grad makes, or torch's where an argument requires them.
    """
    return Converted(fn, options)


class Converted:
    """What from_jax returns; `programs` has a compiled function for each signature."""

    def __init__(self, fn: Callable[..., Any], options: dict[str, Any]) -> None:
        functools.update_wrapper(self, fn, updated=())
        self.fn, self.build = fn, Builder(Options.of(options))
        self.programs: dict[Any, Program] = {}
        # A graph of rows does not say what they do: only what it lowers to is kept on disk.
        self.session = replace(self.build.session(name_of(fn)), store=None)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        tree = library().jax.tree_util
        leaves, structure = tree.tree_flatten((args, kwargs))
        key = structure, tuple(map(signature, leaves)), library().jax.config.jax_enable_x64
        program = self.programs.get(key)
        if program is None:
            types = [type_of(x, i) for i, x in enumerate(leaves)]
            program = self.programs[key] = self.program(structure, types)
        wanted = self.wanted(leaves) if program.by_jax else ()
        if program.by_jax and wanted:
            found = program.by_jax(wanted)(*leaves)
        else:
            found = program.run(*map(to_torch, leaves))
        if not any(isinstance(x, torch.Tensor) for x in leaves):
            found = [to_jax(t, d) for t, d in zip(found, program.dtypes, strict=True)]
        return tree.tree_unflatten(program.tree, found)

    @staticmethod
    def wanted(leaves: Sequence[Any]) -> tuple[int, ...]:
        """The leaves that torch's autograd is to have gradients of."""
        if not torch.is_grad_enabled():
            return ()
        tensors = [(i, x) for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]
        return tuple([i for i, x in tensors if x.requires_grad])

    def derived(self, fn: Callable[..., Any]) -> Converted:
        """Another function, compiled alike, and in the same report."""
        other = copy.copy(self)
        other.fn, other.programs = fn, {}
        return other

    def program(self, structure: Any, types: Sequence[Any]) -> Program:
        """Traces the function by JAX, and compiles the calls that it makes."""
        tree = library().jax.tree_util
        args, kwargs = tree.tree_unflatten(structure, types)
        jaxpr, results = traced(self.fn, args, kwargs)
        names = [re.sub(r"\W+", "_", n).strip("_") for n in jaxpr.jaxpr.debug_info.arg_names]
        plan, backend = planned(jaxpr), graph_backend(self.session)
        for loop in plan.loops():  # their bodies are compiled when they first run
            loop.backend = backend
        graph, run = plan.graph([n or "x" for n in names]), None

        def compiled(*tensors: torch.Tensor) -> Any:
            nonlocal run
            run = run or backend(graph, tensors)
            return run(*tensors)

        def flat(*leaves: Any) -> Any:
            args, kwargs = tree.tree_unflatten(structure, leaves)
            return tree.tree_leaves(self.fn(*args, **kwargs))

        ruled = functools.cache(lambda wanted: by_jax(flat, wanted, self.derived))
        dtypes = tuple(aval.dtype for aval in jaxpr.out_avals)
        return Program(compiled, results, dtypes, ruled if plan.has_rules() else None)

    def ir(self, level: str) -> str:
        """Text of a level, of every program so far."""
        return self.build.ir(self.session.programs, level)

    @property
    def report(self) -> Any:
        """What became of every program so far: kernels, externs, what runs in eager and why."""
        return self.build.report(self.session.programs, self.session.reasons)


def name_of(fn: Callable[..., Any]) -> str:
    return getattr(fn, "__name__", type(fn).__name__)


def signature(x: Any) -> Any:
    """What of an argument a program is compiled for."""
    if isinstance(x, torch.Tensor):
        return x.shape, x.dtype
    return x.aval if is_jax(x) else (type(x), getattr(x, "shape", ()), getattr(x, "dtype", None))


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
        aval = jax.typeof(x if is_jax(x) else jax.numpy.asarray(x))
        return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)
    except (TypeError, ValueError, OverflowError) as error:
        told = f"argument {number} is a {type(x).__name__}, and no array or number"
        raise CaptureError(told) from error
