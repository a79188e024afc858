"""The base of loaded programs on every machine: a layout, a call, and a profile of the steps.

program.run(inputs), program.profile(inputs), program.arena_bytes
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any, cast

import torch

from weft.core.errors import FAULTS, WeftError
from weft.runtime.layout import Layout, resized
from weft.runtime.python_call import Steps, python_source
from weft.runtime.spec import Call, ProgramSpec

KEPT = 64  # layouts for some sizes
Tensors = Sequence[Any]  # then the sizes that the call decides
Timed = Callable[[Tensors], list[tuple[str, float]]]


class Loaded:
    """A program; where its call is Python text, `function` compiles that.

    `names` has the objects that the text names, beside what every text does; `segments` are what
    it calls for runs of kernels.
    """

    layout: Layout
    title: str
    segments: Sequence[Any]
    on_gpu = False
    drops_to: Path | None = None  # where constants go that are read in another form alone
    text = ""
    timed: Timed | None = None
    watched: Callable[[Tensors], Any] | None = None

    def names(self, views: list[str]) -> Mapping[str, Any]:
        raise NotImplementedError

    def function(self, steps: Steps = "together") -> Callable[[Tensors], Any]:
        """The Python text of a call, compiled with the objects it names."""
        text, source = python_source(self.layout, steps, self.on_gpu)
        self.text = text if steps == "together" else self.text
        namespace = {**source.namespace, **self.names(source.views), "error": self.error}
        namespace.update(frames=[], no_grad=torch.no_grad)
        namespace.update((f"segment{number}", run) for number, run in enumerate(self.segments))
        exec(compile(text, f"<weft {self.title}>", "exec"), namespace)
        return cast(Callable[[Tensors], Any], namespace["run"])

    def recorded(self) -> Callable[[Tensors], Any]:
        """The call while torch's profiler is on: each kernel is a row of it."""
        self.watched = self.watched or self.function("recorded")
        return self.watched

    @cached_property
    def layouts(self) -> dict[tuple[int, ...], Layout]:
        """Those of the last calls, by sizes."""
        return {}

    def layout_at(self, sizes: tuple[int, ...]) -> Layout:
        """The layout for these values of its sizes, one of the last 64 that were asked for."""
        found = self.layouts.get(sizes)
        if found is None:
            labels = (label for label, _ in self.spec.sizes)
            found = self.layouts[sizes] = resized(
                self.layout, dict(zip(labels, sizes, strict=True))
            )
            for oldest in [*self.layouts][:-KEPT]:
                self.layouts.pop(oldest, None)  # another thread may have let it go
        return found

    @property
    def spec(self) -> ProgramSpec:
        return self.layout.spec

    @property
    def arena_bytes(self) -> int:
        """Bytes of temporaries that one call at a time needs."""
        return self.layout.plan.total

    @property
    def kept(self) -> Mapping[int, int]:
        """Bytes that its calls keep of constants, by address."""
        return {}

    def profile(self, inputs: Tensors, rounds: int = 5) -> list[tuple[str, float]]:
        """Microseconds of each step run by itself, the median of `rounds` whole runs.

        An input that the program writes is written that many times.
        """
        self.timed = self.timed or self.function("timed")
        runs = [self.timed(inputs) for _ in range(rounds)]
        steps = [name for name, _ in runs[0]]
        return [(name, median(run[i][1] for run in runs)) for i, name in enumerate(steps)]

    def error(self, fault: int) -> WeftError:
        """What a segment's result other than 0 stands for."""
        step = self.spec.steps[fault // 4]
        assert isinstance(step, Call)
        return FAULTS[fault % 4](step.checks)
