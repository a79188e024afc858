"""Writes the tables by which weft_steps.c calls a program's kernels in order.

c_sources(layout)       # {"weft_tables": "...", "weft_main": "...", "weft_steps": "...", ...}
"""

from functools import cache

from weft.runtime.compiler import HEADERS
from weft.runtime.layout import Layout, Segment, item_bytes
from weft.runtime.sizes import arena_source
from weft.runtime.spec import Buffer, Call, names_in

INCLUDE = '#include "weft_main.h"\n'
CHUNK = 8  # numbers of operands, and of segments, that one C file is for


def c_sources(layout: Layout) -> dict[str, str]:
    """C texts beside the kernels' own: of them only the tables differ between programs."""
    calls = [step for step in layout.spec.steps if isinstance(step, Call)]
    numbers = {call.arity for call in calls} | set(range(len(native_segments(layout))))
    chunks = sorted({number // CHUNK for number in numbers})
    same = {name: (HEADERS / f"{name}.c").read_text() for name in ("weft_main", "weft_steps")}
    calls_of = {f"weft_calls{chunk}": calls_source(chunk) for chunk in chunks}
    return {"weft_tables": c_tables(layout), **same, **calls_of}


def c_tables(layout: Layout, name: str = "weft_own") -> str:
    """A weft_program, as weft_main.h has it, of that name, with all its tables."""
    operands: list[str] = []
    steps: list[str] = []
    calls = [step for step in layout.spec.steps if isinstance(step, Call)]
    for step in layout.spec.steps:
        if isinstance(step, Call):
            facts = f"weft_apply{step.arity}, weft_operands + {len(operands)}"
            steps.append(f"{{{step.symbol}, {facts}, {step.rows}, {step.arity}, {step.grain}}}")
            starts = step.starts or (0,) * len(step.args)
            operands += [
                f"{{{layout.index[name]}, {n}}}" for name, n in zip(step.args, starts, strict=True)
            ]
        else:
            steps.append("{0}")
    checked = any(is_checked(layout, segment) for segment in layout.segments)
    constant = [str(layout.index[name]) for name in once_inputs(layout)]
    lines = [INCLUDE]
    lines += [f"void {symbol}(void);" for symbol in dict.fromkeys(call.symbol for call in calls)]
    lines += [f"weft_apply weft_apply{n};" for n in sorted({call.arity for call in calls})]
    lines.append(table("static const weft_operand weft_operands[]", operands))
    lines.append(table("static const weft_step weft_steps[]", steps))
    lines.append(table("static const int weft_constants[]", constant))
    lines += segment_tables(layout)
    if layout.spec.sizes:
        items = {name: item_bytes(b) for name, b in layout.buffers.items()}
        lines += arena_source(layout.spec, layout.groups, items, layout.index)
    arena = "weft_arena_at" if layout.spec.sizes else "0"
    facts = f"weft_constants, {len(constant)}, {int(checked)}, {arena}"
    lines.append(f"const weft_program {name} = {{weft_steps, weft_segments, {facts}}};")
    return "\n".join(lines) + "\n"


def segment_tables(layout: Layout) -> list[str]:
    """C of the segments: the first one also takes the addresses of the inputs."""
    given = [f"{{{layout.index[b.name]}, {b.index}}}" for b in inputs(layout)]
    lines = [table("static const weft_place weft_inputs[]", given)]
    rows: list[str] = []
    for number, (segment, fresh) in enumerate(
        zip(native_segments(layout), fresh_buffers(layout), strict=True)
    ):
        places = [f"{{{layout.index[name]}, {i}}}" for i, name in enumerate(fresh)]
        lines.append(table(f"static const weft_place weft_fresh{number}[]", places))
        counts = f"{len(given) if number == 0 else 0}, {len(fresh)}"
        own = f"weft_inputs, weft_fresh{number}"
        rows.append(f"{{{segment.first}, {segment.stop}, {counts}, {own}}}")
    return [*lines, table("static const weft_segment weft_segments[]", rows)]


def table(declaration: str, rows: list[str]) -> str:
    """An array in C, which has no empty ones."""
    inner = "".join(f"    {row},\n" for row in rows or ["0"])
    return f"{declaration} = {{\n{inner}}};"


@cache
def calls_source(chunk: int) -> str:
    """C that calls kernels of so many operands, and segments of such numbers."""
    numbers = range(chunk * CHUNK, (chunk + 1) * CHUNK)
    segments = [f"WEFT_SEGMENT({number})" for number in numbers]
    return "\n".join([INCLUDE, *map(apply_source, numbers), *segments]) + "\n"


def inputs(layout: Layout) -> list[Buffer]:
    """The inputs that kernels take the address of."""
    return [b for b in layout.spec.buffers if b.kind == "input" and b.name in layout.addressed]


def fresh_buffers(layout: Layout) -> list[list[str]]:
    """The buffers with new addresses in every call, by native segment: outputs, then results."""
    found: list[list[str]] = []
    new: list[str] = []
    seen: set[str] = set()
    order = {name: i for i, name in enumerate(layout.spec.outputs)}
    for segment in layout.segments:
        for step in layout.spec.steps[segment.first : segment.stop]:
            for name in names_in(step):
                own = layout.buffers[name].kind in ("output", "temp") and not layout.in_arena(name)
                if own and name in layout.addressed and name not in seen:
                    seen.add(name)
                    new.append(name)
        if segment.native:
            found.append(sorted(new, key=lambda name: order.get(name, len(order))))
            new = []
    return found


def once_inputs(layout: Layout) -> list[str]:
    """The inputs that once steps read."""
    calls = [step for step in layout.spec.steps if isinstance(step, Call) and step.once is not None]
    names = dict.fromkeys(name for call in calls for name in call.args)
    return [name for name in names if layout.buffers[name].kind == "input"]


def apply_source(arity: int) -> str:
    """C that calls a kernel of `arity` operands."""
    types = ", ".join(["void *"] * arity) or "void"
    values = ", ".join(f"(char *)b[o[{i}].buffer] + o[{i}].start" for i in range(arity))
    return (
        f"void weft_apply{arity}(weft_kernel run, void **b, const weft_operand *o) {{\n"
        f"    ((void (*)({types}))run)({values});\n}}"
    )


def native_segments(layout: Layout) -> list[Segment]:
    """The segments that are C functions, in order."""
    return [segment for segment in layout.segments if segment.native]


def is_checked(layout: Layout, segment: Segment) -> bool:
    """Whether its C function returns faults."""
    steps = layout.spec.steps[segment.first : segment.stop]
    return any(isinstance(step, Call) and step.checks is not None for step in steps)
