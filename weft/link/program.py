"""Emitted and linked programs, and the launch spec: a program's buffers and steps for the runtime.

spec = make_spec(Emitted(program, symbols, sources, {}, predicted, work, {}), writes, constants)
linked.runner(report)(tensors)      # a Linked program, run, with its steps timed into the report
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import torch

from weft import runtime
from weft.core.node import Node
from weft.core.passes import PassLog
from weft.core.types import Symbolic
from weft.library.calls import WROTE
from weft.runtime.collectives import unified
from weft.runtime.gpu_program import GPUProgram
from weft.runtime.opencl import OpenCLProgram
from weft.runtime.report import KernelReport, Report
from weft.scalar.blocks import combining, keeps, loops_in
from weft.scalar.nest import Buffer, Call, Kernel, Program, Rows
from weft.scalar.resize import sizes_of
from weft.scalar.structure import copies, is_checked, restates

WRITE = "aten.copy_.default"  # the last steps: what is stored into inputs

Places = Mapping[str, tuple[Buffer, int]]  # of slices: the buffer, and the element of it

# What times are kept under (the letters of -vv), and what a report calls them.
STAGES = {
    "capture": "capture", "g": "torch", "n": "tensor", "l": "loop", "t": "tile", "k": "kernel",
    "s": "source", "cc": "compiler",
}  # fmt: skip


@dataclass(frozen=True)
class Emitted:
    """A program with what was emitted for it: sources and launches by symbol, the rest by kernel.

    `starts` are elements of the inputs that a kernel is handed the addresses of; else the first.
    """

    program: Program
    symbols: Mapping[str, str]
    sources: Mapping[str, str]
    launches: Mapping[str, Any]  # of GPU kernels
    predicted: Mapping[str, float]
    work: Mapping[str, Any]  # a Work each: flops and bytes
    starts: Mapping[str, tuple[int, ...]]
    sizes: tuple[Node, ...] = ()  # the symbols that a call has values for
    bodies: Mapping[str, Kernel] = field(default_factory=dict[str, Kernel])  # as they are emitted


@dataclass
class Linked:
    """A program that is loaded and can be called, and its rows of the report."""

    program: runtime.Program | GPUProgram | OpenCLProgram
    extra: Mapping[str, Any]
    cached: bool

    def runner(self, report: Report | None) -> Callable[[Sequence[torch.Tensor]], Sequence[Any]]:
        """The program's plain call; with a report, one that also times its steps into that."""
        if report is None:
            return self.program.run

        def run(tensors: Sequence[torch.Tensor]) -> Sequence[Any]:
            report.measure(*self.step_times(tensors))
            return self.program.run(tensors)

        return run

    def step_times(self, tensors: Sequence[torch.Tensor]) -> tuple[list[float], list[float]]:
        """Microseconds of every kernel and of every extern, each run by itself."""
        steps = self.program.spec.steps
        given, native = list(tensors), [isinstance(step, runtime.Call) for step in steps]
        inputs = {b.name: b.index for b in self.program.spec.buffers if b.kind == "input"}
        for step in steps:
            if isinstance(step, runtime.Extern) and step.target in (WRITE, WROTE):
                for name in step.reads[: 1 if step.target == WRITE else None]:
                    given[inputs[name]] = copied(given[inputs[name]])
        spent = sum(us for _, us in self.program.profile(given, rounds=1))
        times = self.program.profile(given, rounds=max(3, min(100, int(2e5 / max(spent, 1.0)))))
        kernels = [0.0] * len(self.extra["kernels"])
        runs = (us for kernel, (_, us) in zip(native, times, strict=True) if kernel)
        for row, us in zip(self.extra["runs"], runs, strict=True):  # one may run several times
            kernels[row] += us
        return kernels, [us for kernel, (_, us) in zip(native, times, strict=True) if not kernel]


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of a tensor, with the same strides."""
    return tensor.new_empty_strided(tensor.shape, tensor.stride()).copy_(tensor)


def described(emitted: Emitted, constants: Collection[int] = ()) -> dict[str, Any]:
    """The report's rows of the steps: kernels in the order they run, and library calls."""
    program = emitted.program
    first = once(program, constants)
    runs = (s for s, _ in program.unrolled() if not isinstance(s, Call))
    times = Counter(step.name for step in runs)
    rows = {s.name: len(s.rows) for s in program.steps if isinstance(s, Rows)}
    kernels = [
        {
            "name": k.name,
            "symbol": emitted.symbols[k.name],
            "predicted_us": emitted.predicted.get(k.name, 0.0) * times[k.name],
            "origin": k.origin,
            **{fact: n * times[k.name] for fact, n in emitted.work[k.name]._asdict().items()},
            "rows": rows.get(k.name, 1),
        }
        for k in (*first, *(k for k in program.kernels if k not in first))
    ]
    externs = [(c.target, c.reason, c.origin) for c in program.steps if isinstance(c, Call)]
    place = {k["name"]: i for i, k in enumerate(kernels)}
    steps = (s for s, _ in program.unrolled() if not isinstance(s, Call) and s not in first)
    runs = [place[s.name] for s in steps]
    return {"kernels": kernels, "externs": externs, "runs": [*range(len(first)), *runs]}


