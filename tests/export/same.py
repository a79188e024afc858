"""Whether an exported program gives, bit for bit, what weft gives in-process.

differs(fn, args, kwargs, folder)       # "" where it does, else what is off
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

import weft
from tests.agree.checks import fresh
from tests.export.library import Library, exported, tensors_in
from weft.cli.program import Source
from weft.core.errors import UnsupportedOpError
from weft.options import Fallback


def own(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments of their own."""
    flat, spec = pytree.tree_flatten((list(args), dict(kwargs)))
    return pytree.tree_unflatten(fresh(flat), spec)


def in_process(
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    target: str,
    **how: Any,
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """What weft gives after torch.manual_seed(0), and its arguments afterwards."""

    def run(fallback: Fallback) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        own_fn = copy.deepcopy(fn) if isinstance(fn, torch.nn.Module) else fn
        f = weft.compile(own_fn, target=target, freeze=True, fallback=fallback, **how)
        ours, named = own(args, kwargs)
        torch.manual_seed(0)
        with torch.no_grad():
            out = f(*ours, **named)
        return fresh(tensors_in(out)), tensors_in((ours, named))

    try:
        return run("error")
    except UnsupportedOpError:  # it draws seeds, which torch does; the export says what it refuses
        return run("aten")


def bits(t: torch.Tensor) -> bytes:
    return t.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def unlike(mine: torch.Tensor, theirs: torch.Tensor) -> str:
    for fact in ("dtype", "shape"):
        if getattr(mine, fact) != getattr(theirs, fact):
            return f"{fact} {getattr(mine, fact)}, not {getattr(theirs, fact)}"
    if mine.numel() and steps(mine) != steps(theirs):
        return f"strides {mine.stride()}, not {theirs.stride()}"
    return "" if bits(mine) == bits(theirs) else "other bits"


def steps(t: torch.Tensor) -> list[int]:
    return [s for n, s in zip(t.shape, t.stride(), strict=True) if n > 1]


def differs(
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    folder: Path,
    target: str = "cpu",
) -> str:
    """Export, build and run it, and compare outputs and written arguments."""
    expected, after = in_process(fn, args, kwargs, target)
    given, named = own(args, kwargs)
    library = exported(Source(fn, tuple(given), named, "program"), folder, target)
    return compared(library, (given, named), expected, after)


def compared(
    library: Library, given: Any, expected: Sequence[torch.Tensor], after: Sequence[torch.Tensor]
) -> str:
    outputs = library.run(given)
    library.close()
    found = [t for name, t in outputs if not name.startswith("memory.")]
    if len(found) != len(expected):
        return f"{len(found)} outputs, not {len(expected)}"
    pairs = [*zip(found, expected, strict=True), *zip(tensors_in(given), after, strict=True)]
    wrong = [f"{i}: {told}" for i, (m, t) in enumerate(pairs) if (told := unlike(m, t))]
    return "; ".join(wrong)
