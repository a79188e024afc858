"""What a SOURCE turns into: a callable with the arguments to call it with, or IR text.

Source(nn.RMSNorm(8), args=(torch.randn(2, 8),), kwargs={}, title="RMSNorm")
"""

from __future__ import annotations

import inspect
import linecache
import traceback
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, cast

import torch
from torch import nn
from torch.utils import _pytree as pytree

from weft.core.errors import SourceError, WeftError


@dataclass(frozen=True)
class Source:
    """A PyTorch program and the arguments it is called with."""

    callable: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    title: str
    file: str = "-c"  # where its code stands, for the places of errors

    @property
    def wants_grad(self) -> bool:
        """Gradients are recorded only where an argument asks for them."""
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
    """A program as the text of one of weft's own levels."""

    text: str
    title: str


@dataclass(frozen=True)
class SourceSpec:
    """What the command line said; enough for another process to load the same program."""

    text: str | None = None  # -c TEXT
    path: str | None = None  # model folder, hub name, file.py:name or IR file
    seed: int = 0
    meta: bool = field(default=False, kw_only=True)  # a model folder's weights need no values
    device: str = field(default="cpu", kw_only=True)  # where modules and inputs are made


@contextmanager
def user_code(file: str, text: str | None = None) -> Generator[None, None, None]:
    """Errors of the user's own code become one SourceError that names the line of `file`."""
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
    """The last line of -c text is the program; of other files only the name is known."""
    lines = linecache.getlines(file) if file == "-c" else []
    return f"{file} line {len(lines)}:  {lines[-1].strip()}" if lines else file


def from_object(value: Any, namespace: Mapping[str, Any], name: str, file: str = "-c") -> Source:
    """A class, module or function with the example inputs that stand beside it.

    A class is instantiated, with `get_init_inputs()` where that is defined. Example inputs are,
    in this order: `example_inputs` of the object (a value, or a function without arguments), the
    tensor defaults of its parameters, `example_inputs` or `get_inputs()` of the text around it.
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
    """The defaults of the parameters, as far as they are tensors, where the first is one."""
    defaults = [p.default for p in parameters(value)]
    tensors = tuple(takewhile(lambda d: isinstance(d, torch.Tensor), defaults))
    return tensors or None


def without_inputs(value: Callable[..., Any], name: str) -> tuple[Any, ...]:
    """A callable that needs no arguments; SourceError for one that does."""
    named = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    missing = [p.name for p in parameters(value) if p.default is p.empty and p.kind in named]
    if missing:
        raise SourceError(
            f"{name} needs values for {', '.join(missing)}: call it, as in "
            f"{name}(torch.randn(2, 3)), or define example_inputs = (...) beside it"
        )
    return ()
