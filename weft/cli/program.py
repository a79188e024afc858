"""The program that a SOURCE describes: a callable and its arguments, or IR text.

Source(nn.RMSNorm(8), args=(torch.randn(2, 8),), kwargs={}, title="RMSNorm")
"""

from __future__ import annotations

import inspect
import linecache
import traceback
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import takewhile
from typing import Any, cast

import torch
from torch import nn
from torch.utils import _pytree as pytree

from weft.core.errors import SourceError, WeftError
from weft.options import Options


@dataclass(frozen=True)
class Source:
    """A PyTorch program and the arguments it is called with.

    `sizes` are those of the arguments that are free, where the program is not for any size.
    """

    callable: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    title: str
    file: str = "-c"  # the file of its code, for error messages
    sizes: Mapping[str, Any] | None = None  # as weft.compile has them

    def freed(self, options: Options) -> dict[str, Any]:
        """The keywords of weft.compile: those of the options, with the sizes that are free."""
        told = asdict(options)
        if options.dynamic and self.sizes is not None:
            told |= {"dynamic": None, "sizes": self.sizes}
        return told

    @property
    def wants_grad(self) -> bool:
        """Whether an argument requires a gradient; else none are recorded."""
        return any(tensor.requires_grad for tensor in tensors((self.args, self.kwargs)))

    def on(self, device: str) -> Source:
        """The same program and arguments on a device."""
        function = self.callable.to(device) if isinstance(self.callable, nn.Module) else None
        args, kwargs = pytree.tree_map_only(
            torch.Tensor, lambda t: t.detach().to(device).requires_grad_(t.requires_grad),
            (self.args, self.kwargs),
        )  # fmt: skip
        return replace(self, callable=function or self.callable, args=args, kwargs=kwargs)


def tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


@dataclass(frozen=True)
class IrText:
    """A program as the text of one of weft's levels."""

    text: str
    title: str


@dataclass(frozen=True)
class SourceSpec:
    """A SOURCE as the command line names it; another process can load the same program from it."""

    text: str | None = None  # -c TEXT
    path: str | None = None  # model folder, hub name, file.py:name or IR file
    seed: int = 0
    meta: bool = field(default=False, kw_only=True)  # weights of model folders have no values
    device: str = field(default="cpu", kw_only=True)  # for modules and inputs


@contextmanager
def user_code(file: str, text: str | None = None) -> Generator[None, None, None]:
    """Turns errors of the user's code into a SourceError that names the line of `file`."""
    try:
        yield
    except WeftError:
        raise
    except Exception as error:
        message = (str(error).strip().splitlines() or [""])[0]
        message = f"{type(error).__name__}: {message}" if message else type(error).__name__
        raise SourceError(message, place(error, file, text)) from error


def place(error: BaseException, file: str, text: str | None) -> str:
    """`-c line 2:  x @ y`: the innermost line of `file` that the error passed through."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
    if not frames or frames[-1].lineno is None:
        return program_place(file)
    number = frames[-1].lineno
    line = text.splitlines()[number - 1] if text is not None else frames[-1].line or ""
    return f"{file} line {number}:  {line.strip()}"


def program_place(file: str) -> str:
    """The place of a whole program: the last line of -c text, of other files only the name."""
    lines = linecache.getlines(file) if file == "-c" else []
    return f"{file} line {len(lines)}:  {lines[-1].strip()}" if lines else file


def from_object(value: Any, namespace: Mapping[str, Any], name: str, file: str = "-c") -> Source:
    """The program of a class, module or function, with example inputs.

    A class is instantiated, with the arguments `get_init_inputs()` if that is defined. Example
    inputs are the first of these: `example_inputs` of the object (a value, or a function without
    arguments), the tensor defaults of its parameters, `example_inputs` or `get_inputs()` of the
    `namespace`. SourceError if there are none, and parameters need values.
    """
    if isinstance(value, type):
        initial = namespace.get("get_init_inputs")
        value = cast("Callable[..., Any]", value)(*(initial() if initial else ()))
    if not callable(value):
        raise SourceError(f"{name} is a {type(value).__name__}, not a module, class or function")
    if isinstance(value, nn.Module):
        value.eval()
    own = (getattr(value, "example_inputs", None), own_defaults(value))
    around = (namespace.get(key) for key in ("example_inputs", "get_inputs"))
    example = next((e for e in (*own, *around) if e is not None), None)
    example = example() if callable(example) else example
    if example is None:
        example = without_inputs(value, name)
    if isinstance(example, Mapping):
        return Source(value, (), dict(cast("Mapping[str, Any]", example)), name, file)
    several = isinstance(example, tuple | list)
    args = tuple(cast("Any", example)) if several else (example,)
    return Source(value, args, {}, name, file)


def parameters(value: Callable[..., Any]) -> list[inspect.Parameter]:
    target = value.forward if isinstance(value, nn.Module) else value
    return list(inspect.signature(target).parameters.values())


def own_defaults(value: Callable[..., Any]) -> tuple[Any, ...] | None:
    """The defaults of the leading parameters, as long as they are tensors; None for none."""
    defaults = [p.default for p in parameters(value)]
    tensors = tuple(takewhile(lambda d: isinstance(d, torch.Tensor), defaults))
    return tensors or None


def without_inputs(value: Callable[..., Any], name: str) -> tuple[Any, ...]:
    """The arguments of a callable that needs none, (); SourceError if it needs some."""
    named = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    missing = [p.name for p in parameters(value) if p.default is p.empty and p.kind in named]
    if missing:
        raise SourceError(
            f"{name} needs values for {', '.join(missing)}: call it, as in "
            f"{name}(torch.randn(2, 3)), or define example_inputs = (...) beside it"
        )
    return ()
