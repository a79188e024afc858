"""A captured program lowered for every schedule of the corpus, and nothing of it twice.

found = lowerings(captured, row.fail)
[l.name for l in found]      # cuda:sm_80, cuda:sm_90a, cuda:sm_120, "cuda:sm_90a --passes=-008" ...

Passes are left out of the schedule of sm_90a. Where one changes nothing there is no such schedule;
where it changes some kernels, these alone go through the passes after it again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import isfinite
from typing import Any

from weft import driver
from weft.core.errors import WeftError
from weft.core.node import Node
from weft.core.passes import PassLog
from weft.driver import Levels
from weft.emit.gpu import Launch
from weft.frontend.graph import Captured, Known
from weft.options import Options
from weft.scalar.index import simplify
from weft.scalar.intervals import Ranges, bounds
from weft.scalar.nest import Block, For, Kernel, Program, Rows
from weft.scalar.ops import apply, function_of
from weft.scalar.reach import axis_range
from weft.scalar.text.printer import show_kernel
from weft.targets.gpu import GPU, GPUS
from weft.tile.schedule import GPU_PROGRAM, GPU_SCHEDULE

TARGETS = [name for name in GPUS if name.startswith("cuda")]
FIRST = "cuda:sm_90a"
LEFT_OUT = sorted({name[:3] for name, _ in (*GPU_PROGRAM, *GPU_SCHEDULE)})


@dataclass(frozen=True)
class Step:
    """One pass that ran, and the program before and after it."""

    letter: str
    name: str
    change: Callable[[Any], Any]
    before: Any
    after: Any

    @cached_property
    def changed(self) -> tuple[Kernel, ...]:
        """The kernels before it that it changes; of a pass of the whole program, all or none."""
        after = {k.name: k for k in self.after.kernels}
        own = self.before.kernels
        found = tuple(k for k in own if k.name not in after or not same(k, after[k.name]))
        return own if self.letter == "l" and (found or len(own) != len(after)) else found


def same(one: Kernel, other: Kernel) -> bool:
    """Kernels with a NaN in them are never equal: their text tells."""
    return one == other or list(show_kernel(one)) == list(show_kernel(other))


@dataclass
class Recorded(PassLog):
    """Keeps what every pass of the loop and of the tile level made."""

    steps: list[Step] = field(default_factory=list[Step])

    def run(self, level: str, name: str, change: Any, program: Any, text: Any = None) -> Any:
        after = super().run(level, name, change, program, text)
        if level in ("l", "t"):
            self.steps.append(Step(level, name, change, program, after))
        return after


@dataclass(frozen=True)
class Made:
    """A kernel's launch, and how many statements all of its threads run through."""

    launch: Launch
    symbol: str
    kernel: Kernel  # of the kernel level

    @cached_property
    def code(self) -> str:
        """The text without its comments."""
        return re.sub(r"^ *//.*\n", "", self.launch.source, flags=re.MULTILINE)

    @cached_property
    def statements(self) -> int:
        return statements(self.kernel.body)


@dataclass(frozen=True)
class Lowered:
    """One schedule of a program: its steps in order, and what launches each kernel, by name."""

    name: str
    target: GPU
    program: Program
    made: Mapping[str, Made]
    source: str = ""  # the whole text
    passes: str = ""  # left out

    @property
    def kernels(self) -> list[Made]:
        return [self.made[kernel.name] for kernel in self.program.kernels]

    @property
    def code(self) -> tuple[tuple[str, int, int], ...]:
        """What a device would be given: equal for schedules that are the same."""
        return tuple((m.code, m.launch.grid, m.launch.block) for m in self.kernels)


def lowered(name: str, target: str, levels: Levels) -> Lowered:
    unique = levels.unique
    assert unique is not None
    made = launched(levels)
    program = driver.without_restatements(unique.full)
    return Lowered(name, GPUS[target], program, unique.all(made), levels.text("source"))


def launched(levels: Levels) -> dict[str, Made]:
    """By the kernels' own names: those that `unique` keeps."""
    kernels = levels.made["kernel"].kernels
    symbols = {k.name: levels.symbols[k.name] for k in kernels}
    return {k.name: Made(levels.launches[s], s, k) for k in kernels if (s := symbols[k.name])}


def lowerings(captured: Captured, fail: Callable[[str, str], None]) -> list[Lowered]:
    """Those of each target first; `fail` is told of a schedule that is an error."""
    graph, known = captured.graph, Known(captured.layouts, captured.constants())
    found: list[Lowered] = []
    log = Recorded()
    for target in TARGETS:
        one = log if target == FIRST else PassLog()
        options = Options(target, fallback="error")
        found.append(lowered(target, target, driver.lower(graph, options, one, known)))
    first = found[TARGETS.index(FIRST)]
    for number in LEFT_OUT:
        name = f"{FIRST} --passes=-{number}"
        try:
            found += without(number, name, log.steps, first)
        except WeftError as error:
            fail("errors", f"{name}: {error}")
    return found


def without(number: str, name: str, steps: list[Step], first: Lowered) -> Iterator[Lowered]:
    """The schedule without the passes of that number, where they change anything."""
    at = next((i for i, s in enumerate(steps) if s.name[:3] == number and s.changed), None)
    if at is None:
        return
    options = Options(FIRST, passes=f"-{number}", fallback="error")
    step, program = steps[at], steps[at].before
    if step.letter == "t":
        own = {k.name for k in step.changed}
        kept = (s for s in program.steps if isinstance(s, Kernel | Rows) and s.name in own)
        program = replace(program, steps=tuple(kept))
    for later in steps[at + 1 :]:
        if later.letter == step.letter and later.name[:3] != number:
            program = later.change(program)
    levels = driver.lower(program, options, PassLog())
    if step.letter == "l":
        yield replace(lowered(name, FIRST, levels), passes=number)
        return
    made, kept = launched(levels), {m.kernel.name: m for m in first.made.values()}
    again = {of: made.get(m.kernel.name, kept[m.kernel.name]) for of, m in first.made.items()}
    yield replace(first, name=name, made=again, passes=number)


def statements(block: Block, around: Ranges | None = None) -> int:
    """How many a nest runs through, at most."""
    ranges, total = around or {}, 0
    for stmt in block:
        if isinstance(stmt, For):
            turns = -(-length(stmt.lo, stmt.hi, ranges) // stmt.step)
            inside = {**ranges, stmt.axis: axis_range(stmt, ranges)}
            total += int(max(turns, 0)) * statements(stmt.body, inside)
        else:
            total += 1
    return total


def length(lo: Node, hi: Node, ranges: Ranges) -> float:
    """Of a loop, at most; 1 where nothing is known of it."""
    if function_of(hi) == "minimum":
        return min(length(lo, end, ranges) for end in hi.args)
    most = bounds(simplify(apply("subtract", hi, lo), ranges), ranges)[1]
    return most if isfinite(most) else 1.0
