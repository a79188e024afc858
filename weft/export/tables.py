"""An exported model as C tables, in the terms of weft_parts.h.

code_source(code, call, "avx2_0")      # a signature's code for an instruction set
model_source(calls, isas, weights)     # what all codes share: shapes, names, which code is chosen
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from weft.export.code import DRAWS, Code, Isa, buffers_of
from weft.export.traced import Tensor, Traced
from weft.export.weights import Weight
from weft.runtime.layout import item_bytes
from weft.runtime.native import apply_source, c_tables, table
from weft.runtime.sizes import IN_C, NUMBERS, SIZES, in_c, named_sizes
from weft.runtime.spec import Call
from weft.scalar.resize import sizes_of
from weft.scalar.sizes import Size

ESCAPED = str.maketrans({c: f"\\{c}" for c in '"\\?'})


def text(value: str) -> str:
    """A string as C has it, of which `renamed` (folder.py) changes nothing."""
    every = value.translate(ESCAPED).encode()
    plain = "".join(chr(b) if 32 <= b < 127 else f"\\{b:03o}" for b in every)
    return '"' + plain.replace("weft", r"\167eft") + '"'


def numbers(values: Iterable[int]) -> str:
    return ", ".join(f"{n}LL" if abs(n) >= 1 << 31 else str(n) for n in values) or "0"


def code_source(code: Code, call: Traced, weights: Sequence[int], name: str) -> str:
    """The tables of a code; `weights` are the numbers that the call's own have in the model."""
    layout, index = code.layout, code.layout.index
    bound = bound_rows(code, call, weights)
    kept = [f"{{{i}, {b.span * item_bytes(b)}}}" for i, b in buffers_of(layout, "kept")]
    offsets = [layout.plan.offsets.get(b.name, -1) for b in layout.spec.buffers]
    checks = [s.checks if isinstance(s, Call) else None for s in layout.spec.steps]
    given = ", ".join(str(index.get(n, -1)) for n in (SIZES, NUMBERS, DRAWS))
    facts = [
        f"&weft_{name}_program, {len(offsets)}, {code.once}, {len(checks)}, {len(bound)}, ",
        f"{len(kept)}, {given}, {code.draws},\n    weft_bound, ",
        f"weft_kept, weft_offsets, weft_numbers, {layout.plan.total}, weft_origins",
    ]
    lines = [
        '#include "weft_cpu.h"',
        c_tables(layout, f"weft_{name}_program"),
        table("static const weft_binding weft_bound[]", bound),
        table("static const weft_held weft_kept[]", kept),
        f"static const long long weft_offsets[] = {{{numbers(offsets)}}};",
        f"static const long long weft_numbers[] = {{{numbers(layout.spec.numbers)}}};",
        table("static const char *const weft_origins[]", [text(c) if c else "0" for c in checks]),
        f"const weft_code weft_{name} = {{\n    {''.join(facts)},\n}};",
    ]
    return "\n".join(lines) + "\n"


def bound_rows(code: Code, call: Traced, weights: Sequence[int]) -> list[str]:
    """Rows of weft_binding: placeholders, then results."""
    index, count = code.layout.index, len(call.captured.placeholders)
    places = [*range(count), *(index[n] for n in code.layout.spec.outputs)]
    return [
        f"{{{at}, weft_memory_{b.memory}, {weights[b.of] if b.memory == 'of_weight' else b.of}, "
        f"{int(i >= count or i in call.captured.mutations)}}}"
        for i, (at, b) in enumerate(zip(places, call.bindings, strict=True))
    ]


def calls_source(codes: Sequence[Code]) -> str:
    """C that calls kernels of so many operands."""
    steps = (s for code in codes for s in code.layout.spec.steps if isinstance(s, Call))
    arities = sorted({step.arity for step in steps})
    return "\n".join(['#include "weft_main.h"', *map(apply_source, arities)]) + "\n"


# --- what is public


def tensor_rows(
    tensors: Sequence[Tensor], weights: Sequence[int], own: str
) -> tuple[list[str], list[int]]:
    """Rows of weft_tensor, and their extents, an array `own`: where sizes decide they are -1."""
    rows: list[str] = []
    extents: list[int] = []
    for t in tensors:
        shape, strides = (
            [-1 if isinstance(n, Size) else int(n) for n in part]
            for part in (t.type.shape, t.type.layout)
        )
        at = len(extents)
        extents += [*shape, *strides]
        facts = (
            f"{text(t.name)}, {text(str(t.type.dtype.word))}, {t.type.dtype.bytes}, {t.type.rank}"
        )
        where = f"{own} + {at}, {own} + {at + t.type.rank}"
        shown = text(f"[{', '.join(map(str, t.type.shape))}]")
        of = weights[t.of] if t.memory == "of_weight" else t.of
        memory = f"weft_memory_{t.memory}, {of}, {t.offset}"
        rows.append(f"{{{facts}, {where}, {shown}, {int(t.written)}, {memory}}}")
    return rows, extents


