"""A driver whose compiled program is the eager one, so that the command line is tested alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

import weft
from weft import driver
from weft.link import cpu


@dataclass
class Kernel:
    name: str = "relu"
    rows: int = 1
    predicted_us: float = 1.5
    measured_us: float | None = None
    flops: int = 8
    bytes: int = 32
    launch: None = None


@dataclass
class Report:
    kernels: list[Kernel] = field(default_factory=lambda: [Kernel()])
    externs: list[tuple[str, str, str]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=lambda: {"capture": 0.25, "compiler": 0.5})
    extern_us: list[float] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    arena_bytes: int = 0
    cached: bool = False
    distinct: int = 1


class Eager:
    """Stands for a compiled program."""

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        self.function = function
        self.options = options
        self.report = Report()
        self.prepared: tuple[Any, ...] = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def prepare(self, *args: Any, **kwargs: Any) -> None:
        self.prepared = (args, kwargs)

    def ir(self, level: str) -> str:
        return f"{level} of a program [bold]{'wide ' * 60}[/bold]"


class EagerText(Eager):
    inputs = (("x", "f32", (4, 3)), ("index", "i64", (2,)))

    def interpret(self, *args: torch.Tensor) -> Any:
        return self.function(*args).double()


@pytest.fixture
def uncached(monkeypatch: pytest.MonkeyPatch) -> None:
    """No program is read from the cache on disk, or kept there: a test makes it wrong."""
    link = cpu.link
    monkeypatch.setattr(driver, "relink", lambda *_: None)
    monkeypatch.setattr(cpu, "link", lambda *given: link(*given[:-1], None))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> list[Eager]:
    """The programs compiled so far."""
    made: list[Eager] = []

    def compile_program(function: Callable[..., Any], **options: Any) -> Eager:
        made.append(Eager(function, **options))
        return made[-1]

    def compile_text(text: str, options: Any, filename: str) -> EagerText:
        made.append(EagerText(lambda x, index: x[index], text=text))
        return made[-1]

    monkeypatch.setattr(weft, "compile", compile_program)
    monkeypatch.setattr(weft.driver, "compile_text", compile_text)
    return made
