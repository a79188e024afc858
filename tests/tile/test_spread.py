"""spread_sums: which sums over groups go around by lanes."""

from __future__ import annotations

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
SPREAD = "for c0 in 0..16:  # reduce vector16\n        for"


def scheduled(groups: int, group: int, x: str, sums: str) -> str:
    """The program by all passes, each of which keeps its meaning."""
    wide = "f32" if x == "f16" else "i32"
    shape = {"n": groups, "group": group, "half": group // 2}
    text = GROUPS.lstrip().format(**shape, x=x, wide=wide, sums=sums)
    if not sums:
        text = text.replace("        v7 = (acc1)\n", "").replace("(v7, in2)", "(acc1, in2)")
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
    assert SPREAD in scheduled(6, group, "f16", "")


@pytest.mark.parametrize("group, whole", [(64, True), (512, False)])
def test_sums_of_integers_that_f32_holds(group: int, whole: bool) -> None:
    assert (SPREAD in scheduled(6, group, "i8", "f32")) == whole
    assert SPREAD not in scheduled(6, group, "i32", "f32")


def test_others_stay() -> None:
    assert SPREAD not in scheduled(6, 64, "f16", "relu")
    assert SPREAD not in scheduled(6, 40, "f16", "")
