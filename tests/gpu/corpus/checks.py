"""One program of the corpus, checked: compiled for every target, simulated, compared with float64.

row = examine(program)
row.kernels, row.spills, row.faults, row.misses      # what a table shows
row.failures                                         # sentences: what is wrong in which kernel

The simulator runs the default schedule of each target, then the one of sm_90a with each pass of
GPU_SCHEDULE left out; text that has been run already is not run again. What is too long for it
runs in part: faults are looked for in some blocks of every kernel, and a program of one kernel is
compared where these blocks have written.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from math import isfinite
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

import weft
from tests.agree.checks import fresh
from tests.gpu.corpus.program import Program
from tests.gpu.hip import spills_of
from weft import driver
from weft.cli.check import Verdict, check, check_leaf, run_reference
from weft.cli.program import Source
from weft.config import config
from weft.core.errors import CompilerError
from weft.options import Options
from weft.runtime.cache import Cache
from weft.runtime.opencl import find_device
from weft.scalar.affine import Ranges, bounds
from weft.scalar.nest import Block, For
from weft.scalar.ops import apply
from weft.scalar.reach import axis_range, longest
from weft.sim import simulate
from weft.simulating import placed, read
from weft.targets.gpu import GPUS
from weft.tile.schedule import GPU_PROGRAM, GPU_SCHEDULE

TARGETS = [name for name in GPUS if name.startswith("cuda")]
FIRST = "cuda:sm_90a"
LEFT_OUT = sorted({name[:3] for name, _ in (*GPU_PROGRAM, *GPU_SCHEDULE)})
HIP = "hip:gfx90a"
SLOW = 2_000_000_000  # statements of all threads: more are not run by OpenCL
LONG = 20_000_000  # statements of all threads: more are run in part
BLOCKS = 12  # of each kernel that runs in part
SECONDS = 300  # of one kernel in the simulator


@dataclass
class Row:
    """What was found; `schedules` were run, `partly` some of them, and `left` out as too long."""

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
    seconds: float = 0.0  # of processors
    failures: list[str] = field(default_factory=list)

    def fail(self, kind: str, message: str) -> None:
        setattr(self, kind, getattr(self, kind) + 1)
        self.failures.append(message)


def examine(program: Program, nvrtc: bool = True) -> Row:
    """Everything that the corpus asks of one program; what goes wrong is in the row."""
    started, row = spent(), Row(program.name)
    try:
        with torch.no_grad():
            check_program(program, row, nvrtc)
    except Exception as error:
        row.fail("errors", f"{type(error).__name__}: {error}")
    row.seconds = spent() - started
    return row


def spent() -> float:
    """Seconds of processors so far, those of programs that were run too."""
    return sum(os.times()[:4])


def check_program(program: Program, row: Row, nvrtc: bool) -> None:
    source = program.source()
    schedules = [(t, "") for t in TARGETS] + [(FIRST, f"-{number}") for number in LEFT_OUT]
    texts: dict[str, Options] = {}
    works: dict[str, tuple[int, int]] = {}
    for target, passes in schedules:
        options = Options(target, passes=passes, simulate=True, fallback="error")
        compiled = weft.compile(source.callable, **asdict(options))
        compiled.prepare(*source.args, **source.kwargs)
        text = compiled.ir("source")
        if not passes:
            row.kernels = max(row.kernels, len(compiled.report.kernels))
            if nvrtc and text.strip():
                check_resources(text, target, row)
        texts.setdefault(text, options)
        works.setdefault(text, work(compiled))
    runs = [(texts[text], *works[text]) for text in texts]
    if shutil.which("hipcc"):
        check_hip(source, row)
    if has_opencl() and min(runs, key=lambda run: run[1])[1] <= SLOW:
        runs.append((Options("opencl", fallback="error"), 0, 0))
    compared(source, runs, row)


@cache
def has_opencl() -> bool:
    try:
        find_device(config.opencl)
    except weft.WeftError:
        return False
    return True


def check_hip(source: Source, row: Row) -> None:
    """hipcc takes every kernel, and none spills."""
    compiled = weft.compile(source.callable, target=HIP, fallback="error")
    compiled.prepare(*source.args, **source.kwargs)
    try:
        spills = spills_of(compiled.ir("hip"), GPUS[HIP].arch)
    except CompilerError as error:
        return row.fail("errors", f"{HIP}: {error}")
    if sum(spills):
        row.fail("spills", f"{HIP}: kernels spill {sum(spills)} registers")
    return None


def work(compiled: Any) -> tuple[int, int]:
    """Statements that all threads of a program run through, and those of a few blocks alone."""
    levels = [p.artifact.levels() for p in compiled.programs]
    found = [
        (statements(kernel.body), each.launches[each.symbols[kernel.name]].grid)
        for each in levels
        for kernel in each.program("kernel").kernels
    ]
    return sum(n for n, _ in found), sum(n * min(BLOCKS, grid) // grid for n, grid in found)


def statements(block: Block, around: Ranges | None = None) -> int:
    """How many a nest runs through, at most."""
    ranges, total = around or {}, 0
    for stmt in block:
        if isinstance(stmt, For):
            gap = bounds(apply("subtract", stmt.hi, stmt.lo), ranges)[1]
            most = min(gap, longest(stmt.lo, stmt.hi) or gap)
            turns = -(-int(most) // stmt.step) if isfinite(most) else 1
            inside = {**ranges, stmt.axis: axis_range(stmt, ranges)}
            total += max(turns, 0) * statements(stmt.body, inside)
        else:
            total += 1
    return total


def check_resources(text: str, target: str, row: Row) -> None:
    """NVRTC takes every kernel, none spills, and each fits in a block's shared memory."""
    from weft.runtime.nvrtc import compile_cubin

    limit = GPUS[target].shared
    try:
        cubin = compile_cubin(text, GPUS[target].arch, Cache(config.cache))
    except CompilerError as error:
        return row.fail("errors", f"{target}: {error}")
    for kernel, used in cubin.kernels.items():
        if used.spill_bytes:  # a stack alone is what sin and cos of large values take
            told = f"spills {used.spill_bytes} bytes ({used.registers} registers)"
            row.fail("spills", f"{target}: kernel {kernel} {told}")
        if used.shared_bytes > limit:
            row.fail("errors", f"{target}: kernel {kernel} has {used.shared_bytes} bytes of shared "
                               f"memory, of {limit}")  # fmt: skip
    return None