def make_report(
    extra: Mapping[str, Any], log: PassLog, name: str, linked: Linked | None = None
) -> Report:
    kernels = [KernelReport(**k) for k in extra["kernels"]]
    externs = [(e[0], e[1], e[2]) for e in extra["externs"]]
    seconds = {name: log.seconds[key] for key, name in STAGES.items() if key in log.seconds}
    report = Report(name, kernels, externs, seconds)
    if linked is not None:
        report.arena_bytes, report.cached = linked.program.arena_bytes, linked.cached
    return report


def without_restatements(
    program: Program, written: Collection[str] = (), kept: Collection[str] = ()
) -> Program:
    """The program without kernels that copy their input unchanged; readers read the input.

    What is only copied to an output is stored there at once, but for those `written` into inputs,
    and for what is `kept` from call to call.
    """
    kernels = [s for s in program.steps if isinstance(s, Kernel)]
    apart = [s for s in program.steps if isinstance(s, Call)]
    apart += [s for repeat in program.repeats for s in (repeat, *repeat.steps)]
    fixed = {b.name for s in apart for b in s.inputs}
    fixed |= {b.name for repeat in program.repeats for b in repeat.outputs}
    same = {k.outputs[0].name: k.inputs[0].name for k in kernels if restates(k.body)}
    same = {made: of for made, of in same.items() if fixed.isdisjoint((made, of))}
    own = (s for s in program.steps if isinstance(s, Kernel | Rows))
    made = {b.name for s in own for b in s.outputs} - fixed
    made -= {*kept, *(b.name for b in program.outputs)}
    several = Counter(b.name for s in program.steps for b in s.outputs)  # more is added to it later
    results = {b for b in program.outputs if b.name not in written and several[b.name] == 1}
    into: dict[str, Buffer] = {}
    for k in kernels:
        if k.outputs[0] in results and copies(k.body):
            (source,) = k.inputs
            if source.name in made and source.name not in into:
                into[source.name] = k.outputs[0]
    gone = {*same, *(b.name for b in into.values())}

    def renamed(b: Buffer) -> Buffer:
        return into.get(b.name, replace(b, name=same.get(b.name, b.name)))

    def moved(step: Any) -> Any:
        if isinstance(step, Rows):
            return replace(step, rows=tuple(map(moved, step.rows)))
        inputs, outputs = (tuple(map(renamed, side)) for side in (step.inputs, step.outputs))
        return replace(step, inputs=inputs, outputs=outputs)

    steps = (moved(s) for s in program.steps if gone.isdisjoint(b.name for b in s.outputs))
    return replace(program, steps=tuple(steps))


