"""The code that ties kernels into one program: weft_main.c, and the Python function that calls it.

c_source(layout)        # int weft_segment0(void **b, int threads): the kernels in order
python_source(layout)   # def run(inputs): addresses in, one native call, outputs out
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from weft.core.calls import operator
from weft.runtime.blocks import LARGE
from weft.runtime.extern import bind, express, store, torch_dtype
from weft.runtime.layout import Layout, Segment, item_bytes
from weft.runtime.spec import Buffer, Call, Extern, names_in


def c_source(layout: Layout) -> str:
    """weft_main.c: what weft_main.h needs to know of a program, and a function for each segment."""
    operands: list[str] = []
    steps: list[str] = []
    calls = [step for step in layout.spec.steps if isinstance(step, Call)]
    for step in layout.spec.steps:
        if isinstance(step, Call):
            apply, start = f"weft_apply{len(step.args)}", len(operands)
            steps.append(f"    {{{step.symbol}, {apply}, weft_operands + {start}}},")
            operands += [str(layout.index[name]) for name in step.args]
        else:
            steps.append("    {0},")
    checked = any(is_checked(layout, segment) for segment in layout.segments)
    inputs = [f"    {{{index}, {words}}}," for index, words in stamped(layout)]
    lines = [f"#define WEFT_CHECKED {int(checked)}", f"#define WEFT_STAMPED {len(inputs)}"]
    lines.append('#include "weft_main.h"\n')
    lines += [f"void {symbol}(void);" for symbol in dict.fromkeys(call.symbol for call in calls)]
    lines += [apply_source(arity) for arity in sorted({len(call.args) for call in calls})]
    lines.append(f"static const int weft_operands[] = {{{', '.join(operands) or '0'}}};")
    lines += ["const weft_step weft_steps[] = {", *(steps or ["    {0},"]), "};"]
    lines += ["const weft_input weft_stamped[] = {", *(inputs or ["    {0},"]), "};"]
    for number, segment in enumerate(native_segments(layout)):
        lines.append(f"WEFT_EXPORT int weft_segment{number}(void **b, int threads) {{")
        lines += [f"    return weft_run({segment.first}, {segment.stop}, b, threads);", "}"]
    return "\n".join(lines) + "\n"


def stamped(layout: Layout) -> list[tuple[int, int]]:
    """Index and words of the inputs that tell whether what the once steps read may have changed."""
    read = [layout.buffers[name] for name in once_inputs(layout)]
    found = [(layout.index[b.name], b.span * item_bytes(b) // 4) for b in read]
    return [(index, words) for index, words in found if words]


def once_inputs(layout: Layout) -> list[str]:
    """The inputs that once steps read."""
    calls = [step for step in layout.spec.steps if isinstance(step, Call) and step.once is not None]
    names = dict.fromkeys(name for call in calls for name in call.args)
    return [name for name in names if layout.buffers[name].kind == "input"]


def apply_source(arity: int) -> str:
    """C that calls a kernel of `arity` operands."""
    types = ", ".join(["void *"] * arity) or "void"
    values = ", ".join(f"b[o[{i}]]" for i in range(arity))
    return (
        f"static void weft_apply{arity}(weft_kernel run, void **b, const int *o) {{\n"
        f"    ((void (*)({types}))run)({values});\n}}"
    )


def native_segments(layout: Layout) -> list[Segment]:
    """The segments that are C functions, in order."""
    return [segment for segment in layout.segments if segment.native]


def is_checked(layout: Layout, segment: Segment) -> bool:
    """Whether its C function returns faults."""
    steps = layout.spec.steps[segment.first : segment.stop]
    return any(isinstance(step, Call) and step.checks is not None for step in steps)


@dataclass
class PythonSource:
    """The text of `run` while it is written, with the objects it names.

    Tensors are t0, t1, ... by buffer; views of arena buffers v0 ...; other objects k0 ...; p is the
    array of addresses and `at` where it lies. On a GPU the arena is the call's own, and `held`
    keeps what is copied for alignment.
    """

    layout: Layout
    profile: bool = False
    on_gpu: bool = False
    lines: list[str] = field(default_factory=list[str])
    namespace: dict[str, Any] = field(default_factory=dict[str, Any])
    ready: set[str] = field(default_factory=set[str])
    views: list[str] = field(default_factory=list[str])
    native: int = 0

    def name(self, buffer: str) -> str:
        """The variable that holds a buffer's tensor."""
        return f"t{self.layout.index[buffer]}"

    def constant(self, value: Any) -> str:
        """Put an object in the function's namespace."""
        name = f"k{len(self.namespace)}"
        self.namespace[name] = value
        return name

    def tensor(self, buffer: str) -> str:
        """An expression for a buffer as a torch tensor."""
        if not self.layout.in_arena(buffer):
            return self.name(buffer)
        if buffer not in self.views:
            self.views.append(buffer)
        return f"v{self.layout.index[buffer]}"

    def hold(self, buffer: str, tensor: str) -> None:
        """Assign a buffer's tensor, and its address where kernels take that."""
        name = self.name(buffer)
        self.ready.add(buffer)
        self.lines.append(f"{name} = {tensor}")
        if buffer in self.layout.addressed:
            address = f"aligned({name}, held)" if self.on_gpu else f"{name}.data_ptr()"
            self.lines.append(f"p[{self.layout.index[buffer]}] = {address}")

    def prepare(self, step_names: tuple[str, ...]) -> None:
        """Fetch inputs and allocate outputs that are about to be used for the first time."""
        for name in step_names:
            b = self.layout.buffers[name]
            if name not in self.ready and b.kind != "kept" and not self.layout.in_arena(name):
                self.hold(name, f"inputs[{b.index}]" if b.kind == "input" else self.fresh(b))

    def fresh(self, b: Buffer) -> str:
        """Allocate an output."""
        dtype = torch_dtype(b.dtype)
        empty = "large_empty" if b.span * dtype.itemsize >= LARGE else "empty"
        return f"{empty}({b.shape}, {b.strides}, {self.constant(dtype)})"

    def segment(self, segment: Segment) -> None:
        """One native call; when profiling, one for each of its steps."""
        steps = self.layout.spec.steps[segment.first : segment.stop]
        for step in steps:
            self.prepare(names_in(step))
        if not self.profile:
            call = f"segment{self.native}(at, threads())"
            checked = is_checked(self.layout, segment)
            lines = [f"if fault := {call}:", "    raise error(fault)"] if checked else [call]
            self.lines += self.unless_same(lines) if segment.once else lines
        else:
            self.lines += ["kept[:] = None, bind(p)"] if segment.once else []
            for number, step in enumerate(steps, segment.first):
                assert isinstance(step, Call)
                self.lines.append(f"times.append(({step.symbol!r}, time({number}, at, threads())))")
        self.native += 1

    def unless_same(self, lines: list[str]) -> list[str]:
        """The lines, run where the versions or the stamp of what they read have changed."""
        read = map(self.name, once_inputs(self.layout))
        versions = "".join(f"{name}._version, " for name in read)
        stamp = "stamp(at)" if stamped(self.layout) else "0"
        test = ["try:", f"    now = ({versions}{stamp})", "except RuntimeError:", "    now = None"]
        test.append("if now is None or kept[0] != now:  # inference tensors have no version")
        return [
            *test,
            "    kept[:] = None, bind(p)",
            *("    " + line for line in lines),
            "    kept[0] = now",
        ]

    def extern(self, step: Extern) -> None:
        """Call an operator; bind its results, or copy them to buffers that exist already."""
        outputs = [name for name in step.outputs if name is not None]
        existing = [name for name in outputs if name not in self.layout.bound]
        self.prepare((*step.reads, *existing))
        function, args = self.constant(operator(step.target)), [self.express(a) for a in step.args]
        args += [f"{key}={self.express(value)}" for key, value in step.kwargs.items()]
        if self.profile:
            self.lines.append("begin = clock()")
        self.lines.append(f"r = {function}({', '.join(args)})")
        for position, name in enumerate(step.outputs):
            if name is not None:
                self.result(name, "r" if len(step.outputs) == 1 else f"r[{position}]", step)
        self.lines.append("r = None")
        if self.profile:
            self.lines.append(f"times.append(({step.target!r}, (clock() - begin) * 1e6))")

    def express(self, argument: Any) -> str:
        return express(argument, self.tensor, self.namespace)

    def result(self, name: str, result: str, step: Extern) -> None:
        """Make the result of an operator the contents of a buffer."""
        if name not in self.layout.bound:
            self.lines.append(f"{self.constant(store)}({result}, {self.tensor(name)})")
            return
        b = self.layout.buffers[name]
        dtype = self.constant(torch_dtype(b.dtype))
        args = "".join(f"{self.tensor(read)}, " for read in step.reads)
        layout = f"{b.shape}, {b.strides}, {dtype}, ({args})"
        self.hold(name, f"{self.constant(bind)}({result}, {layout})")

    def release(self, segment: Segment) -> None:
        """Let go of operator results that no later step reads."""
        for number in range(segment.first, segment.stop):
            for name in dict.fromkeys(names_in(self.layout.spec.steps[number])):
                temp = name in self.layout.bound and self.layout.buffers[name].kind == "temp"
                if temp and self.layout.lives[name][1] == number:
                    self.lines.append(f"{self.name(name)} = None")