def compared(source: Source, schedules: list[tuple[Options, int, int]], row: Row) -> None:
    """Each schedule in the simulator, against eager and eager in float64."""
    eager = source.callable(*fresh(source.args), **source.kwargs)
    reference = run_reference(source)
    for options, everything, part in schedules:
        passes = f" --passes={options.passes}" if options.passes else ""
        where = f"{options.target}{passes}"
        run = whole if everything <= LONG else in_part
        if run is in_part and part > LONG:
            row.left += 1
            continue
        row.schedules += 1
        row.partly += run is in_part
        try:
            verdicts = run(source, options, eager, reference)
        except weft.WeftError as error:
            row.fail("faults" if "has faults" in str(error) else "errors", f"{where}: {error}")
            continue
        for i, verdict in enumerate(verdicts):
            if not verdict.passed:
                told = verdict.reason or f"error {verdict.error:.1e}, allowed {verdict.limit:.1e}"
                row.fail("misses", f"{where}: result {i}: {told}")


def whole(source: Source, options: Options, eager: Any, reference: Any) -> list[Verdict]:
    compiled = weft.compile(source.callable, **asdict(options))
    return check(compiled(*fresh(source.args), **source.kwargs), eager, reference)


# ---- in part


def in_part(source: Source, options: Options, eager: Any, reference: Any) -> list[Verdict]:
    """Some blocks of each kernel; results count where they are written."""
    sampler = Sampler(options)
    compiled = driver.compiled(source.callable, sampler, True)
    out = compiled(*fresh(source.args), **source.kwargs)
    if not sampler.single:
        return []
    trees = (pytree.tree_leaves(tree) for tree in (out, eager, reference))
    return [one_verdict(*leaves) for leaves in zip(*trees, strict=True)]


def one_verdict(out: torch.Tensor, eager: torch.Tensor, reference: torch.Tensor) -> Verdict:
    """Of the elements that are not as they were."""
    if out.stride() != eager.stride():
        return Verdict(0.0, 0.0, f"strides {out.stride()}, eager gives {eager.stride()}")
    untouched = out.isnan() if out.is_floating_point() else out == UNTOUCHED
    written = ~untouched | (eager.isnan() if out.is_floating_point() else eager == UNTOUCHED)
    if not written.any():
        return Verdict(0.0, 0.0, "the blocks that ran wrote nothing")
    return check_leaf(out[written], eager[written], reference[written])


UNTOUCHED = 77


class Sampler(driver.Builder):
    """The driver's builder, with a runner of a few blocks of each kernel."""

    single = False

    def __call__(self, captured: Any) -> Any:
        artifact = super().__call__(captured).artifact  # type: ignore[attr-defined]
        levels = artifact.levels()
        target = GPUS[self.options.target]
        program = driver.without_restatements(levels.unique.full)
        object.__setattr__(self, "single", len(program.steps) == 1)
        assert not captured.mutations, "what runs in part writes no argument"

        def run(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
            given = zip(program.inputs, tensors, strict=True)
            memory = {b.name: placed(t, b) for b, t in given}
            for step in program.kernels:
                for b in step.outputs:
                    memory[b.name] = unwritten(b, self.single)
                symbol = levels.symbols[step.name]
                launch = levels.launches[symbol]
                args = [memory[b.name] for b in (*step.inputs, *step.outputs)]
                report = simulate(
                    launch.source, symbol, launch.grid, launch.block, args,
                    arch=target.arch, sample=BLOCKS, seconds=SECONDS,
                )  # fmt: skip
                if report.faults:
                    told = f"kernel {step.name} has faults in the simulator:\n{report}"
                    raise weft.WeftError(told)
            return [read(memory[b.name], b) for b in program.outputs]

        run.artifact = artifact  # type: ignore[attr-defined]
        return run


def unwritten(buffer: Any, marked: bool) -> np.ndarray:
    """Memory of a buffer; `marked` where it tells what has been written."""
    array = np.zeros(max(1, buffer.type.span), buffer.type.dtype.word.numpy)
    if marked:
        array.fill(np.nan if buffer.type.dtype.is_float else UNTOUCHED)
    return array
