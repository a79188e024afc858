"""Accesses of consecutive elements as one: stores are joined, not moved before what they read."""

from __future__ import annotations

import numpy as np
import pytest

from weft.interpret import kernels as interpret
from weft.kernel.widen_accesses import widen_accesses
from weft.text import parse_program, print_program

PROGRAM = """
program kernel steps
input x: f32[8]

kernel y(x: f32[8]) -> y: f32[8]
local t: f32[4]
for a0 in 0..4:  # free serial
    in0 = load x[a0 * 2]
{body}
output y
"""
KEPT = ["t[a0] = in0", "in1 = load t[a0]"]
CASES = {
    "side by side": (["y[a0 * 2] = in0", "y[a0 * 2 + 1] = in0"], True),
    "behind what they read": ([*KEPT, "y[a0 * 2] = in1", "y[a0 * 2 + 1] = in1"], True),
    "around what one reads": (["y[a0 * 2] = in0", *KEPT, "y[a0 * 2 + 1] = in1"], False),
}


@pytest.mark.parametrize("name", CASES)
def test_stores_stay_behind_what_they_read(name: str) -> None:
    lines, joined = CASES[name]
    body = "".join(f"    {line}\n" for line in lines)
    program = parse_program(PROGRAM.format(body=body).lstrip())
    wide = program.map_kernels("kernel", lambda k: widen_accesses(k, None))
    assert ("y{2}[" in print_program(wide)) == joined
    x = np.arange(8, dtype=np.float32) + 1
    got, want = (interpret.run(p, [x], widen=True)[0] for p in (wide, program))
    np.testing.assert_array_equal(got, want)
