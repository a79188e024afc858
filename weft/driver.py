"""The whole road: a captured PyTorch program in, a runnable program out, level by level.

Read `lower_graph` to know weft: torch -> tensor -> loop -> tile -> kernel -> source, each level a
list of named passes. `build` adds the C compiler, the cache and the launch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import torch

from weft.config import config
from weft.core.errors import WeftError
from weft.core.graph import Graph
from weft.core.passes import PassLog
from weft.core.text import located, parse_program, print_program
from weft.emit.c import emit_kernel
from weft.emit.spelling import Names
from weft.frontend import autograd, torch_level
from weft.frontend import text as torch_text
from weft.frontend.calling import compiled
from weft.frontend.graph import Captured, Runner
from weft.frontend.lower import to_tensor
from weft.kernel import interpret as kernel_interpret
from weft.kernel import text as kernel_text
from weft.kernel import verify as kernel_verify
from weft.linking import Linked, link, program_key, reload
from weft.loop import verify as loop_verify
from weft.options import Fallback, Fuse, Options, find_target
from weft.runtime.report import KernelReport, Report, merged
from weft.scalar import interpret
from weft.scalar import text as nest_text
from weft.scalar.nest import Program
from weft.scalar.structure import Unique
from weft.tensor import lower as tensor_lower
from weft.tensor import text as tensor_text
from weft.tensor import verify as tensor_verify
from weft.tensor.evaluate import evaluate, to_numpy
from weft.tensor.fuse import partition
from weft.tensor.pairs import pair_bf16
from weft.tensor.rules import simplify
from weft.tensor.statistics import fold_in_one_pass
from weft.tile import lower as tile_lower
from weft.tile import verify as tile_verify
from weft.tile.cost import kernel_time_us
from weft.tile.merge_rows import merge_rows
from weft.tile.pack_constants import pack_constants
from weft.tile.schedule import CPU_SCHEDULE, Step

TEXTS = (torch_text, tensor_text, nest_text, kernel_text)  # importing one registers its level

# What times are kept under (the letters of -vv), and what a report calls them.
STAGES = {
    "capture": "capture", "g": "torch", "n": "tensor", "l": "loop", "t": "tile", "k": "kernel",
    "s": "source", "cc": "compiler",
}  # fmt: skip


@dataclass(frozen=True)
class Levels:
    """One program at every level it has been lowered through.

    Below the loop level only one kernel of each structure is lowered; `tile` and `kernel` are
    whole programs again, made when they are asked for.
    """

    torch: Graph | None = None
    tensor: Graph | None = None
    loop: Program | None = None
    scheduled: Program | None = None
    lowered: Program | None = None
    unique: Unique | None = None
    sources: dict[str, str] = field(default_factory=dict)
    symbols: dict[str, str] = field(default_factory=dict)  # kernel -> C function

    @cached_property
    def tile(self) -> Program | None:
        return self._whole(self.scheduled)

    @cached_property
    def kernel(self) -> Program | None:
        return self._whole(self.lowered)

    def _whole(self, program: Program | None) -> Program | None:
        if program is None or self.unique is None:
            return program
        return self.unique.restore(program)


def lower_graph(
    graph: Graph, options: Options, log: PassLog, layouts: Any = None, fixed: Collection[int] = ()
) -> Levels:
    """From the torch level to C: the whole compiler, in order."""
    target = find_target(options.target)
    tensor = log.time("n", lambda: to_tensor(graph, options.fallback))
    tensor = log.run("n", "001_simplify", lambda g: simplify(g, log.fired), tensor, print_program)
    one_pass = partial(fold_in_one_pass, price=partial(kernel_time_us, target=target))
    tensor = log.run("n", "002_fold_in_one_pass", one_pass, tensor, print_program)
    if target.pairs:
        tensor = log.run("n", "003_pair_bf16", pair_bf16, tensor, print_program)
    return replace(lower_tensor(tensor, options, log, layouts, fixed), torch=graph)


def lower_tensor(
    tensor: Graph, options: Options, log: PassLog, layouts: Any = None, fixed: Collection[int] = ()
) -> Levels:
    """From the tensor level on (IR text)."""
    target = find_target(options.target)
    price = partial(kernel_time_us, target=target)
    groups = log.time("l", lambda: partition(tensor, price, options.fuse))
    loop = log.time("l", lambda: tensor_lower.lower(tensor, groups, layouts))
    pack = partial(pack_constants, constants=fixed, target=target)
    loop = log.run("l", "001_pack_constants", pack, loop, print_program)
    if options.fuse == "greedy":
        merge = partial(merge_rows, price=price, target=target)
        loop = log.run("l", "002_merge_rows", merge, loop, print_program)
    return replace(lower_loop(loop, options, log), tensor=tensor)


def lower_loop(loop: Program, options: Options, log: PassLog) -> Levels:
    """Schedule, materialise and emit; kernels of one structure go the way once."""
    target = find_target(options.target)
    unique = Unique(loop)
    tile = replace(unique.program, level="tile")
    for name, schedule in CPU_SCHEDULE:

        def change(program: Program, step: Step = schedule) -> Program:
            return program.map_kernels("tile", lambda kernel: step(kernel, target))

        tile = log.run("t", name, change, tile, print_program)
    made = lower_tile(tile, log)
    return replace(made, loop=loop, unique=unique, symbols=unique.all(made.symbols))


def lower_tile(tile: Program, log: PassLog) -> Levels:
    """From the tile level on (IR text)."""
    kernel = log.time("k", lambda: tile_lower.lower(tile))
    return replace(lower_kernel(kernel, log), scheduled=tile)


def lower_kernel(kernel: Program, log: PassLog) -> Levels:
    """From the kernel level on (IR text)."""
    names = Names()
    symbols = {k.name: names.of(f"k_{k.name}") for k in kernel.kernels}
    named = [(symbols[k.name], k) for k in kernel.kernels]
    sources = log.time("s", lambda: {name: emit_kernel(k, name) for name, k in named})
    return Levels(lowered=kernel, sources=sources, symbols=symbols)


# ---- captured programs


@dataclass
class Artifact:
    """One compiled graph: its runner, its report, and its levels (made again if it was cached)."""

    run: Runner
    report: Report
    levels: Callable[[], Levels]

    def ir(self, level: str) -> str:
        return level_text(self.levels(), level)


def level_text(levels: Levels, level: str) -> str:
    """Text of one level; `source` and `c` are the emitted files."""
    if level in ("source", "c"):
        return "\n".join(levels.sources.values())
    if level not in ("torch", "tensor", "loop", "tile", "kernel"):
        raise WeftError(f"unknown level {level!r}: torch, tensor, loop, tile, kernel, source, c")
    program = getattr(levels, level)
    if program is None:
        raise WeftError(f"this program started below the {level} level")
    return print_program(program)


def build(captured: Captured, options: Options) -> Runner:
    """What runs a captured program: from the cache when it was compiled before."""
    log = PassLog(options.verbose)
    log.seconds["capture"] = captured.seconds
    graph = log.time("g", lambda: torch_level.from_captured(captured))
    stored = [captured.placeholders[m.placeholder].value for m in captured.mutations]
    layouts = tuple(torch_level.type_of(r.meta) for r in (*captured.results, *stored))
    writes = {len(captured.results) + i: m.placeholder for i, m in enumerate(captured.mutations)}
    constants = captured.constants()
    key = program_key(graph, layouts, writes, constants, options, find_target(options.target))
    made: list[Levels] = []

    def levels() -> Levels:
        if not made:
            made.append(lower_graph(graph, options, PassLog(), layouts, constants))
        return made[0]

    linked = log.time("cc", lambda: reload(key)) if options.verbose == 0 else None
    if linked is None:
        made.append(lower_graph(graph, options, log, layouts, constants))
        linked = _link(made[0], options, log, writes, constants, key)
    report = make_report(linked, log, captured.name)
    artifact = Artifact(runner(linked, report, options), report, levels)
    artifact.run.artifact = artifact  # type: ignore[attr-defined]
    return artifact.run


def runner(linked: Linked, report: Report, options: Options) -> Runner:
    """The program's plain call; with `profile`, one that also times its steps into the report."""
    if not options.profile:
        return linked.program.run

    def run(tensors: Sequence[torch.Tensor]) -> Sequence[Any]:
        report.measure(*linked.step_times(tensors))
        return linked.program.run(tensors)

    return run


