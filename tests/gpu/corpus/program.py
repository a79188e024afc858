"""A program of the corpus: what to call, with which arguments, and whether all of it is simulated.

of_case(Case("rows", lambda x: x.sum(1), (f32(5, 700),)))
of_text("transpose, small", "torch.randn(33,70).t().contiguous()")
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from tests.agree.inputs import Case
from weft.cli.program import Source, SourceSpec
from weft.cli.source import load


@dataclass(frozen=True)
class Program:
    """`source` makes the same arguments every time it is called."""

    name: str
    source: Callable[[], Source]
    real: bool = False  # of a real size: what is too long for the simulator runs in part


def of_case(case: Case) -> Program:
    return Program(case.name, lambda: Source(case.fn, tuple(case.make()), {}, case.name))


def of_row(name: str, function: Callable[..., Any], make: Callable[[], Any]) -> Program:
    """A row of tests/gpu/programs.py."""

    def source() -> Source:
        torch.manual_seed(zlib.crc32(name.encode()))
        return Source(function, make(), {}, name)

    return Program(name, source)


def of_text(name: str, text: str, real: bool = False) -> Program:
    def source() -> Source:
        loaded = load(SourceSpec(text=text))
        assert isinstance(loaded, Source)
        return loaded

    return Program(name, source, real)
