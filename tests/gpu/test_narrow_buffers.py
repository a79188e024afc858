"""Buffers between kernels hold 16 bits where only rounded values go into them."""

from __future__ import annotations

import numpy as np

from weft.interpret import nests as interpret
from weft.loop import verify
from weft.text import parse_program, print_program
from weft.tile.passes.programs.narrow_buffers import narrow_buffers

PROGRAM = """
program loop two
input x: f32[40]

kernel first(x: f32[40]) -> t: f32[40]
for a0 in 0..40:  # free
    t[a0] = {}

kernel second(t: f32[40]) -> y: f32[50]
for a0 in 0..50:  # free
    v0 = lt(a0, 40)
    in0 = load t[a0] if v0 else {}
    y[a0] = multiply(in0, in0)

output y
"""


def narrowed(value: str, other: str) -> str:
    program = parse_program(PROGRAM.format(value, other).lstrip(), "two")
    after = narrow_buffers(program)
    verify.verify(after)
    x = np.random.default_rng(0).normal(size=40).astype(np.float32)
    (before,), (now,) = (interpret.run(p, [x]) for p in (program, after))
    np.testing.assert_array_equal(before, now)
    return print_program(after)


def test_rounded_values_are_stored_in_16_bits() -> None:
    text = narrowed("round_bf16(load x[a0])", "0.0")
    assert "-> t: bf16[40]" in text and "f32(in0)" in text


def test_other_values_stay() -> None:
    assert "-> t: f32[40]" in narrowed("relu(load x[a0])", "0.0")
    assert "-> t: f32[40]" in narrowed("round_bf16(load x[a0])", "0.1")