def make_spec(
    emitted: Emitted,
    writes: Mapping[int, int],
    constants: Collection[int] = (),
    named: Mapping[str, str] = MappingProxyType({}),
) -> runtime.ProgramSpec:
    """The launch spec: inputs by position, outputs allocated per call, all else in the arena.

    Steps that only constants decide come first and run once. Kernels store the results that are
    `named` into those inputs.
    """
    program = emitted.program
    sizes = emitted.sizes
    hints = tuple((node.op.label, node.op.hint) for node in sizes)  # type: ignore[attr-defined]
    kept = {b.name for step in once(program, constants) for b in step.outputs}
    buffers = {b.name: _buffer(b, "input", i) for i, b in enumerate(program.inputs)}
    returned = [b for i, b in enumerate(program.outputs) if i not in writes]
    for b in returned:
        buffers.setdefault(b.name, _buffer(b, "output"))
    calls = (b for s in program.steps if isinstance(s, Call) for b in (*s.inputs, *s.outputs))
    whole = (b for r in program.repeats for b in r.buffers())
    full = {b.name: b for b in (*calls, *whole, *program.outputs)}
    read = {b.name for b in (*program.outputs, *(b for s in program.steps for b in s.inputs))}
    steps: list[runtime.Call | runtime.Extern] = []
    numbers: list[int] = []
    for step, places in program.unrolled():
        for b in (*step.inputs, *step.outputs):
            b = places.get(b.name, (b, 0))[0]
            if b.name in named:
                continue
            known = full.get(b.name, b)  # kernels see buffers flat
            kind = "kept" if b.name in kept else "temp"
            buffers.setdefault(b.name, _buffer(known, kind))
        if isinstance(step, Rows):
            steps.append(_launch(step, emitted, named, numbers))
        elif isinstance(step, Kernel):
            steps.append(_call(step, emitted, kept, named, places))
        else:
            steps.append(_extern(step, read))
    steps.sort(key=lambda step: not (isinstance(step, runtime.Call) and step.once is not None))
    steps += _stores(program, writes, named)
    for b in runtime.size_buffers([label for label, _ in hints], bool(emitted.launches)):
        buffers[b.name] = b
    if numbers:
        buffers[runtime.NUMBERS] = runtime.number_buffer(len(numbers))
    outputs, own = tuple(b.name for b in returned), tuple(buffers.values())
    return unified(runtime.ProgramSpec(own, tuple(steps), outputs, hints, tuple(numbers)))


def _call(
    step: Kernel,
    emitted: Emitted,
    kept: Collection[str],
    named: Mapping[str, str],
    places: Places,
) -> runtime.Call:
    held = [places.get(b.name, (b, 0)) for b in (*step.inputs, *step.outputs)]
    args = tuple(named.get(b.name, b.name) for b, _ in held)
    symbol, content = emitted.symbols[step.name], None
    launch, checks = emitted.launches.get(symbol), _checks(step)
    if launch is not None:
        args += tuple(map(runtime.by_value, launch.sizes))
        checks = checks if launch.checked else None
    elif emitted.sizes and sizes_of(step):
        args += (runtime.SIZES,)
    starts = _bytes(step, emitted.starts.get(step.name, ()), [at for _, at in held])
    if any(b.name in kept for b in step.outputs):
        text = f"{emitted.sources[symbol].replace(symbol, '')}{starts}"
        content = hashlib.sha256(text.encode()).hexdigest()
    return runtime.Call(symbol, args, checks, content, starts, shared=_shares(emitted, step))


