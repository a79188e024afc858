"""Writes the Python function that runs a program, from its layout.

python_source(layout)   # def run(inputs): outputs allocated, one native call, outputs returned
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from weft.library.calls import operator
from weft.library.collectives import starts, wait
from weft.runtime.blocks import LARGE
from weft.runtime.extern import bind, express, storages, store, torch_dtype
from weft.runtime.layout import Layout, Segment
from weft.runtime.native import fresh_buffers, is_checked, once_inputs
from weft.runtime.sizes import by_value, shown
from weft.runtime.spec import Buffer, Call, Extern, names_in

# All in one call; each by itself, timed; each by itself, as a row of torch's profiler.
Steps = Literal["together", "timed", "recorded"]


@dataclass
class PythonSource:
    """The text of `run` while it is written, with the objects it names.

    Tensors are inputs[0], ... and t0, t1, ... by buffer; views of arena buffers v0 ...; other
    objects k0 ...; p is the array of addresses and `at` where it lies. A CPU's segments read the
    addresses of tensors themselves, from `inputs` and from a tuple of those that are new. On a GPU
    the arena is the call's own, and `held` keeps what is copied for alignment.
    """

    layout: Layout
    steps: Steps = "together"
    on_gpu: bool = False
    lines: list[str] = field(default_factory=list[str])
    namespace: dict[str, Any] = field(default_factory=dict[str, Any])
    ready: set[str] = field(default_factory=set[str])
    views: list[str] = field(default_factory=list[str])
    native: int = 0

    def name(self, buffer: str) -> str:
        """The variable that holds a buffer's tensor."""
        b = self.layout.buffers[buffer]
        is_item = b.kind == "input" and not self.on_gpu
        return f"inputs[{b.index}]" if is_item else f"t{self.layout.index[buffer]}"

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
        if name != tensor:
            self.lines.append(f"{name} = {tensor}")
        if self.on_gpu and buffer in self.layout.addressed:
            self.lines.append(f"p[{self.layout.index[buffer]}] = aligned({name}, held)")

    def prepare(self, step_names: tuple[str, ...]) -> None:
        """Fetch inputs and allocate outputs that are about to be used for the first time."""
        for name in step_names:
            b = self.layout.buffers[name]
            own = b.kind in ("kept", "sizes") or self.layout.in_arena(name)
            if name not in self.ready and not own:
                self.hold(name, f"inputs[{b.index}]" if b.kind == "input" else self.fresh(b))

    def fresh(self, b: Buffer) -> str:
        """Allocate an output."""
        dtype = self.constant(torch_dtype(b.dtype))
        return f"{empty_of(b)}({shown(b.shape)}, {shown(b.strides)}, {dtype})"

    def segment(self, segment: Segment) -> None:
        """One native call; when profiling, one for each of its steps."""
        steps = self.layout.spec.steps[segment.first : segment.stop]
        for step in steps:
            self.prepare(names_in(step))
        given = "at, threads()" if self.on_gpu else "at, inputs, fresh, threads()"
        if not self.on_gpu:
            fresh = fresh_buffers(self.layout)[self.native]
            self.lines.append(f"fresh = ({''.join(f'{self.name(name)}, ' for name in fresh)})")
        place = [] if self.on_gpu else [f"place{self.native}({given})"]
        if self.steps == "timed":
            self.lines += [*place, *(self.bound() if segment.once else [])]
            for number, step in enumerate(steps, segment.first):
                assert isinstance(step, Call)
                self.lines.append(f"times.append(({step.symbol!r}, time({number}, at, threads())))")
        else:
            alone = self.steps == "recorded"
            call = f"segment{self.native}({given})"
            checks = is_checked(self.layout, segment)
            lines = [f"if fault := {call}:", "    raise error(fault)"] if checks else [call]
            lines = self.recorded(segment) if alone else lines
            lines = self.unless_same(lines) if segment.once else lines
            self.lines += [*(place if alone or segment.once else []), *lines]
        self.native += 1

    def recorded(self, segment: Segment) -> list[str]:
        """Each kernel by itself, as a row of torch's profiler."""
        lines: list[str] = []
        for number in range(segment.first, segment.stop):
            step = self.layout.spec.steps[number]
            assert isinstance(step, Call)
            lines.append(f"with record({'weft::' + step.symbol.removeprefix('k_')!r}):")
            lines.append(f"    fault = one({number}, at, threads())")
            lines += ["if fault:", "    raise error(fault)"] if step.checks else []
        return lines

    def bound(self) -> list[str]:
        """Address what once steps make, in the state of what they read."""
        versions = "".join(f"{self.name(name)}._version, " for name in once_inputs(self.layout))
        return [f"now = ({versions}stamp(at))", "kept[:] = None, bind(p, now), ()"]

    def unless_same(self, lines: list[str]) -> list[str]:
        """The lines, run where what they read has moved or another version."""
        first, bind = self.bound()
        read = "".join(f"{self.name(name)}, " for name in once_inputs(self.layout))
        return [
            first,
            "if kept[0] != now or moved(kept[2]):",
            f"    {bind}",
            *(["    keep_only(frame, sizes)"] if self.layout.spec.sizes else []),
            "    if stale(kept[1]):",
            *("        " + line for line in lines),
            f"    kept[0], kept[2] = now, settle(kept[1], ({read}))",
        ]

    def extern(self, step: Extern) -> None:
        """Call an operator; bind its results, or copy them to buffers that exist already."""
        outputs = [name for name in step.outputs if name is not None]
        existing = [name for name in outputs if name not in self.layout.bound]
        self.prepare((*step.reads, *existing))
        function, args = self.constant(operator(step.target)), [self.express(a) for a in step.args]
        args += [f"{key}={self.express(value)}" for key, value in step.kwargs.items()]
        if self.steps == "timed":
            self.lines.append("begin = clock()")
        self.lines.append(f"r = {function}({', '.join(args)})")
        if self.layout.bound.intersection(outputs):
            read = "".join(f"{self.tensor(name)}, " for name in step.reads)
            self.lines.append(f"own = {self.constant(storages)}(({read}))")
        settled = self.constant(wait) if starts(step.target) else ""
        for position, name in enumerate(step.outputs):
            if name is not None:
                self.result(name, "r" if len(step.outputs) == 1 else f"r[{position}]", settled)
        self.lines.append("r = None")
        if self.steps == "timed":
            self.lines.append(f"times.append(({step.target!r}, (clock() - begin) * 1e6))")

    def express(self, argument: Any) -> str:
        return express(argument, self.tensor, self.namespace)

    def result(self, name: str, result: str, settled: str) -> None:
        """Make the result of an operator the contents of a buffer; `settled` waits for it."""
        if name not in self.layout.bound:
            whole = f"{settled}({result})" if settled else result
            self.lines.append(f"{self.constant(store)}({whole}, {self.tensor(name)})")
            return
        b = self.layout.buffers[name]
        dtype = self.constant(torch_dtype(b.dtype))
        layout = f"{shown(b.shape)}, {shown(b.strides)}, {dtype}, own"
        layout += f", {settled}" if settled else ""
        self.hold(name, f"{self.constant(bind)}({result}, {layout})")

    def release(self, segment: Segment) -> None:
        """Let go of operator results that no later step reads."""
        for number in range(segment.first, segment.stop):
            for name in self.layout.ends.get(number, ()):
                if name in self.layout.bound:
                    self.lines.append(f"{self.name(name)} = None")


