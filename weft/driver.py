"""The whole road: a captured PyTorch program in, a runnable program out, level by level.

Read `lower` to know weft: torch -> tensor -> loop -> tile -> kernel -> source, each level a
list of named passes. `build` adds the C compiler, the cache and the launch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

import torch

from weft.config import config
from weft.core.errors import WeftError, choice
from weft.core.graph import Graph
from weft.core.node import Node
from weft.core.passes import PassLog, call_by_name
from weft.core.text import located
from weft.emit.gpu import Launch
from weft.emit.languages import LANGUAGES
from weft.emit.sources import sources_of
from weft.frontend import autograd, torch_level
from weft.frontend.calling import compilation, compiled
from weft.frontend.graph import KNOWN, Captured, Known, Runner
from weft.frontend.lower import to_tensor
from weft.frontend.python import Frames
from weft.frontend.specialise import Session
from weft.interpret import calls
from weft.interpret import kernels as kernel_interpret
from weft.interpret import nests as interpret
from weft.interpret.tensors import evaluate, to_numpy
from weft.kernel import verify as kernel_verify
from weft.kernel.schedule import GPU_THREADS
from weft.link import cpu, gpu, simulator
from weft.link.key import program_key, relink
from weft.link.places import device_of, misplaced, run_or_refuse
from weft.link.program import Emitted, described, make_report, without_restatements
from weft.link.ranges import Ranges, in_ranges, told, within
from weft.loop import verify as loop_verify
from weft.options import Fallback, Fuse, Options, find_target
from weft.runtime.report import Report, merged
from weft.runtime.tlparse import trace
from weft.scalar.nest import Kernel, Program
from weft.scalar.resize import at_shapes, at_some_sizes, hints_of, sizes_in, sizes_of, with_hints
from weft.scalar.sizes import Size
from weft.scalar.unique import Unique
from weft.targets.cpu import CPU
from weft.targets.gpu import GPU
from weft.tensor import lower as tensor_lower
from weft.tensor import verify as tensor_verify
from weft.tensor.fuse import partition
from weft.tensor.pairs import pair_bf16
from weft.tensor.rules import simplify
from weft.tensor.statistics import fold_in_one_pass
from weft.text import parse_program, print_program
from weft.tile import verify as tile_verify
from weft.tile.lower import kernels as tile_lower
from weft.tile.moves.loops import distinct
from weft.tile.price.hints import price_for, ranges_around, thought_large
from weft.tile.price.tables import tables
from weft.tile.schedule import check_machine, schedule_for


@dataclass(frozen=True)
class Levels:
    """One program at every level it has been lowered through.

    Below the loop level `made` has only one kernel of each structure, which `unique` tells.
    """

    made: Mapping[str, Any]  # by level
    unique: Unique | None
    sources: Mapping[str, str]
    symbols: Mapping[str, str]  # kernel -> C function
    launches: Mapping[str, Launch]  # of GPU kernels, by symbol
    language: str  # of the sources
    sizes: tuple[Node, ...] = ()  # the symbols that a call has values for, in order
    near: Mapping[Size, tuple[int, int]] = field(default_factory=dict)  # where it is near the best

    def program(self, level: str) -> Any:
        """The whole program at that level; WeftError where it started below."""
        if level not in self.made:
            raise WeftError(f"this program started below the {level} level")
        partly = self.unique is not None and level in ("tile", "kernel")
        return self.unique.restore(self.made[level]) if partly else self.made[level]  # type: ignore[union-attr]

    def text(self, level: str) -> str:
        """Text of one level; `source` and the name of its language are the emitted files."""
        if level in ("source", self.language):
            return "\n".join(self.sources.values())
        if level in ("c", *LANGUAGES):
            told = f"the sources for this target are {self.language}, not {level}"
            raise WeftError(f"{told}: choose a target of that language")
        choice("level", level, (*VERIFY, "source", "c", *LANGUAGES))
        return print_program(self.program(level))


def on_kernels(program: Program, step: Callable[..., Kernel], **facts: Any) -> Program:
    """One step of the schedule on every kernel; of the facts it takes those that it names."""
    return program.map_kernels(program.level, lambda k: call_by_name(step, {**facts, "kernel": k}))


def lower(start: Any, options: Options, log: PassLog, known: Known = KNOWN) -> Levels:
    """From a program of any level to C: the whole compiler, in order."""
    target = find_target(options.target)
    schedule = schedule_for(target, options.left_out, merges=options.fuse == "greedy")
    on_gpu, met, sizes = isinstance(target, GPU), hints_of(start), partial(tables, target=target)
    narrows, program = known.narrows and not on_gpu, start
    made, unique, near = {program.level: program}, None, dict[Size, tuple[int, int]]()

    def take(changed: Any) -> None:
        nonlocal program
        program = made[changed.level] = distinct(changed)

    def run(letter: str, change: Callable[[Any], Any], name: str = "") -> None:
        take(log.run(letter, name, change, program, print_program))

    if program.level == "torch":
        run("n", partial(to_tensor, fallback=options.fallback))
        take(thought_large(program, known.few or ()) if narrows else program)
    layouts, free = with_hints((known.layouts, tuple(sizes_of(start).values())), hints_of(program))
    price = price_for(target, free)
    if start.level == "torch":
        run("n", lambda graph: simplify(graph, log.fired), "001_simplify")
        run("n", partial(fold_in_one_pass, price=price), "002_fold_in_one_pass")
        if target.pairs:
            run("n", pair_bf16, "003_pair_bf16")
    if program.level == "tensor":
        groups = log.time("l", lambda: partition(program, price, target, options.fuse))
        run("l", partial(tensor_lower.lower, groups=groups, layouts=layouts, tables=sizes))
        facts = {"target": target, "price": price, "constants": known.constants}
        for name, step in schedule.program:
            run("l", lambda p, step=step: call_by_name(step, {**facts, "program": p}), name)
    if program.level == "loop":
        if narrows:
            near, few = log.time("t", lambda: ranges_around(program, met, known.few, target))
            if few != known.few:
                return lower(start, options, log, known._replace(few=few))
        unique = Unique(program, starts=isinstance(target, CPU) and not free)
        take(replace(unique.program, level="tile"))
        for name, step in schedule.kernels:
            run("t", partial(on_kernels, step=step, target=target, near=near), name)
    check_machine(program, target)
    if program.level == "tile":
        run("k", tile_lower.lower)
        for name, step in GPU_THREADS if on_gpu else ():
            run("k", partial(on_kernels, step=step, target=target), name)
    symbols, sources, launches = log.time("s", lambda: sources_of(made, target, [*sizes_of(start)]))
    named = unique.all(symbols) if unique else symbols
    return Levels(made, unique, sources, named, launches, target.language, free, near)


# ---- captured programs


@dataclass
class Artifact:
    """Of one compiled graph: its report, and its levels (made again if it was cached)."""

    report: Report
    levels: Callable[[], Levels]
    others: list[Artifact] = field(default_factory=list["Artifact"])  # for other sizes

    def all(self) -> list[Artifact]:
        return [self, *self.others]


def build(captured: Captured, options: Options) -> Runner:
    """What runs a captured program, for any size by programs for ranges of its sizes."""
    return in_ranges(captured.graph, lambda graph: build_near(graph, captured, options))


def build_near(graph: Graph, captured: Captured, options: Options) -> tuple[Runner, Ranges]:
    """What runs the graph near the hints of its sizes, and the ranges that it is good for."""
    options, log = options.on(captured.place), PassLog(options.verbose)
    log.seconds["capture"] = captured.seconds if graph is captured.graph else 0.0
    layouts = with_hints(captured.layouts, hints_of(graph))
    writes = dict(enumerate(captured.mutations, len(graph.outputs) - len(captured.mutations)))
    constants = captured.constants() if options.freeze else ()
    facts = (layouts, writes, constants, options, find_target(options.target))
    digest = log.time("g", lambda: program_key(graph, *facts))
    levels = cache(partial(lower, graph, options, log, Known(layouts, constants, captured.narrows)))
    met = hints_of(graph) if captured.narrows else {}
    placed = partial(within, digest, met, lambda: levels().near)
    key, ranges = placed(options.verbose == 0)
    where = (captured.place, find_target(options.target), options.simulate)
    linked = log.time("cc", lambda: relink(key, *where)) if options.verbose == 0 else None
    if linked is None:
        key, ranges = placed(False)  # its own: what was noted may be that of another, now gone
        own = None if options.verbose else key  # what was printed runs, not another of that key
        facts = (writes, captured.place, constants, own)
        run, report = runnable(levels(), options, log, *facts)
    else:
        report = make_report(linked.extra, log, graph.name, linked)
        run = linked.runner(report if options.profile else None)
    report.sizes = told(ranges, [n.op for n in sizes_of(graph).values()])  # type: ignore[misc]
    run = run_or_refuse(run, *where)
    run.artifact = Artifact(report, levels)  # type: ignore[attr-defined]
    trace((*VERIFY, "source"), lambda level: levels().text(level))
    return run, ranges


def runnable(
    levels: Levels,
    options: Options,
    log: PassLog,
    writes: dict[int, int],
    place: torch.device,
    constants: Collection[int] = (),
    key: str | None = None,
) -> tuple[Runner, Report]:
    """What runs the program on its target, and the report of it."""
    target = find_target(options.target)
    unique, made = levels.unique, levels.made
    program = unique.full if unique else made.get("tile", made["kernel"])
    first = unique.program if unique else program
    price = price_for(target, levels.sizes, 0)
    priced = {k.name: price(k.body) for k in first.kernels}
    facts = (unique.all(priced), unique.starts) if unique else (priced, {})
    program = without_restatements(program)
    texts = levels.symbols, levels.sources, levels.launches
    emitted = Emitted(program, *texts, *facts, sizes=levels.sizes)
    if isinstance(target, CPU):
        linked = log.time("cc", lambda: cpu.link(emitted, target, writes, constants, key))
    elif options.simulate or misplaced(place, target):
        extra = gpu.predicted_launches(emitted, target) if options.profile else described(emitted)
        return simulator.link(emitted, target, writes), make_report(extra, log, program.name)
    else:
        linked = log.time("cc", lambda: gpu.link(emitted, target, writes, place, key))
    report = make_report(linked.extra, log, program.name, linked)
    return linked.runner(report if options.profile else None), report


# ---- what users call


@dataclass(frozen=True)
class Builder:
    """The back end as the front end sees it: builds graphs, and tells what it built."""

    options: Options
    sizes: Mapping[str, Any] | None = None

    def __call__(self, captured: Captured) -> Runner:
        return build(captured, self.options)

    def session(self, title: str = "graph") -> Session:
        """What the graphs of one compiled callable share."""
        strict, free = self.options.fallback == "error", self.options.frees_sizes
        return Session(self, strict, config.debug, title, free, self.sizes or {}, Frames)

    def ir(self, programs: Sequence[Runner], level: str) -> str:
        return "\n".join(a.levels().text(level) for p in programs for a in p.artifact.all())  # type: ignore[attr-defined]

    def report(self, programs: Sequence[Runner], reasons: Sequence[str]) -> Report:
        return merged([a.report for p in programs for a in p.artifact.all()], reasons)  # type: ignore[attr-defined]


def compile(
    fn: Callable[..., Any] | None = None,
    *,
    target: str = "auto",
    dynamic: bool | None = None,
    sizes: Mapping[str, Any] | None = None,
    freeze: bool = False,
    fuse: Fuse = "greedy",
    fallback: Fallback = "aten",
    passes: str = "",
    verbose: int = 0,
    profile: bool = False,
    simulate: bool = False,
) -> Any:
    """Compile a module or function; also a decorator, with or without arguments.

    The result is called as the original: results, dtypes, strides and aliasing are eager's.
    Every signature (shapes, dtypes, strides, device, mode) is compiled when it is first met.
    `f.ir(level)` is the text of a level, `f.report` what was made.

    target    "auto", "cpu", or another CPU's code: "cpu:avx512", cpu:avx2, cpu:neon ...; or a
              GPU's: "cuda", "cuda:sm_90a", "hip:gfx942", "opencl", "metal" ... (docs/GPU.md)
    dynamic   None, on a CPU: a size is a number until a call has another one, then one program is
              for all from 2 on; True: from the first call on; False: each has its own. A size that
              decides what the program does is fixed
    sizes     promises, {"x": {0: (1, 4096)}}: dimension 0 of argument x is free from the first
              call on and within that range, which may be a torch.export.Dim, or (1, None). Of an
              argument that is a list or a dict it is a list or a dict of such. WeftError at a
              call with another size of what the program reads, and where the program takes only
              some; a warning where weft has to fix it (an error with fallback="error").
              With dynamic=False, and for a GPU without dynamic=True, sizes are checked and not free
    freeze    a promise: parameters and buffers are written only where torch can tell (in place,
              by an optimizer, by load_state_dict), never through `.data`, NumPy or another process.
              What they alone decide, such as packed weights, is then kept between calls
    fuse      "greedy" by price, "none", or "all" wherever it is legal
    fallback  "aten" runs as ATen's what weft has no code for; "error" raises UnsupportedOpError
              there, and CaptureError where the program is not one graph (both are WeftErrors)
    passes    "-stage_inputs,-021" leaves out schedule passes, by name or number
    verbose   1 prints every pass and its time, 2 its diff as well
    profile   every call times each kernel into `f.report` (slow)
    simulate  run the kernels of a GPU target on the CPU (very slow), faults are WeftErrors
    """
    shown = verbose or config.verbose
    options = Options(target, fuse, fallback, dynamic, freeze, passes, shown, profile, simulate)
    build = Builder(options, sizes)
    return partial(compiled, build=build) if fn is None else compiled(fn, build)


SESSIONS: dict[Options, Session] = {}  # of torch.compile(backend="weft"), by its options


def graph_backend(**options: Any) -> Callable[..., Any]:
    """A Dynamo backend with these options."""
    chosen = Options.of(options)
    session = SESSIONS.setdefault(chosen, Builder(chosen).session("torch.compile"))
    return autograd.graph_backend(session)


def report(f: Any = None) -> Report:
    """What became of a compiled callable: f.report, also where `f` has a `report` of its own.

    Without `f`, of all that torch.compile(backend="weft") has compiled in this process.
    """
    if f is not None:
        return compilation(f).report
    programs = [p for session in SESSIONS.values() for p in session.programs]
    reasons = [reason for session in SESSIONS.values() for reason in session.reasons]
    return Builder(Options()).report(programs, reasons)


def ir(f: Any, level: str) -> str:
    """f.ir(level), also where `f` has an `ir` of its own."""
    return compilation(f).ir(level)


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
    place: torch.device

    @property
    def inputs(self) -> list[tuple[str, str, tuple[int, ...]]]:
        """Name, dtype and shape of every input; a size that is no number has its hint there."""
        given = next(at_some_sizes(self.levels.made["kernel"])).inputs
        return [(b.name, str(b.type.dtype), b.type.shape) for b in given]

    def __call__(self, *args: torch.Tensor) -> Any:
        whole, shapes = self.levels.made["kernel"], [tuple(a.shape) for a in args]
        sizes, program = sizes_in(whole, shapes), at_shapes(whole, shapes)
        given = zip(args, [(b.type.shape, b.type.layout) for b in program.inputs], strict=True)
        tensors = [a.new_empty_strided(*t, device=self.place).copy_(a) for a, t in given]
        out = self.run((*tensors, *sizes.values()))
        return out[0] if len(out) == 1 else out

    def ir(self, level: str) -> str:
        return self.levels.text(level)

    def interpret(self, *args: torch.Tensor) -> list[Any]:
        """What the level's own interpreter gives in float64: the reference of a check."""
        if self.program.level == "torch":
            return calls.evaluate(self.program, list(args), double=True)  # type: ignore[arg-type]
        arrays = [to_numpy(a) for a in args]
        if isinstance(self.program, Graph):
            return list(evaluate(self.program, arrays, widen=True))
        run = kernel_interpret.run if self.program.level == "kernel" else interpret.run
        return list(run(self.program, arrays, widen=True))


def compile_text(
    text: str, options: Options | None = None, filename: str = "<text>"
) -> TextProgram:
    """Start from IR text of any level, torch to kernel; ParseError or VerifyError names a line."""
    options = (options or Options()).on(torch.device("cpu"))
    target = find_target(options.target)
    place = device_of(target, options.simulate)
    log = PassLog(options.verbose)
    program = parse_program(text, filename)
    with located(text, filename):
        VERIFY[program.level](program)
    levels = lower(program, options, log)
    run, report = runnable(levels, options, log, {}, place)
    run = run_or_refuse(run, place, target, options.simulate)
    return TextProgram(program, levels, report, run, place)
