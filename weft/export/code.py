"""A captured program as code for one instruction set: a launch spec of kernels alone, and their C.

code = make_code(captured, options, isa)     # UnsupportedOpError lists the ops that have no C
code.layout.spec.steps, code.sources["k_relu"]
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from weft import driver
from weft.core.collector import uncollected
from weft.core.errors import UnsupportedOpError
from weft.core.passes import PassLog
from weft.frontend.graph import Captured, Known
from weft.frontend.randoms import SEEDS
from weft.levels import lower
from weft.library.calls import WROTE
from weft.link.cpu import prepared
from weft.link.program import WRITE, Emitted
from weft.options import Options
from weft.runtime.gpu_program import GPUKernel
from weft.runtime.layout import Layout, item_bytes, lay_out
from weft.runtime.sizes import IN_C, SIZES, in_c, named_sizes
from weft.runtime.spec import Buffer, Call, ProgramSpec
from weft.scalar.nest import Call as LibraryCall


@dataclass(frozen=True)
class Isa:
    """An instruction set: what the C compiler needs for it, and how a program asks for it.

    `machine` is what compilers define where they compile for such machines at all, "" for any.
    A GPU's architecture is one with a `capability`, that of devices that it is made for.
    """

    name: str
    machine: str
    flags: tuple[str, ...]
    features: tuple[str, ...]  # of __builtin_cpu_supports
    capability: tuple[int, int] | None = None


DRAWS = "draws"  # the buffer with the seeds of a run
SEED = Buffer(DRAWS, "i64", (), (), "sizes")


@dataclass(frozen=True)
class Code:
    """A signature's program for an instruction set; all steps are kernels, but on GPUs draws.

    `draws` is how many seeds of random numbers a run draws. GPUs have kernels, and their cubins;
    their last steps, as many as `stores`, store into inputs.
    """

    isa: Isa
    layout: Layout
    sources: Mapping[str, str]
    draws: int
    kernels: Mapping[str, GPUKernel] = field(default_factory=dict[str, GPUKernel])
    cubins: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    stores: int = 0

    def with_symbols(self, symbols: Mapping[str, str]) -> "Code":
        """Its kernels called otherwise; their texts are no part of it any more."""
        steps = tuple(
            replace(s, symbol=symbols[s.symbol]) if isinstance(s, Call) else s
            for s in self.layout.spec.steps
        )
        spec = replace(self.layout.spec, steps=steps)
        return replace(self, layout=replace(self.layout, spec=spec), sources={})

    @property
    def once(self) -> int:
        """How many first steps weights alone decide."""
        return sum(isinstance(s, Call) and s.once is not None for s in self.layout.spec.steps)


def make_code(captured: Captured, options: Options, isa: Isa) -> Code:
    """A program for a CPU."""
    constants = captured.constants()
    emitted, writes = lowered(captured, options, constants)
    spec, sources = prepared(emitted, writes, constants)
    spec, copies, draws = without_externs(spec)
    return Code(isa, lay_out(spec), {**sources, **copies}, draws)


def lowered(
    captured: Captured, options: Options, constants: Sequence[int]
) -> tuple[Emitted, dict[int, int]]:
    """A program lowered, and which outputs go into which inputs.

    UnsupportedOpError lists all ops that have no code, with their lines.
    """
    graph = captured.graph
    first = len(graph.outputs) - len(captured.mutations)
    writes = dict(enumerate(captured.mutations, first))
    ordered = torch.are_deterministic_algorithms_enabled()
    known = Known(captured.layouts, constants, ordered=ordered, alone=True)
    levels = uncollected()(lower)(graph, options, PassLog(options.verbose), known)
    emitted = driver.emitted_of(levels, options, writes)
    refuse_calls(emitted)
    return emitted, writes


def refuse_calls(emitted: Emitted) -> None:
    calls = [s for s in emitted.program.each if isinstance(s, LibraryCall) and not is_draw(s)]
    told = dict.fromkeys(
        f"{c.target} ({c.reason})" + (f" at {c.origin}" if c.origin else "") for c in calls
    )
    if told:
        count = "an op has" if len(told) == 1 else f"{len(told)} ops have"
        raise UnsupportedOpError(f"{count} no code without torch: {'; '.join(told)}")


def is_draw(call: LibraryCall) -> bool:
    """Whether it draws a seed of random numbers from torch's generator, as randoms.py does."""
    return call.target == "aten.randint.low" and [*call.arguments.args] == [*SEEDS, []]


def without_externs(spec: ProgramSpec) -> tuple[ProgramSpec, dict[str, str], int]:
    """The spec with its externs as kernels that copy: seeds from where a run has put all that it
    draws, and in the end what is stored into inputs; these kernels; how many seeds are drawn."""
    buffers = {b.name: b for b in spec.buffers}
    steps: list[Call] = []
    copies: dict[str, str] = {}
    labels = [label for label, _ in spec.sizes]
    draws = 0
    for step in spec.steps:
        if isinstance(step, Call):
            steps.append(step)
            continue
        if step.target == WROTE:
            continue
        starts: tuple[int, ...] = ()
        if step.target == WRITE:
            into, value = step.reads
        else:
            (into,), value = step.outputs, DRAWS
            draws, starts = draws + 1, (8 * draws, 0)
        if into is None:  # nothing reads it, and others are drawn after it
            continue
        sized = labels if step.target == WRITE else []
        symbol = f"k_store{len(copies)}"
        copies[symbol] = copy_source(symbol, buffers.get(value, SEED), buffers[into], sized)
        steps.append(Call(symbol, (value, into, *([SIZES] if sized else [])), starts=starts))
    drawn = [replace(SEED, shape=(draws,), strides=(1,))] if draws else []
    return replace(spec, buffers=(*spec.buffers, *drawn), steps=tuple(steps)), copies, draws


def copy_source(symbol: str, value: Buffer, into: Buffer, labels: Sequence[str]) -> str:
    """C that copies a tensor into another of its shape, each with its own strides."""
    sizes = ", const i64 *restrict sizes" if labels else ""
    lines = [
        '#include "weft.h"',
        "#define WEFT_LANES 1",
        '#include "weft_math.h"',
        *(IN_C if labels else ()),
        f"void {symbol}(const char *restrict from, char *restrict into{sizes}) {{",
        *named_sizes(labels),
    ]
    bytes_, depth = item_bytes(into), 1
    for d, n in enumerate(into.shape):
        lines.append(f"{'    ' * depth}for (i64 i{d} = 0; i{d} < {in_c(str(n))}; i{d}++)")
        depth += 1
    to, of = (f"({place_in_c(b)}) * {bytes_}" for b in (into, value))
    copied = f"memcpy(into + {to}, from + {of}, {bytes_});"
    return "\n".join([*lines, "    " * depth + copied, "}", ""])


def place_in_c(buffer: Buffer) -> str:
    """Where its element i0, i1 ... is, in elements."""
    return " + ".join(["0", *(f"i{d} * ({in_c(str(s))})" for d, s in enumerate(buffer.strides))])


def buffers_of(layout: Layout, kind: str) -> Iterator[tuple[int, Any]]:
    """Buffers of a kind with their numbers."""
    return ((i, b) for i, b in enumerate(layout.spec.buffers) if b.kind == kind)