def empty_of(b: Buffer) -> str:
    """Which function allocates an output."""
    most = LARGE // torch_dtype(b.dtype).itemsize
    if isinstance(b.span, str):
        return f"(large_empty if {b.span} >= {most} else empty)"
    return "large_empty" if b.span >= most else "empty"


def python_source(
    layout: Layout, steps: Steps = "together", on_gpu: bool = False
) -> tuple[str, PythonSource]:
    """The text of `run(inputs)`; where steps are timed it returns (step, microseconds) pairs.

    A frame (addresses, and on a CPU the arena) serves one call at a time and is then kept for the
    next, so calls from several threads, or from inside one another, each have a frame of their own.
    """
    source = PythonSource(layout, steps, on_gpu)
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
    ending = [*source.lines, "return times" if steps == "timed" else f"return ({values})"]
    if any(not segment.native for segment in layout.segments):
        body = ["with no_grad():", *("    " + line for line in body)]
    lines = [*opening(source), *body, "frames.append(frame)", *ending]
    return "def run(inputs):\n" + "".join(f"    {line}\n" for line in lines), source


def opening(source: PythonSource) -> list[str]:
    """The lines that find the call's frame, and its memory."""
    lines = ["try:", "    frame = frames.pop()", "except IndexError:", "    frame = new_frame()"]
    views = [(f"v{source.layout.index[name]}", name) for name in source.views]
    labels = [label for label, _ in source.layout.spec.sizes]
    given = f"{', '.join(labels)}, = sizes = inputs[{-len(labels)}:]"
    if source.on_gpu:
        lines += ["p, at = frame", "held = []"]
        places = [f"p[{source.layout.index[by_value(label)]}]" for label in labels]
        first = ["inputs = tuple(inputs)", given, f"{', '.join(places)}, = sizes"]
        lines += first if labels else []
        if source.layout.plan.total:
            lines += ["here = layout_at(sizes)"] if labels else ["here = layout"]
            lines += ["arena = new_arena(p, here)"]
        lines += [f"{view} = here.arena_view(arena, {name!r})" for view, name in views]
    else:
        watched = ["if profiling():", "    return recorded()(inputs)"]
        first = ["if type(inputs) is not tuple:", "    inputs = tuple(inputs)"]
        lines = [*first, *(watched if source.steps == "together" else []), *lines]
        if labels:
            lines += [given, "placed = frame.get(sizes) or at_sizes(frame, sizes)"]
        held = ["p", "at", "_", "kept", *(view for view, _ in views)]
        lines.append(f"{', '.join(held)} = {'placed' if labels else 'frame'}")
    return [*lines, "times = []"] if source.steps == "timed" else lines