def signature_source(
    number: int, call: Traced, weights: Sequence[int]
) -> tuple[list[str], str, str]:
    """Tables of a signature, and its rows of weft_declared and of weft_extents_of."""
    tensors = [*call.inputs, *call.outputs]
    own = f"weft_extents{number}"
    rows, extents = tensor_rows(tensors, weights, own)
    sizes = sizes_of(call.captured.graph)
    size_rows = [
        f"{{{text(label)}, {n.op.low}, {n.op.high}, {n.op.divisor}, {call.sizes[n][0]}, "  # type: ignore[attr-defined]
        f"{call.sizes[n][1]}}}"
        for label, n in sizes.items()
    ]
    lines = [
        f"static const int64_t {own}[] = {{{numbers(extents)}}};",
        table(f"static const weft_tensor weft_inputs{number}[]", rows[: len(call.inputs)]),
        table(f"static const weft_tensor weft_outputs{number}[]", rows[len(call.inputs) :]),
        table(f"static const weft_size weft_sizes{number}[]", size_rows),
    ]
    fill = refuse = "0"
    if sizes:
        fill, refuse = f"weft_fill{number}", f"weft_refuse{number}"
        lines += fill_source(fill, tensors, list(sizes)) + refuse_source(refuse, call, list(sizes))
    state = any(call.bindings[i].memory == "of_weight" for i in call.captured.mutations)
    draws = max(code.draws for code in call.codes)
    counts = f"{len(call.inputs)}, {len(call.outputs)}, {len(sizes)}"
    places = f"weft_inputs{number}, weft_outputs{number}, weft_sizes{number}"
    declared = f"{{{text(call.name)}, {counts}, {places}, {int(state)}, {draws}}}"
    return lines, declared, f"{{{len(extents)}, {own}, {fill}, {refuse}}}"


def fill_source(name: str, tensors: Sequence[Tensor], labels: Sequence[str]) -> list[str]:
    """C that computes the extents of all tensors from sizes."""
    every = [n for t in tensors for n in (*t.type.shape, *t.type.layout)]
    head = f"static void {name}(const int64_t *sizes, int64_t *extents) {{"
    values = (f"    extents[{i}] = {in_c(str(n))};" for i, n in enumerate(every))
    return [head, *named_sizes(labels), *values, "}"]


def refuse_source(name: str, call: Traced, labels: Sequence[str]) -> list[str]:
    """C that tells which condition on sizes does not hold, if any."""
    head = f"static const char *{name}(const int64_t *sizes) {{"
    tests = (f"    if (!({c})) return {text(told)};" for told, c in call.conditions)
    return [head, *named_sizes(labels), *tests, "    return 0;", "}"]


def runs_source(isa: Isa) -> list[str]:
    """C that tells whether this machine has an instruction set."""
    tests = "".join(f' && __builtin_cpu_supports("{f}")' for f in isa.features)
    first = "__builtin_cpu_init();" if isa.features else ""
    return [f"static int weft_runs_{isa.name}(void) {{", f"    {first} return 1{tests};", "}"]


def cubins_source(isa: Isa, kernels: Sequence[Any]) -> list[str]:
    """C that lists the kernels of a GPU."""
    declared = [f"extern WEFT_LOCAL const uint64_t {k.array}[];" for k in kernels]
    rows = [k.row for k in kernels] or ["{0}"]
    return [*declared, table(f"static const weft_cubin weft_cubins_{isa.name}[]", rows)]


def model_source(
    calls: Sequence[Traced],
    isas: Sequence[Isa],
    weights: Sequence[Weight],
    places: Sequence[Sequence[int]],
    cubins: Mapping[str, Sequence[Any]] = MappingProxyType({}),
) -> str:
    """The C file that names all codes and shapes; `places` are the numbers of calls' weights.

    `cubins` are the kernels of GPUs, by the names of these.
    """
    lines = [f'#include "weft_{"cuda" if cubins else "cpu"}.h"', *IN_C]
    rows: list[str] = []
    for isa in isas:
        names = [f"weft_{isa.name}_{n}" for n in range(len(calls))]
        opens = [f"#ifdef {isa.machine}"] if isa.machine else []
        closes = ["#endif"] if isa.machine else []
        lines += [
            *opens,
            *(f"extern WEFT_LOCAL const weft_code {n};" for n in names),
            table(f"static const weft_code *const weft_{isa.name}[]", [f"&{n}" for n in names]),
            *(cubins_source(isa, cubins[isa.name]) if cubins else runs_source(isa)),
            *closes,
        ]
        facts = f"weft_runs_{isa.name}"
        if isa.capability is not None:
            numbered = *isa.capability, int(isa.name.endswith("a")), len(cubins[isa.name])
            facts = f"{numbers(numbered)}, weft_cubins_{isa.name}"
        row = f"{{{text(isa.name)}, {facts}, weft_{isa.name}}},"
        rows += [*opens, f"    {row}", *closes]
    both = zip(calls, places, strict=True)
    told = [signature_source(n, call, own) for n, (call, own) in enumerate(both)]
    lines += [line for own, _, _ in told for line in own]
    lines += [
        table("const weft_signature weft_declared[]", [row for _, row, _ in told]),
        table("const weft_extents weft_extents_of[]", [row for _, _, row in told]),
        table("const weft_weight weft_weights[]", [w.row(text) for w in weights]),
        "\n".join(["const weft_target weft_targets[] = {", *rows, "    {0},", "};"]),
        f"const int weft_weight_count = {len(weights)}, weft_signature_count = {len(calls)};",
        "const int weft_target_count = sizeof weft_targets / sizeof *weft_targets - 1;",
    ]
    return "\n".join(lines) + "\n"
