"""What every loaded program is, wherever it runs: a layout, a call, its steps timed one by one.

program.run(inputs), program.profile(inputs), program.arena_bytes
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import torch

from weft.core.errors import FAULTS, WeftError
from weft.runtime.layout import Layout
from weft.runtime.spec import Call, ProgramSpec

Tensors = Sequence[torch.Tensor]
Timed = Callable[[Tensors], list[tuple[str, float]]]


class Loaded:
    """A program; where its call is Python text, `function` compiles that."""

    layout: Layout
    timed: Timed | None = None

    def function(self, profile: bool = False) -> Callable[[Tensors], Any]:
        raise NotImplementedError

    @property
    def spec(self) -> ProgramSpec:
        return self.layout.spec

    @property
    def arena_bytes(self) -> int:
        """Bytes of temporaries that one call at a time needs."""
        return self.layout.plan.total

    def profile(self, inputs: Tensors, rounds: int = 5) -> list[tuple[str, float]]:
        """Microseconds of each step run by itself, the median of `rounds` whole runs.

        An input that the program writes is written that many times.
        """
        self.timed = self.timed or self.function(profile=True)
        runs = [self.timed(inputs) for _ in range(rounds)]
        steps = [name for name, _ in runs[0]]
        return [(name, median(run[i][1] for run in runs)) for i, name in enumerate(steps)]

    def error(self, fault: int) -> WeftError:
        """What a segment's result other than 0 stands for."""
        step = self.spec.steps[fault // 4]
        assert isinstance(step, Call)
        return FAULTS[fault % 4](step.checks)