def _launch(
    step: Rows, emitted: Emitted, named: Mapping[str, str], numbers: list[int]
) -> runtime.Call:
    """The call of a kernel with rows; the sizes of each row are put behind `numbers`.

    A GPU's kernel takes the operands of all rows at once, and knows their sizes.
    """
    symbol, checks = emitted.symbols[step.name], _checks(step.kernel)
    launch = emitted.launches.get(symbol)
    if launch is not None:
        own = tuple(named.get(b.name, b.name) for b in step.operands)
        return runtime.Call(symbol, own, checks if launch.checked else None)
    args: list[str] = []
    starts: list[int] = []
    for row in step.rows:
        own = (*row.inputs, *row.outputs)
        args += (named.get(b.name, b.name) for b in own)
        starts += (0 for _ in own)
        if row.sizes:
            args.append(runtime.NUMBERS)
            starts.append(8 * len(numbers))
            numbers += row.sizes
    given = tuple(starts) if any(starts) else ()
    count, shared = len(step.rows), _shares(emitted, step)
    return runtime.Call(symbol, tuple(args), checks, None, given, count, step.grain, shared)


def _shares(emitted: Emitted, step: Kernel | Rows) -> bool:
    """Whether threads share a loop of the kernel, as it is emitted."""
    body = emitted.bodies.get(step.name)
    return body is not None and any(loops_in(body.body, "parallel"))


def _stores(
    program: Program, writes: Mapping[int, int], named: Mapping[str, str]
) -> Iterator[runtime.Extern]:
    """The last steps: results copied into inputs, and torch told of those that are there."""
    if named:
        yield runtime.Extern(WROTE, ([{"tensor": name} for name in named.values()],))
    for i, target in writes.items():
        into, value = program.inputs[target].name, program.outputs[i].name
        if value not in named:
            yield runtime.Extern(WRITE, ({"tensor": into}, {"tensor": value}), {}, (None,))


def once(program: Program, constants: Collection[int]) -> list[Kernel]:
    """The kernels that depend on constants alone, and whose results kernels read, and only read."""
    known = {program.inputs[i].name for i in constants}
    returned = {b.name for b in program.outputs}
    returned |= {b.name for s in program.steps if not isinstance(s, Kernel) for b in s.inputs}
    returned |= {s.buffer.name for k in program.kernels for s in combining(k.body)}
    found: list[Kernel] = []
    for step in program.steps:
        fixed = isinstance(step, Kernel) and all(b.name in known for b in step.inputs)
        if not isinstance(step, Kernel) or not fixed or sizes_of(step) or not keeps(step):
            continue
        if not any(b.name in returned for b in step.outputs):
            known.update(b.name for b in step.outputs)
            found.append(step)
    return found


def _checks(kernel: Kernel) -> str | None:
    return "; ".join((f"kernel {kernel.name}", *kernel.origin)) if is_checked(kernel.body) else None


def _bytes(kernel: Kernel, starts: Sequence[int], at: Sequence[int]) -> tuple[int, ...]:
    """For every operand, how far from its first byte the kernel's begins; () for nowhere.

    Inputs start at elements of the operands, and these are `at` elements of buffers.
    """
    operands = (*kernel.inputs, *kernel.outputs)
    inside = (*starts, *(0 for _ in operands[len(starts) :]))
    rows = zip(operands, inside, at, strict=True)
    far = tuple((n + start) * b.type.dtype.bytes for b, n, start in rows)
    return far if any(far) else ()


def _buffer(b: Buffer, kind: Any, index: int = 0) -> runtime.Buffer:
    shape, strides = map(_extents, (b.type.shape, b.type.layout))
    return runtime.Buffer(b.name, str(b.type.dtype.word), shape, strides, kind, index)


def _tagged(tag: str, value: Any) -> Any:
    return value if tag == "size" and isinstance(value, int) else {tag: _text(value)}


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, Symbolic) else value


def _extents(sizes: tuple[int, ...]) -> tuple[Any, ...]:
    """Sizes that are no numbers as the runtime knows them: as text."""
    return tuple(map(_text, sizes))


def _extern(call: Call, read: Collection[str]) -> runtime.Extern:
    """A library call; a result nobody reads is dropped, for it may be undefined."""
    places = [{"tensor": b.name} for b in call.inputs]
    args, kwargs = call.arguments.bind(places, _tagged)
    outputs = tuple(b.name if b.name in read else None for b in call.outputs)
    return runtime.Extern(call.target, tuple(args), kwargs, outputs)