def _link(
    levels: Levels,
    options: Options,
    log: PassLog,
    writes: dict[int, int],
    constants: Collection[int],
    key: str | None,
) -> Linked:
    target = find_target(options.target)
    program = levels.loop or levels.scheduled or levels.lowered
    assert program is not None
    first = levels.unique.program if levels.unique else program
    predicted = {k.name: kernel_time_us(k.body, target) for k in first.kernels}
    predicted = levels.unique.all(predicted) if levels.unique else predicted
    facts = (levels.sources, levels.symbols, predicted, writes, constants, key)
    return log.time("cc", lambda: link(program, *facts))


def make_report(linked: Linked, log: PassLog, name: str) -> Report:
    kernels = [KernelReport(**k) for k in linked.extra["kernels"]]
    externs = [(e[0], e[1], e[2]) for e in linked.extra["externs"]]
    seconds = {name: log.seconds[key] for key, name in STAGES.items() if key in log.seconds}
    return Report(name, kernels, externs, seconds, linked.program.arena_bytes, linked.cached)


# ---- what users call


@dataclass(frozen=True)
class Builder:
    """The back end as the front end sees it: builds graphs, and tells what it built."""

    options: Options

    def __call__(self, captured: Captured) -> Runner:
        return build(captured, self.options)

    def ir(self, programs: Sequence[Runner], level: str) -> str:
        return "\n".join(p.artifact.ir(level) for p in programs)  # type: ignore[attr-defined]

    def report(self, programs: Sequence[Runner], reasons: Sequence[str]) -> Report:
        return merged([p.artifact.report for p in programs], reasons)  # type: ignore[attr-defined]


