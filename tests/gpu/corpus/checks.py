"""One program of the corpus, checked: compiled for every target, simulated, compared with float64.

row = examine(program)
row.kernels, row.spills, row.faults, row.misses      # what a table shows
row.failures                                         # sentences: what is wrong in which kernel

The simulator runs the default schedule of each target, then the one of sm_90a with each pass left
out. Of a kernel that is too long for it some blocks run, for their faults; a program of one kernel
is then compared where these blocks have written. An OpenCL device runs the program too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tests.agree.checks import fresh
from tests.captures import Silent
from tests.gpu.corpus.compilers import HIP, check_hip, check_resources
from tests.gpu.corpus.player import UNTOUCHED, Player
from tests.gpu.corpus.program import Program
from tests.gpu.corpus.row import Row
from tests.gpu.corpus.schedules import TARGETS, Lowered, launched, lowerings
from weft import driver
from weft.calling import compiled
from weft.cli.check import Verdict, check, check_leaf, run_reference
from weft.cli.program import Source
from weft.config import config
from weft.core.errors import WeftError
from weft.core.passes import PassLog
from weft.driver import Levels
from weft.frontend.graph import Captured, Known, Runner
from weft.options import Options
from weft.runtime.opencl import find_device

SLOW = 2_000_000_000  # statements of all threads: more are not run by OpenCL


def examine(program: Program, nvrtc: bool = True, hip: bool = True) -> Row:
    """Everything that the corpus asks of one program; what goes wrong is in the row.

    Without `hip` the row has the kernels that hipcc is to be asked about.
    """
    row = Row(program.name)
    try:
        with torch.no_grad():
            check_program(program, row, nvrtc)
            if hip:
                with row.phase("hipcc"):
                    check_hip([row])
    except Exception as error:
        row.fail("errors", f"{type(error).__name__}: {error}")
    return row


def check_program(program: Program, row: Row, nvrtc: bool) -> None:
    with row.phase("source"):
        source = program.source()
    with row.phase("lowering"):
        once = Once(row)
        call = compiled(source.callable, once)
        call.prepare(*source.args, **source.kwargs)
    defaults = once.found[: len(TARGETS)]
    row.kernels = max(len(one.program.kernels) for one in defaults)
    with row.phase("NVRTC"):
        for one in defaults if nvrtc else ():
            if one.source.strip():
                check_resources(one, row)
    with row.phase("eager"):
        eager = source.callable(*fresh(source.args), **source.kwargs)
        reference = pytree.tree_map(known, eager, run_reference(source))
    with row.phase("g++"):
        distinct = list({one.code: one for one in reversed(once.found)}.values())[::-1]
        once.plays.texts.add((made, one.target) for one in distinct for made in one.kernels)
    ways = [Way("simulator", one.name, partial(once.simulated, one)) for one in distinct]
    if has_opencl() and sum(made.statements for made in once.found[0].kernels) <= SLOW:
        ways.append(Way("OpenCL", "opencl", once.on_opencl))
    for way in ways:
        with row.phase(way.phase):
            compared(source, call, once, way, (eager, reference))


def known(eager: Any, reference: Any) -> Any:
    """float64's result, but eager's where its dtype ends before: nan_to_num of an infinity."""
    if not isinstance(eager, torch.Tensor) or not eager.is_floating_point():
        return reference
    beyond = reference.isfinite() & (reference.abs() > torch.finfo(eager.dtype).max)
    return torch.where(beyond & eager.isfinite(), eager.to(reference.dtype), reference)


@dataclass(frozen=True)
class Way:
    """One way to run a program; `runner` makes what runs it."""

    phase: str
    name: str
    runner: Callable[[], Runner]


@dataclass
class Once(Silent):
    """The back end of a program that is captured once, and then runs as `run` says."""

    row: Row
    found: list[Lowered] = field(default_factory=list[Lowered])
    plays: Player = field(default_factory=Player)

    def __call__(self, captured: Captured) -> Runner:
        assert not self.found, "the program is more than one graph"
        self.captured = captured
        self.found = lowerings(captured, self.row.fail)
        levels = self.lower(Options(HIP, fallback="error"))
        self.row.hip = [(made.code, made.symbol) for made in launched(levels).values()]
        self.run = self.simulated(self.found[0])
        return lambda tensors: self.run(tensors)

    def simulated(self, one: Lowered) -> Runner:
        results = len(one.program.outputs) - len(self.captured.mutations)

        def run(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
            outputs = self.plays.run(one, tensors)
            for into, value in zip(self.captured.mutations, outputs[results:], strict=True):
                tensors[into].copy_(value)
            return outputs[:results]

        return run

    def on_opencl(self) -> Runner:
        captured, options = self.captured, Options("opencl", fallback="error")
        results = len(captured.graph.outputs) - len(captured.mutations)
        writes = {results + i: into for i, into in enumerate(captured.mutations)}
        levels = self.lower(options)
        return driver.runnable(levels, options, PassLog(), writes, captured.place)[0]

    def lower(self, options: Options) -> Levels:
        captured = self.captured
        known = Known(captured.layouts, captured.constants())
        return driver.lower(captured.graph, options, PassLog(), known)


@cache
def has_opencl() -> bool:
    try:
        find_device(config.opencl)
    except WeftError:
        return False
    return True


def compared(source: Source, call: Any, once: Once, way: Way, truth: tuple[Any, Any]) -> None:
    """One way to run the program, against eager and eager in float64."""
    row, plays = once.row, once.plays
    row.schedules += 1
    plays.partly = plays.left = 0
    try:
        once.run = way.runner()
        out = call(*fresh(source.args), **source.kwargs)
    except WeftError as error:
        kind = "faults" if "has faults" in str(error) else "errors"
        return row.fail(kind, f"{way.name}: {error}")
    row.partly += plays.partly > 0
    row.left += plays.left
    if not plays.partly + plays.left:
        verdicts = check(out, *truth)
    else:
        leaves = zip(*map(pytree.tree_leaves, (out, *truth)), strict=True)
        verdicts = [in_part(*each) for each in leaves if plays.marked]
    for i, verdict in enumerate(verdicts):
        if not verdict.passed:
            told = verdict.reason or f"error {verdict.error:.1e}, allowed {verdict.limit:.1e}"
            row.fail("misses", f"{way.name}: result {i}: {told}")
    return None


def in_part(out: torch.Tensor, eager: torch.Tensor, reference: torch.Tensor) -> Verdict:
    """Of the elements that are not as they were."""
    if out.stride() != eager.stride():
        return Verdict(0.0, 0.0, f"strides {out.stride()}, eager gives {eager.stride()}")
    untouched = out.isnan() if out.is_floating_point() else out == UNTOUCHED
    written = ~untouched | (eager.isnan() if out.is_floating_point() else eager == UNTOUCHED)
    if not written.any():
        return Verdict(0.0, 0.0, "the blocks that ran wrote nothing")
    return check_leaf(out[written], eager[written], reference[written])
