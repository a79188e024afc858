"""The whole road: a captured PyTorch program in, a runnable program out, level by level.

`lower` (levels.py) leads from level to level: read it to know weft. `build` adds the C compiler,
the cache and the launch; `compile_text` starts from the text of any level.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from weft.core.collector import uncollected

with uncollected():  # modules stay, Dynamo's as well
    from weft.calling import compilation, compiled
    from weft.config import config
    from weft.core.node import Graph, Node
    from weft.core.passes import PassLog
    from weft.core.text import located
    from weft.explain.work import Work, work_of
    from weft.frontend import autograd
    from weft.frontend.graph import Captured, Known, Runner
    from weft.frontend.python import Frames
    from weft.frontend.specialise import Session
    from weft.frontend.stored import Store
    from weft.interpret import calls
    from weft.interpret import kernels as kernel_interpret
    from weft.interpret import nests as interpret
    from weft.interpret.tensors import evaluate, to_numpy
    from weft.levels import VERIFY, Levels, lower
    from weft.link import cpu, gpu, simulator
    from weft.link.places import device_of, misplaced, run_or_refuse
    from weft.link.program import (
        Emitted,
        Linked,
        described,
        make_report,
        once,
        without_restatements,
    )
    from weft.link.ranges import Ranges, in_ranges, told, within
    from weft.options import Fallback, Fuse, Options, Random, Search, Tune, find_target
    from weft.runtime.cache import Cache
    from weft.runtime.report import Report, merged
    from weft.runtime.tlparse import trace
    from weft.scalar.nest import Program, Rows
    from weft.scalar.ops import Symbol
    from weft.scalar.resize import (
        at_shapes,
        at_some_sizes,
        hints_of,
        sizes_in,
        sizes_of,
        sizes_of_rows,
        with_hints,
    )
    from weft.scalar.rows import at_mean
    from weft.targets.cpu import CPU
    from weft.targets.gpu import GPU
    from weft.text import parse_program
    from weft.tile.price.hints import price_for
    from weft.tune import tuner

# ---- captured programs


@dataclass
class Artifact:
    """Of one compiled graph: its report, and its levels (made again if it was cached)."""

    report: Report
    levels: Callable[[], Levels]
    options: Options
    launched: tuple[Mapping[int, int], Collection[int]]  # what it writes to inputs, and constants
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
    chosen = (replace(options, tune="off"), find_target(options.target), tuner.digest(options))
    ordered = torch.are_deterministic_algorithms_enabled()  # as when it was traced
    facts = (layouts, writes, constants, ordered, *chosen)
    digest = log.time("g", lambda: program_key(graph, *facts))
    known = Known(layouts, constants, captured.narrows, ordered=ordered)
    make = partial(uncollected()(lower), graph, options, log, known)
    levels = cache(make)
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
        run = called(linked, options, report)
    report.sizes = told(ranges, [n.op for n in sizes_of(graph).values()])  # type: ignore[misc]
    run = run_or_refuse(run, *where)
    run.artifact = Artifact(report, levels, options, (writes, constants))  # type: ignore[attr-defined]
    trace((*VERIFY, "source"), lambda level: levels().text(level))
    if options.tune == "now" and not (options.simulate or misplaced(*where[:2])):
        again = partial(build_near, graph, captured, replace(options, tune="cached"))
        anew = make if options.fuse == "greedy" else None

        def tune(tensors: Sequence[Any]) -> Any:
            return tuner.tune(levels(), tensors, options.target, anew)

        return tuner.Tuned(run, tune, again), ranges
    return run, ranges


def emitted_of(levels: Levels, options: Options, writes: Collection[int] = ()) -> Emitted:
    """The program as it is run, with what was emitted for it, and its price and work.

    `writes` are the outputs that are stored into inputs.
    """
    unique, made = levels.unique, levels.made
    program = unique.full if unique else made.get("tile", made["kernel"])
    first = (unique.program if unique else program).kernels
    sizes = *levels.sizes, *sizes_of_rows(program)
    price = price_for(find_target(options.target), sizes, 0)
    priced, work = {k.name: price(k.body) for k in first}, {k.name: work_of(k) for k in first}
    facts = (unique.all(priced), unique.all(work), unique.starts) if unique else (priced, work, {})
    for step in program.steps:
        if isinstance(step, Rows):
            usual, count = at_mean(step), len(step.rows)
            launch = find_target(options.target).launch_us
            facts[0][step.name] = launch + count * (price(usual.body) - launch)
            facts[1][step.name] = Work(*(count * n for n in work_of(usual)))
    texts = levels.symbols, levels.sources, levels.launches
    final = {levels.symbols[k.name]: k for k in made["kernel"].kernels}
    bodies = {name: final[symbol] for name, symbol in levels.symbols.items() if symbol in final}
    kept = [b.name for k in once(program, levels.known.constants) for b in k.outputs]
    plain = without_restatements(program, [program.outputs[i].name for i in writes], kept)
    return Emitted(plain, *texts, *facts, sizes=levels.sizes, bodies=bodies)


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
    target, emitted = find_target(options.target), emitted_of(levels, options, writes)
    program = emitted.program
    if isinstance(target, CPU):
        linked = log.time("cc", lambda: cpu.link(emitted, target, writes, constants, key))
    elif options.simulate or misplaced(place, target):
        extra = gpu.predicted_launches(emitted, target) if options.profile else described(emitted)
        return simulator.link(emitted, target, writes), make_report(extra, log, program.name)
    else:
        linked = log.time("cc", lambda: gpu.link(emitted, target, writes, place, key))
    report = make_report(linked.extra, log, program.name, linked)
    return called(linked, options, report), report


def called(linked: Linked, options: Options, report: Report) -> Runner:
    """The plain call of a program, or one that is timed into the report."""
    linked.program.drops_to = config.cache if options.drop else None
    return linked.runner(report if options.profile else None)


# ---- what users call


@dataclass(frozen=True)
class Builder:
    """The back end as the front end sees it: builds graphs, and tells what it built."""

    options: Options
    sizes: Mapping[str, Any] | None = None
    one_graph: bool = False  # a program that is not one graph is an error

    def __call__(self, captured: Captured) -> Runner:
        return build(captured, self.options)

    def session(self, title: str = "graph") -> Session:
        """What the graphs of one compiled callable share."""
        strict, free = self.one_graph or self.options.fallback == "error", self.options.frees_sizes
        fused, cache = self.options.random == "fused", Cache(config.cache)
        facts = self.options, compiler_digest()
        store = Store(facts, cache.read_bytes, cache.keep_bytes)
        store = None if self.options.verbose else store  # then all is to be seen
        how = free, self.sizes or {}, Frames, fused, store
        return Session(self, strict, config.debug, title, *how)

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
    drop: bool = False,
    fuse: Fuse = "greedy",
    fallback: Fallback = "aten",
    passes: str = "",
    schedule: str = "",
    tune: Tune = "cached",
    search: Search = "off",
    random: Random = "fused",
    verbose: int = 0,
    profile: bool = False,
    simulate: bool = False,
) -> Any:
    """Compile a module or function; also a decorator, with or without arguments.

    The result is called as the original: results, dtypes, strides and aliasing are eager's. Every
    signature (shapes, dtypes, device, mode) is compiled when first met; f.ir(level), f.report tell.

    target    "auto", "cpu", or another CPU's code: "cpu:avx512", cpu:avx2, cpu:neon ...; or a
              GPU's: "cuda", "cuda:sm_90a", "hip:gfx942", "opencl", "metal" ... (docs/GPU.md)
    dynamic   None, on a CPU: a size is fixed until a call has another, then one program is for all
              from 2 on; True: from the first call on; False: never. What decides the code is fixed
    sizes     promises, {"x": {0: (1, 4096)}}: dimension 0 of argument x is free from the first
              call on, in that range, a torch.export.Dim, or (1, None); of a list or dict such.
              WeftError at a call with another size; a warning where weft fixes it (an error with
              fallback="error"). dynamic=False, and a GPU without dynamic=True, only check sizes
    freeze    a promise: parameters and buffers are written only where torch can tell (in place,
              by load_state_dict), never by `.data` or NumPy. What they decide is kept, once
    drop      with freeze: memory of parameters kept in another form is given back (README)
    fuse      "greedy" by price, "none", or "all" wherever it is legal
    fallback  "aten" runs as ATen's what weft has no code for; "error" raises UnsupportedOpError
              there, and CaptureError where the program is not one graph (both are WeftErrors)
    passes    "-stage_inputs,-021" leaves out schedule passes, by name or number; "+" asks for one
    schedule  "softmax.vectors = 4", a line for each choice, as f.ir("schedule") prints them all
    tune      "cached" takes what `weft tune` found, "off" does not; "now" searches at first calls
    search    "on" reorders sums of products where cheaper, "deep" looks for longer (README)
    random    "fused" computes numbers where they are read, from a seed (README); "eager": eager's
    verbose   1 prints every pass and its time, 2 its diff as well
    profile   every call times each kernel into `f.report` (slow)
    simulate  run the kernels of a GPU target on the CPU (very slow), faults are WeftErrors
    """
    code = target, fuse, fallback, dynamic, freeze, drop, passes, schedule, tune, search, random
    build = Builder(Options(*code, verbose or config.verbose, profile, simulate), sizes)
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
    levels = uncollected()(lower)(program, options, log)
    run, report = runnable(levels, options, log, {}, place)
    run = run_or_refuse(run, place, target, options.simulate)
    return TextProgram(program, levels, report, run, place)


# ---- the cache key of a program: a digest of all that decides the emitted code


def bounds_of(symbol: Node) -> tuple[Any, ...]:
    """What of a size decides the code: not its hint, so that one entry serves all sizes."""
    s = symbol.op
    assert isinstance(s, Symbol)
    return s.label, s.low, s.high, s.divisor


@cache
def compiler_digest() -> str:
    """A digest of weft's own files: a program that another version compiled is not used."""
    root = Path(__file__).parent
    files = sorted(root.rglob("*.py"))
    stamps = [(str(f.relative_to(root)), f.stat().st_mtime_ns, f.stat().st_size) for f in files]
    return hashlib.sha256(repr(stamps).encode()).hexdigest()


def program_key(graph: Graph, *facts: Any) -> str:
    """A digest of a torch-level graph, whatever its title, and of all that decides its code."""
    lines = graph.rows()
    lines += map(repr, (*facts, *map(bounds_of, sizes_of(graph).values())))
    lines.append(compiler_digest())
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def relink(key: str, place: torch.device, target: CPU | GPU, simulate: bool) -> Linked | None:
    """The program that was linked under that key before, if the cache still has it."""
    if isinstance(target, CPU):
        return cpu.relink(key, target)
    return gpu.relink(key, place, target, simulate)
