"""What was found of one program."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Row:
    """`schedules` were run, of `partly` some blocks; `left` are kernels that were too long."""

    name: str
    group: str = ""
    kernels: int = 0
    schedules: int = 0
    spills: int = 0
    faults: int = 0
    misses: int = 0
    errors: int = 0
    partly: int = 0
    left: int = 0
    spent: dict[str, float] = field(default_factory=dict[str, float])  # of processors, by phase
    failures: list[str] = field(default_factory=list[str])
    hip: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])  # code, symbol

    @property
    def seconds(self) -> float:
        return sum(self.spent.values())

    def fail(self, kind: str, message: str) -> None:
        setattr(self, kind, getattr(self, kind) + 1)
        self.failures.append(message)

    @contextmanager
    def phase(self, name: str) -> Generator[None, None, None]:
        """Counts the seconds of processors, those of programs that were run too, to a phase."""
        before = sum(os.times()[:4])
        try:
            yield
        finally:
            self.spent[name] = self.spent.get(name, 0.0) + sum(os.times()[:4]) - before