def compile(
    fn: Callable[..., Any] | None = None,
    *,
    target: str = "auto",
    dynamic: bool | None = None,
    fuse: Fuse = "greedy",
    fallback: Fallback = "aten",
    verbose: int = 0,
    profile: bool = False,
) -> Any:
    """Compile a module or function; also a decorator, with or without arguments.

    The result is called as the original: results, dtypes, strides and aliasing are eager's.
    Every signature (shapes, dtypes, strides, device, mode) is compiled when it is first met,
    whatever `dynamic` says. What only parameters decide is computed once, and again when they
    change (an update of single elements through `.data` may go unseen). `f.ir(level)` is the text
    of a level, `f.report` what was made.

    target    "auto", "cpu", or another CPU's code: "cpu:avx512", cpu:avx2, cpu:neon ...
    fuse      "greedy" by price, "none", or "all" wherever it is legal
    fallback  "aten" runs as ATen's what weft has no code for; "error" raises UnsupportedOpError
              there, and CaptureError where the program is not one graph (both are WeftErrors)
    verbose   1 prints every pass and its time, 2 its diff as well
    profile   every call times each kernel into `f.report` (slow)
    """
    options = Options(target, fuse, fallback, dynamic, verbose or config.verbose, profile)
    if fn is None:
        return partial(compiled, build=Builder(options), one_graph=fallback == "error")
    return compiled(fn, Builder(options), fallback == "error")


def graph_backend(**options: Any) -> Callable[..., Any]:
    """A Dynamo backend with these options."""
    return autograd.graph_backend(Builder(Options.of(options)))


# ---- IR text

VERIFY: dict[str, Callable[[Any], None]] = {
    "torch": torch_level.verify,
    "tensor": tensor_verify.verify,
    "loop": loop_verify.verify,
    "tile": tile_verify.verify,
    "kernel": kernel_verify.verify,
}


@dataclass
class TextProgram:
    """A program that was read from IR text of any level: called with its inputs, in order."""

    program: Graph | Program
    levels: Levels
    report: Report
    run: Runner

    @property
    def inputs(self) -> list[tuple[str, str, tuple[int, ...]]]:
        """Name, dtype and shape of every input."""
        return [(b.name, str(b.type.dtype), b.type.shape) for b in self._kernel.inputs]

    @property
    def _kernel(self) -> Program:
        assert self.levels.kernel is not None
        return self.levels.kernel

    def prepare(self, *args: Any, **kwargs: Any) -> TextProgram:
        return self

    def __call__(self, *args: torch.Tensor) -> Any:
        given = [
            torch.empty_strided(b.type.shape, b.type.layout, dtype=a.dtype).copy_(a)
            for a, b in zip(args, self._kernel.inputs, strict=True)
        ]
        out = self.run(given)
        return out[0] if len(out) == 1 else out

    def ir(self, level: str) -> str:
        return level_text(self.levels, level)

    def interpret(self, *args: torch.Tensor) -> list[Any]:
        """What the level's own interpreter gives in float64: the reference of a check."""
        if self.program.level == "torch":
            return torch_level.evaluate(self.program, list(args), double=True)  # type: ignore[arg-type]
        arrays = [to_numpy(a) for a in args]
        if isinstance(self.program, Graph):
            return list(evaluate(self.program, arrays, widen=True))
        run = kernel_interpret.run if self.program.level == "kernel" else interpret.run
        return list(run(self.program, arrays, widen=True))


def compile_text(
    text: str, options: Options | None = None, filename: str = "<text>"
) -> TextProgram:
    """Start from IR text of any level, torch to kernel; ParseError or VerifyError names a line."""
    options = options or Options()
    log = PassLog(options.verbose)
    program = parse_program(text, filename)
    with located(text, filename):
        VERIFY[program.level](program)
    lower = {"torch": lower_graph, "tensor": lower_tensor, "loop": lower_loop}
    if program.level in lower:
        levels = lower[program.level](program, options, log)
    else:
        levels = {"tile": lower_tile, "kernel": lower_kernel}[program.level](program, log)
    linked = _link(levels, options, log, {}, (), None)
    report = make_report(linked, log, program.name)
    return TextProgram(program, levels, report, runner(linked, report, options))
