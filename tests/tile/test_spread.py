"""spread_sums: which sums over groups go around by lanes."""

from __future__ import annotations

import re

import pytest

from tests.steps import step_of
from tests.tile.test_passes import close, inputs_of
from weft.interpret import nests as interpret
from weft.targets.cpu import CPUS
from weft.text import parse_program, print_program
from weft.tile.schedule import CPU_SCHEDULE

GROUPS = """
program loop groups
input x: {x}[{n},{group}]
input codes: u8[5,{n},{half}]
input scale: f32[5,{n}]

kernel y(x: {x}[{n},{group}], codes: u8[5,{n},{half}], scale: f32[5,{n}]) -> y: f32[5]
for a0 in 0..5:  # free
    for a1 in 0..{n}:  # reduce
        for a2 in 0..{group}:  # reduce into acc1
            in0 = load x[a1, a2]
            in1 = load codes[a0, a1, a2 % {half}]
            v0 = lt(a2, {half})
            v1 = and(in1, 15:u8)
            v2 = shift_right(in1, 4:u8)
            v3 = where(v0, v1, v2)
            v4 = {wide}(v3)
            v5 = {wide}(in0)
            v6 = multiply(v5, v4)
            acc1 <- add(acc1, v6)
        in2 = load scale[a0, a1]
        v7 = {sums}(acc1)
        v8 = multiply(v7, in2)
        acc0 <- add(acc0, v8)
    y[a0] = acc0

output y
"""
SPREAD = re.compile(r"for c0 in 0\.\.16:  # reduce vector16\n +for")
SHORT = """
program loop short
input x: i32[{n},4]
input words: i32[9,{n},4]
input more: {more}[{n},4]
input scale: f16[9,{n}]

kernel y(x: i32[{n},4], words: i32[9,{n},4], more: {more}[{n},4], scale: f16[9,{n}]) -> y: f32[9]
for a0 in 0..9:  # free
    for a1 in 0..{n}:  # reduce
        for a2 in 0..4:  # reduce into acc1
            in0 = load x[a1, a2]
            in1 = load words[a0, a1, a2]
            in2 = load more[a1, a2]
            v0 = dot_bytes(in1, in0)
            v1 = i32(in2)
            v2 = multiply(v1, -8:i32)
            v3 = add(v0, v2)
            acc1 <- add(acc1, v3)
        in3 = load scale[a0, a1]
        v4 = f32(acc1)
        v5 = f32(in3)
        v6 = multiply(v4, v5)
        acc0 <- add(acc0, v6)
    y[a0] = acc0

output y
"""


def scheduled(groups: int, group: int, x: str, sums: str) -> str:
    wide = "f32" if x == "f16" else "i32"
    shape = {"n": groups, "group": group, "half": group // 2}
    text = GROUPS.lstrip().format(**shape, x=x, wide=wide, sums=sums)
    if not sums:
        text = text.replace("        v7 = (acc1)\n", "").replace("(v7, in2)", "(acc1, in2)")
    return by_all_passes(text)


def by_all_passes(text: str) -> str:
    """The program by all passes, each of which keeps its meaning."""
    program = parse_program(text)
    inputs = inputs_of(program)
    want = interpret.run(program, inputs, widen=True)
    for _, change in CPU_SCHEDULE:
        program = step_of(program, change, CPUS["avx512"])
        close(interpret.run(program, inputs, widen=True), want)
    return print_program(program)


@pytest.mark.parametrize("group", [32, 128, 160, 512])
def test_sums_of_groups_and_of_parts_of_them(group: int) -> None:
    """From 128 on, halves are sums of their own when lanes go around them."""
    assert SPREAD.search(scheduled(6, group, "f16", ""))


@pytest.mark.parametrize("group, whole", [(64, True), (512, False)])
def test_sums_of_integers_that_f32_holds(group: int, whole: bool) -> None:
    assert bool(SPREAD.search(scheduled(6, group, "i8", "f32"))) == whole
    assert not SPREAD.search(scheduled(6, group, "i32", "f32"))


def test_others_stay() -> None:
    assert not SPREAD.search(scheduled(6, 64, "f16", "relu"))
    assert not SPREAD.search(scheduled(6, 40, "f16", ""))


@pytest.mark.parametrize(
    "groups, more, spreads", [(8, "i16", True), (6, "i16", False), (8, "i32", False)]
)
def test_groups_of_part_of_a_vector(groups: int, more: str, spreads: bool) -> None:
    """Four have their lanes in one vector, where f32 has their sums."""
    text = by_all_passes(SHORT.lstrip().format(n=groups, more=more))
    assert bool(SPREAD.search(text)) == spreads


def test_what_groups_share_is_computed_before() -> None:
    text = GROUPS.lstrip().replace("scale: f32", "scale: f16").replace("(v7, in2)", "(acc1, v7)")
    text = text.format(n=8, group=32, half=16, x="f16", wide="f32", sums="f32")
    text = by_all_passes(text.replace("v7 = f32(acc1)", "v7 = f32(in2)"))
    assert SPREAD.search(text) and "local shared0: f32[3,8]" in text


@pytest.mark.parametrize("rows, columns", [(1, 3), (2, 1), (3, 7), (5, 3)])
def test_rows_and_columns_in_registers(rows: int, columns: int) -> None:
    """As many as there are, also where no loop is left around them."""
    text = SHORT.lstrip().format(n=8, more="i16")
    text = text.replace("in 0..9:", f"in 0..{columns}:").replace("[9,", f"[{columns},")
    text = text.replace("f32[9]", f"f32[{rows},{columns}]").replace("y[a0]", "y[m, a0]")
    text = text.replace("x: i32[8,4]", f"x: i32[{rows},8,4]").replace("x[a1", "x[m, a1")
    head, body = text.split("for a0", 1)
    body, end = ("for a0" + body).split("\noutput")
    text = f"{head}for m in 0..{rows}:  # free\n" + re.sub("(?m)^(?=.)", "    ", body)
    assert "# reduce vector16" in by_all_passes(f"{text}\noutput{end}")