def python_source(
    layout: Layout, profile: bool = False, on_gpu: bool = False
) -> tuple[str, PythonSource]:
    """The text of `run(inputs)`, or of `profile(inputs)`, which returns (step, microseconds) pairs.

    A frame (addresses, and on a CPU the arena) serves one call at a time and is then kept for the
    next, so calls from several threads, or from inside one another, each have a frame of their own.
    """
    source = PythonSource(layout, profile, on_gpu)
    for segment in layout.segments:
        step = layout.spec.steps[segment.first]
        if isinstance(step, Extern):
            source.extern(step)
        else:
            source.segment(segment)
        source.release(segment)
    body, source.lines = source.lines, []
    source.prepare(layout.spec.outputs)
    values = "".join(f"{source.tensor(name)}, " for name in layout.spec.outputs)
    ending = [*source.lines, "return times" if profile else f"return ({values})"]
    if any(not segment.native for segment in layout.segments):
        body = ["with no_grad():", *("    " + line for line in body)]
    lines = [*opening(source), *body, "frames.append(frame)", *ending]
    return "def run(inputs):\n" + "".join(f"    {line}\n" for line in lines), source


def opening(source: PythonSource) -> list[str]:
    """The lines that find the call's frame, and its memory."""
    lines = ["try:", "    frame = frames.pop()", "except IndexError:", "    frame = new_frame()"]
    views = [(f"v{source.layout.index[name]}", name) for name in source.views]
    if source.on_gpu:
        lines += ["p, at = frame", "held = []"]
        lines += ["arena = new_arena(p)"] if source.layout.plan.total else []
        lines += [f"{view} = arena_view(arena, {name!r})" for view, name in views]
    else:
        lines.append(f"{', '.join(['p', 'at', '_', 'kept', *(view for view, _ in views)])} = frame")
    return [*lines, "times = []"] if source.profile else lines
