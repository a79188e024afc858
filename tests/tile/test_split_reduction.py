"""Sums that threads share: one thread alone has no part that is as long as the others."""

from __future__ import annotations

import pytest

from weft.core.passes import PassLog
from weft.levels import lower
from weft.options import Options
from weft.scalar.blocks import loops_in
from weft.targets.cpu import CPUS
from weft.text import parse_program


@pytest.mark.parametrize("extent", [1 << 20, 700_000, 1_000_003, 1_300_001])
def test_each_core_has_a_part(extent: int) -> None:
    program = parse_program(
        f"""
program loop total
input x: f32[{extent}]

kernel y(x: f32[{extent}]) -> y: f32[]
for a0 in 0..{extent}:  # reduce
    in0 = load x[a0]
    v0 = exp(in0)
    acc0 <- add(acc0, v0)
y[] = acc0

output y: f32[]
"""
    )
    levels = lower(program, Options("cpu:avx512"), PassLog())
    (kernel,) = levels.program("kernel").kernels
    (shared,) = loops_in(kernel.body, "parallel")
    assert shared.extent is not None
    parts = shared.extent // shared.step
    assert parts >= CPUS["avx512"].cores and extent - shared.extent < shared.step
