"""Sizes of a launch spec that calls decide: expressions over names such as s0, in Python's syntax.

value("s0 * 64", {"s0": 13})         # 832
shown((2, "s0 * 64"))                # "(2, s0 * 64,)", of a shape in the text of a call
"""

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from types import CodeType
from typing import Any

from weft.runtime.plan import ALIGNMENT, Slot
from weft.runtime.spec import Buffer, Extern, ProgramSpec

SIZES = "sizes"  # the buffer that kernels read them from
NUMBERS = "numbers"  # the one that kernels with rows read those of their rows from


@cache
def _compiled(text: str) -> CodeType:
    return compile(text, "<size>", "eval")


def value(extent: int | str, sizes: Mapping[str, int]) -> int:
    if not isinstance(extent, str):
        return extent
    return eval(_compiled(extent), {"max": max, "min": min}, dict(sizes))


def shown(extents: Iterable[int | str]) -> str:
    """A tuple as Python text."""
    return f"({''.join(f'{n}, ' for n in extents)})"


def at_sizes(spec: ProgramSpec, sizes: Mapping[str, int]) -> ProgramSpec:
    """The spec for one value of each size."""

    def numbers(extents: Sequence[int | str]) -> tuple[int, ...]:
        return tuple(value(n, sizes) for n in extents)

    def argument(tree: Any) -> Any:
        if isinstance(tree, dict):
            return value(tree["size"], sizes) if "size" in tree else tree
        return [*map(argument, tree)] if isinstance(tree, list | tuple) else tree

    def step(s: Any) -> Any:
        if not isinstance(s, Extern):
            return s
        kwargs = {name: argument(tree) for name, tree in s.kwargs.items()}
        return replace(s, args=tuple(map(argument, s.args)), kwargs=kwargs)

    buffers = (replace(b, shape=numbers(b.shape), strides=numbers(b.strides)) for b in spec.buffers)
    steps = tuple(map(step, spec.steps))
    return ProgramSpec(tuple(buffers), steps, spec.outputs, (), spec.numbers)


def groups_of(slots: Iterable[Slot]) -> list[list[Slot]]:
    """Temporaries that take turns in one place, which is as large as the largest of them.

    Where each place starts follows from sizes alone, so that a call can tell. The largest first.
    """
    groups: list[list[Slot]] = []
    for slot in sorted(slots, key=lambda s: (-s.bytes, s.first, s.name)):
        free = (g for g in groups if all(s.last < slot.first or slot.last < s.first for s in g))
        group = next(free, None)
        if group is None:
            groups.append(group := [])
        group.append(slot)
    return groups


# What expressions over sizes call. // and % are Python's: C rounds a quotient to zero.
IN_C = (
    "#define max(a, b) ((a) > (b) ? (a) : (b))",
    "#define min(a, b) ((a) < (b) ? (a) : (b))",
    "#define UNUSED static inline __attribute__((unused))",
    "UNUSED long long weft_rest(long long a, long long b) { return (a % b + b) % b; }",
    "UNUSED long long weft_quotient(long long a, long long b) {",
    "    return (a - weft_rest(a, b)) / b;",
    "}",
)


def named_sizes(labels: Iterable[str], sizes: str = "sizes") -> list[str]:
    """C that names the elements of an array of sizes."""
    named = (f"    const long long {label} = {sizes}[{i}];" for i, label in enumerate(labels))
    return [line + f" (void){line.split()[3]};" for line in named]


class _Floors(ast.NodeTransformer):
    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        names: dict[type, str] = {ast.FloorDiv: "weft_quotient", ast.Mod: "weft_rest"}
        name = names.get(type(node.op))
        return node if name is None else ast.Call(ast.Name(name), [node.left, node.right], [])


def in_c(extent: str) -> str:
    """An expression over sizes as C; it divides by what is positive."""
    return ast.unparse(_Floors().visit(ast.parse(extent, mode="eval")))


def arena_source(
    spec: ProgramSpec,
    groups: Sequence[Sequence[str]],
    items: Mapping[str, int],
    index: Mapping[str, int],
) -> list[str]:
    """C that places temporaries in the arena at `base`, unless that is NULL; its bytes.

    `items` has bytes of an element, `index` numbers in the array of addresses, by buffer.
    """
    buffers = {b.name: b for b in spec.buffers}
    lines = [
        *IN_C,
        "static long long weft_arena_at(void **b, char *base, const long long *sizes) {",
        *named_sizes(label for label, _ in spec.sizes),
        "    long long at = 0, most = 0;",
        "    (void)b, (void)base, (void)most;",
    ]
    for group in groups:
        lines.append("    most = 1;")
        for name in group:
            elements = in_c(str(buffers[name].span))
            lines.append(f"    most = max(most, ({elements}) * {items[name]});")
            lines.append(f"    if (base) b[{index[name]}] = base + at;")
        lines.append(f"    at += (most + {ALIGNMENT - 1}) / {ALIGNMENT} * {ALIGNMENT};")
    return [*lines, "    return at;", "}"]


def by_value(label: str) -> str:
    """The name of the buffer that holds one size, for kernels that take it by value."""
    return f"size {label}"


def size_buffers(labels: Sequence[str], by_values: bool) -> list[Buffer]:
    """What kernels get sizes from: on a CPU one array of them, on a GPU each by its value."""
    if by_values:
        return [Buffer(by_value(label), "i64", (), (), "sizes") for label in labels]
    return [Buffer(SIZES, "i64", (len(labels),), (1,), "sizes")] if labels else []


def number_buffer(count: int) -> Buffer:
    """What kernels with rows get sizes from, which are the same in all calls."""
    return Buffer(NUMBERS, "i64", (count,), (1,), "sizes")
