"""A user's loops may start anywhere and go by any step; passes know those that count from 0."""

from __future__ import annotations

import numpy as np
import pytest

from weft.core.passes import PassLog
from weft.interpret.nests import run
from weft.levels import lower
from weft.options import Options
from weft.scalar.structure import structure
from weft.text import parse_program

PRODUCT = """
program loop product
input x: f32[13,20]
input w: f32[20,35]

kernel y(x: f32[13,20], w: f32[20,35]) -> y: f32[13,35]
for a0 in {rows}:  # free
    for a1 in {columns}:  # free
        for a2 in {depth}:  # reduce
            in0 = load x[{a0}, {a2}]
            in1 = load w[{a2}, {a1}]
            v0 = multiply(in0, in1)
            acc0 <- add(acc0, v0)
        y[{a0}, {a1}] = acc0

output y
"""
PLAIN = {
    "rows": "0..13", "columns": "0..35", "depth": "0..20", "a0": "a0", "a1": "a1", "a2": "a2"
}  # fmt: skip
ELSEWHERE = {
    "depth": {"depth": "3..23", "a2": "a2 - 3"},
    "columns": {"columns": "1..36", "a1": "a1 - 1"},
    "steps": {"rows": "2..27 by 2", "a0": "(a0 - 2) // 2"},  # the last of 13 is 26
    "all": {
        "rows": "2..40 by 3", "a0": "(a0 - 2) // 3", "columns": "7..42", "a1": "a1 - 7",
        "depth": "4..44 by 2", "a2": "(a2 - 4) // 2",
    },
}  # fmt: skip


@pytest.mark.parametrize("target", ["cpu:avx2", "cuda:sm_90a"])
@pytest.mark.parametrize("which", ELSEWHERE)
def test_loops_that_start_elsewhere_are_scheduled_like_others(which: str, target: str) -> None:
    plain, other = (
        parse_program(PRODUCT.format(**{**PLAIN, **moved})) for moved in ({}, ELSEWHERE[which])
    )
    random = np.random.default_rng(0)
    inputs = [random.standard_normal(b.type.shape, dtype=np.float32) for b in plain.inputs]
    np.testing.assert_array_equal(run(other, inputs)[0], run(plain, inputs)[0])
    levels = (lower(p, Options(target), PassLog()) for p in (other, plain))
    made, want = ([*map(structure, found.program("kernel").kernels)] for found in levels)
    assert made == want
