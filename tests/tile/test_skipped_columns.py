"""Sums that stay whole: columns that a mask rules out, and blocks of one axis of two."""

from __future__ import annotations

import pytest

from tests.tile.test_passes import PROGRAMS, close, inputs_of
from weft.interpret import nests as interpret
from weft.scalar.nest import Program
from weft.targets.cpu import CPUS
from weft.text import parse_program, print_program
from weft.tile import verify as tile_verify
from weft.tile.passes.both.block_sums import block_sums
from weft.tile.passes.cpu.skip_masked import skip_masked

TOTAL = """    for a10 in 0..32:  # reduce
        for a11 in 0..128:  # reduce
            in7 = load s[a10, a11]
            acc4 <- add(acc4, in7)
    for a4 in 0..32:  # free
"""


@pytest.mark.parametrize("total", [False, True])
def test_columns_that_an_outer_sum_reads_are_not_skipped(total: bool) -> None:
    """The sum of all scores is declared by a loop over rows, which is not shortened itself."""
    text = PROGRAMS["skip_masked"]
    if total:
        text = text.replace("    for a4 in 0..32:  # free\n", TOTAL)
        text = text.replace("divide(acc3, in6)", "divide(acc3, acc4)")
    program: Program = parse_program(text)
    inputs = inputs_of(program)
    shorter = program.map_kernels("tile", lambda k: skip_masked(k, CPUS["avx512"]))
    want = interpret.run(program, inputs, widen=True)
    close(interpret.run(shorter, inputs, widen=True), want)
    assert ("in 0..a0 * 32 + 32" in print_program(shorter)) != total


def windowed(text: str, width: int) -> str:
    """The program, where each row has the last `width` of its keys."""
    for new, old, column in (("v10", "v1", "a5"), ("v12", "v3", "a6")):
        last = f"{new} = lt(a0 * 32 + a4, {column} + {width})"
        both = f"{new}_ = and({old}, {new})".replace("_", "0")
        text = text.replace(
            f"{old} = ge(a0 * 32 + a4, {column})\n",
            f"{old} = ge(a0 * 32 + a4, {column})\n{' ' * 12}{last}\n{' ' * 12}{both}\n",
        ).replace(f"where({old}, ", f"where({new}0, ")
    return text


@pytest.mark.parametrize("width", [1, 5, 33, 40, 200])
def test_columns_before_a_window_are_skipped(width: int) -> None:
    program: Program = parse_program(windowed(PROGRAMS["skip_masked"], width))
    shorter = program.map_kernels("loop", lambda k: skip_masked(k, CPUS["avx512"]))
    text, inputs = print_program(shorter), inputs_of(program)
    if width == 200:
        assert "in 0..a0 * 32 + 32" in text and "max(" not in text
    else:
        start = "a0 * 32" if width == 1 else f"max(a0 * 32 - {width - 1}, 0)"
        assert text.count(f"in {start}..a0 * 32 + 32") == 4
    close(interpret.run(shorter, inputs, widen=True), interpret.run(program, inputs, widen=True))


def test_columns_of_products_with_any_number_are_not_skipped() -> None:
    """An infinite value gives NaN in all rows, also times 0: in eager, and so in each level."""
    text = PROGRAMS["skip_masked"].replace("finite add", "add")
    program: Program = parse_program(text)
    shorter = program.map_kernels("loop", lambda k: skip_masked(k, CPUS["avx512"]))
    assert print_program(shorter) == print_program(program)


def test_columns_are_skipped_beside_a_load_at_literal_places() -> None:
    """It is no function of literals, although all that it is given are."""
    lines = ("in8 = load q[0, 0]", "v9 = add(v4, in8)", "v5 = subtract(v9, acc1)")
    moved = ("\n" + " " * 12).join(lines)
    text = PROGRAMS["skip_masked"].replace("v5 = subtract(v4, acc1)", moved)
    program: Program = parse_program(text)
    shorter = program.map_kernels("loop", lambda k: skip_masked(k, CPUS["avx512"]))
    assert "in 0..a0 * 32 + 32" in print_program(shorter)
    inputs = inputs_of(program)
    close(interpret.run(shorter, inputs, widen=True), interpret.run(program, inputs, widen=True))


ROW = """    for a4 in 0..32:  # free
        local row: f32[1,128]
        for a10 in 0..128:  # free
            in7 = load s[a4, a10]
            row[0, a10] = in7
"""


def test_columns_that_are_read_outside_of_a_block_are_not_skipped() -> None:
    """The block of a row writes scores that products read beyond it, all 128 columns of them."""
    text = PROGRAMS["skip_masked"].replace("finite add", "add")
    text = text.replace("    for a4 in 0..32:  # free\n", ROW)
    text = text.replace("load s[a4, a5]", "load row[0, a5]").replace("s[a4, a6]", "row[0, a6]")
    text = text.replace("row[0, a6] = v6", "s[a4, a6] = v6")
    program: Program = parse_program(text)
    shorter = program.map_kernels("loop", lambda k: skip_masked(k, CPUS["avx512"]))
    assert print_program(shorter) == print_program(program)


SQUARE = """
program tile total
input x: f32[2,110,110]

kernel y(x: f32[2,110,110]) -> y: f32[2]
for a0 in 0..2:  # free serial
    for a1 in 0..100:  # reduce serial
        for b0 in 0..100 by 24:  # reduce serial
            for a2 in b0..min(b0 + 24, 100):  # reduce serial
                in0 = load x[a0, a1, a2]
                acc0 <- add(acc0, in0)
    y[a0] = acc0

output y
"""


def test_sums_are_split_along_one_of_two_axes_of_a_length() -> None:
    """Rows are added in blocks; columns end at 100 all the same."""
    program: Program = parse_program(SQUARE)
    split = program.map_kernels("tile", lambda k: block_sums(k, None))
    tile_verify.verify(split)
    inputs = inputs_of(program)
    close(interpret.run(split, inputs, widen=True), interpret.run(program, inputs, widen=True))
    assert "for a2 in b0..min(b0 + 24, 100)" in print_program(split) != print_program(program)
