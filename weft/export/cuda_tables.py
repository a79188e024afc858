"""A model for NVIDIA's GPUs as C tables, in the terms of weft_cuda.h.

cuda_source(code, call, places, "sm_90a_0", cubins)  # a signature's code; cubins by their numbers
cubin_source("weft_sm_90a_relu", image)              # machine code as an array
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from weft.export.code import Code
from weft.export.tables import bound_rows, numbers, text
from weft.export.traced import Traced
from weft.runtime.layout import item_bytes
from weft.runtime.native import table
from weft.runtime.sizes import arena_source, by_value, in_c, named_sizes
from weft.runtime.spec import Call

# CUtensorMapDataType and CUtensorMapSwizzle, by NumPy's names and by bytes.
TYPES: Sequence[str] = (
    "uint8 uint16 uint32 int32 uint64 int64 float16 float32 float64 bfloat16".split()
)
SWIZZLES = (0, 32, 64, 128)


@dataclass(frozen=True)
class Kernel:
    """A kernel of a model: its own name, that of its cubin's array, and what its launches need."""

    symbol: str
    array: str
    image: bytes
    shared: int
    checked: bool

    @property
    def row(self) -> str:
        """Its row of the cubins."""
        return f"{{{text(self.symbol)}, {self.array}, {self.shared}, {int(self.checked)}}}"


def kernels_of(codes: Iterable[Code], prefix: str) -> dict[tuple[str, str], Kernel]:
    """The kernels of all signatures for an architecture, by symbol and text."""
    found: dict[tuple[str, str], Kernel] = {}
    for code in codes:
        calls = [step for step in code.layout.spec.steps if isinstance(step, Call)]
        checked = {call.symbol for call in calls if call.checks is not None}
        for symbol, kernel in code.kernels.items():
            key = symbol, kernel.source
            before = key in found and found[key].checked
            array = found[key].array if key in found else f"{prefix}_{len(found)}"
            facts = kernel.shared, before or symbol in checked
            found[key] = Kernel(symbol, array, code.cubins[symbol], *facts)
    return found


def cubin_source(kernel: Kernel) -> str:
    """C with machine code, in words, as compilers read these fastest."""
    image = kernel.image + bytes(-len(kernel.image) % 8)
    words = [int.from_bytes(image[i : i + 8], "little") for i in range(0, len(image), 8)]
    rows = [", ".join(f"{w:#x}" for w in words[i : i + 8]) for i in range(0, len(words), 8)]
    declared = f"WEFT_LOCAL const uint64_t {kernel.array}[]"
    head = f'#include "weft_cuda.h"\nextern {declared};\n/* {kernel.symbol} */\n'
    return head + table(declared.removeprefix("WEFT_LOCAL "), rows) + "\n"


def cuda_source(
    code: Code, call: Traced, weights: Sequence[int], name: str, kernels: Sequence[tuple[str, str]]
) -> str:
    """The tables of a code; `kernels` are the symbols and texts of those that it may have."""
    layout, index = code.layout, code.layout.index
    spec = layout.spec
    labels = [label for label, _ in spec.sizes]
    number = {key: i for i, key in enumerate(kernels)}
    steps: list[str] = []
    operands: list[int] = []
    boxes: list[str] = []
    grids: list[str] = []
    most = 1
    for step in spec.steps:
        assert isinstance(step, Call)
        own = [index[arg] for arg in step.args]
        kernel = code.kernels.get(step.symbol)
        which, block, maps = -1, 0, 0
        if kernel is not None:
            which, block, maps = number[step.symbol, kernel.source], kernel.block, len(kernel.maps)
        origin = text(step.checks) if step.checks else "0"
        places = f"{len(operands)}, {len(own)}, {len(boxes)}, {maps}"
        steps.append(f"{{{which}, {places}, {block}, {origin}}}")
        grids.append(in_c(str(kernel.grid if kernel is not None else 0)))
        for operand, *facts in kernel.maps if kernel is not None else ():
            boxes.append(box_row(own[operand], *facts))
        operands += own
        most = max(most, len(own) + maps)
    offsets = [layout.plan.offsets.get(b.name, -1) for b in spec.buffers]
    bound = bound_rows(code, call, weights)
    checked = any(isinstance(s, Call) and s.checks is not None for s in spec.steps)
    stores = len(steps) - code.stores
    counts = (len(offsets), len(steps), stores, len(bound), most, len(boxes), code.draws)
    where = [f"weft_grid_{name}", "weft_arena_at"] if labels else ["0", "0"]
    facts = f"weft_grids, {layout.plan.total}, {', '.join(where)}, weft_size_at"
    lines = [
        '#include "weft_cuda.h"',
        table("static const weft_step weft_steps[]", steps),
        f"static const int weft_operands[] = {{{numbers(operands)}}};",
        table("static const weft_box weft_boxes[]", boxes or ["{0}"]),
        table("static const weft_binding weft_bound[]", bound or ["{0}"]),
        f"static const long long weft_offsets[] = {{{numbers(offsets)}}};",
        f"static const long long weft_grids[] = {{{', '.join(grids) if not labels else 0}}};",
        f"static const int weft_size_at[] = {{{numbers(index[by_value(n)] for n in labels)}}};",
        *(sized(code, f"weft_grid_{name}", labels, grids) if labels else ()),
        f"const weft_code weft_{name} = {{",
        f"    {numbers((*counts, int(checked)))},",
        f"    weft_steps, weft_operands, weft_boxes, weft_bound, weft_offsets, {facts}}};",
    ]
    return "\n".join(lines) + "\n"


def sized(code: Code, name: str, labels: Sequence[str], grids: Sequence[str]) -> list[str]:
    """C that computes where temporaries lie, and grids, from sizes."""
    layout = code.layout
    items = {b: item_bytes(buffer) for b, buffer in layout.buffers.items()}
    return [
        *arena_source(layout.spec, layout.groups, items, layout.index),
        f"static void {name}(const long long *sizes, long long *grid) {{",
        *named_sizes(labels),
        *(f"    grid[{i}] = {n};" for i, n in enumerate(grids)),
        "    (void)grid;",
        "}",
    ]


def box_row(
    buffer: int,
    dtype: str,
    sizes: Sequence[int],
    strides: Sequence[int],
    sides: Sequence[int],
    swizzle: int,
) -> str:
    """A row of weft_box, of what a tensor map is outermost dimension first."""
    facts = f"{buffer}, {TYPES.index(dtype)}, {len(sizes)}, {SWIZZLES.index(swizzle)}"
    parts = (sizes[::-1], strides[-2::-1], sides[::-1])
    return f"{{{facts}, {', '.join(f'{{{numbers(part)}}}' for part in parts)}}}"
