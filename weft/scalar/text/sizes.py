"""Text of the sizes of a program, which stand between its header and its inputs.

size s0: 2..65536 near 13, s0 % 8 == 0        # from 2 to 65536, priced as 13, a multiple of 8
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from weft.core.node import Node
from weft.core.text.cursor import READ_SIZE, Cursor, Line
from weft.core.text.level import make_node
from weft.scalar.ops import Symbol
from weft.scalar.resize import sizes_of, sizes_of_rows
from weft.scalar.sizes import size
from weft.scalar.text.terms import SIZES, NameReader


def show_sizes(program: Any) -> list[str]:
    found = (*sizes_of(program).values(), *sizes_of_rows(program))
    return [_show_size(node.op) for node in found]  # type: ignore[arg-type]


def _show_size(s: Symbol) -> str:
    rest = f", {s.label} % {s.divisor} == 0" if s.divisor != 1 else ""
    return f"size {s.label}: {s.low}..{s.high} near {s.hint}{rest}"


def read_size(cursor: Cursor) -> Node:
    cursor.expect("size")
    label = cursor.name("a size")
    cursor.expect(":")
    low = cursor.integer()
    cursor.expect("..")
    high = cursor.integer()
    hint = cursor.integer() if cursor.accept("near") else low
    divisor = 1
    if cursor.accept(","):
        cursor.expect(label, "%")
        divisor = cursor.integer()
        cursor.expect("==", "0")
    cursor.end()
    if not 0 <= low <= hint <= high:
        cursor.invalid(f"size {label} runs from {low} to {high}, its hint is {hint}")
    if divisor < 1 or hint % divisor:
        cursor.invalid(f"size {label} is a multiple of {divisor}, its hint is {hint}")
    return make_node(cursor, Symbol(label, low, high, hint, divisor))


@contextmanager
def reading(lines: Sequence[Line]) -> Generator[list[Line], None, None]:
    """The lines behind those of sizes, which are known by name inside."""
    known: dict[str, Node] = {}
    rest = list(lines)
    while rest and rest[0].text.startswith("size ") and ":" in rest[0].text:
        cursor = Cursor(rest.pop(0))
        node = read_size(cursor)
        cursor.define(known, node.op.label, node)  # type: ignore[attr-defined]

    def read(cursor: Cursor) -> Any:
        return size(NameReader(known, "undefined size").index_term(cursor))

    tokens = SIZES.set(known), READ_SIZE.set(read)
    try:
        yield rest
    finally:
        SIZES.reset(tokens[0])
        READ_SIZE.reset(tokens[1])
