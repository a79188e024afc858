"""Writes weft_main.c, the C functions that call a program's kernels in order.

c_source(layout)        # int weft_segment0(void **b, ...): addresses, then the kernels in order
"""

from weft.runtime.layout import Layout, Segment, item_bytes
from weft.runtime.sizes import arena_source
from weft.runtime.spec import Buffer, Call, names_in

SEGMENT = "void **b, void **inputs, void **fresh, int threads"


def c_source(layout: Layout) -> str:
    """The definitions that weft_main.h needs of a program, and a function for each segment."""
    operands: list[str] = []
    steps: list[str] = []
    calls = [step for step in layout.spec.steps if isinstance(step, Call)]
    for step in layout.spec.steps:
        if isinstance(step, Call):
            apply, start = f"weft_apply{len(step.args)}", len(operands)
            steps.append(f"{{{step.symbol}, {apply}, weft_operands + {start}}}")
            starts = step.starts or (0,) * len(step.args)
            operands += [
                f"{{{layout.index[name]}, {n}}}" for name, n in zip(step.args, starts, strict=True)
            ]
        else:
            steps.append("{0}")
    checked = any(is_checked(layout, segment) for segment in layout.segments)
    constant = [str(layout.index[name]) for name in once_inputs(layout)]
    lines = [f"#define WEFT_CHECKED {int(checked)}", f"#define WEFT_CONSTANTS {len(constant)}"]
    lines.append('#include "weft_main.h"\n')
    lines += [f"void {symbol}(void);" for symbol in dict.fromkeys(call.symbol for call in calls)]
    lines += [apply_source(arity) for arity in sorted({len(call.args) for call in calls})]
    operands = operands or ["{0}"]
    lines.append(f"static const weft_operand weft_operands[] = {{{', '.join(operands)}}};")
    lines.append(table("const weft_step weft_steps[]", steps))
    lines.append(table("const int weft_constants[]", constant))
    given = [f"{{{layout.index[b.name]}, {b.index}}}" for b in inputs(layout)]
    lines.append(table("static const weft_place weft_inputs[]", given))
    for number, (segment, fresh) in enumerate(
        zip(native_segments(layout), fresh_buffers(layout), strict=True)
    ):
        lines += segment_source(layout, number, segment, fresh)
    if layout.spec.sizes:
        items = {name: item_bytes(b) for name, b in layout.buffers.items()}
        lines += arena_source(layout.spec, layout.groups, items, layout.index)
    return "\n".join(lines) + "\n"


def segment_source(layout: Layout, number: int, segment: Segment, fresh: list[str]) -> list[str]:
    """C of one segment: the first one also takes the addresses of the inputs."""
    given = len(inputs(layout)) if number == 0 else 0
    rows = [f"{{{layout.index[name]}, {i}}}" for i, name in enumerate(fresh)]
    return [
        table(f"static const weft_place weft_fresh{number}[]", rows),
        f"WEFT_EXPORT int weft_place{number}({SEGMENT}) {{",
        "    (void)threads;",
        f"    weft_addresses(b, inputs, weft_inputs, {given});",
        f"    weft_addresses(b, fresh, weft_fresh{number}, {len(fresh)});",
        "    return 0;",
        "}",
        f"WEFT_EXPORT int weft_segment{number}({SEGMENT}) {{",
        f"    weft_place{number}(b, inputs, fresh, threads);",
        f"    return weft_run({segment.first}, {segment.stop}, b, threads);",
        "}",
    ]


def table(declaration: str, rows: list[str]) -> str:
    inner = "".join(f"    {row},\n" for row in rows or ["{0}" if "weft_p" in declaration else "0"])
    return f"{declaration} = {{\n{inner}}};"


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
        f"static void weft_apply{arity}(weft_kernel run, void **b, const weft_operand *o) {{\n"
        f"    ((void (*)({types}))run)({values});\n}}"
    )


def native_segments(layout: Layout) -> list[Segment]:
    """The segments that are C functions, in order."""
    return [segment for segment in layout.segments if segment.native]


def is_checked(layout: Layout, segment: Segment) -> bool:
    """Whether its C function returns faults."""
    steps = layout.spec.steps[segment.first : segment.stop]
    return any(isinstance(step, Call) and step.checks is not None for step in steps)
