"""Convolutions by constant weights: output channels in the lanes where columns do not fill them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.steps import step_of
from weft.emit.c import emit_kernel
from weft.interpret import kernels as kernel_interpret
from weft.interpret import nests as interpret
from weft.scalar.nest import Program
from weft.targets.cpu import CPUS
from weft.text import parse_program, print_program
from weft.tile.lower import kernels as lower
from weft.tile.passes.programs.pack_constants import pack_constants
from weft.tile.schedule import CPU_SCHEDULE

CONVOLUTION = """
program loop convolution
input x: f32[48,{high},{wide}]
input w: f32[{channels},48,3,3]

kernel y(x: f32[48,{high},{wide}], w: f32[{channels},48,3,3]) -> y: f32[{channels},{rows},{columns}]
for a0 in 0..{channels}:  # free
    for a1 in 0..{rows}:  # free
        for a2 in 0..{columns}:  # free
            for a3 in 0..48:  # reduce
                for a4 in 0..3:  # reduce
                    for a5 in 0..3:  # reduce
                        in0 = load x[a3, a1 + a4, a2 + a5]
                        in1 = load w[a0, a3, a4, a5]
                        v0 = multiply(in0, in1)
                        acc0 <- add(acc0, v0)
            y[a0, a1, a2] = acc0

output y
"""
AVX2 = CPUS["avx2"]


def tiled(channels: int, rows: int, columns: int) -> tuple[Program, Program]:
    """The program, and its tile level where the weights are constant."""
    sizes = {"channels": channels, "rows": rows, "columns": columns}
    text = CONVOLUTION.format(**sizes, high=rows + 2, wide=columns + 2)
    program = parse_program(text)
    scheduled = pack_constants(program, (1,), AVX2)
    for _, change in CPU_SCHEDULE:
        scheduled = step_of(scheduled, change, AVX2)
    return program, scheduled


def given(program: Program) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.standard_normal(b.type.shape).astype(np.float32) for b in program.inputs]


@pytest.mark.parametrize(
    ("channels", "columns", "width"), [(32, 28, 16), (48, 13, 16), (24, 7, 8), (40, 7, 8)]
)
def test_channels_are_in_the_lanes(channels: int, columns: int, width: int) -> None:
    """Two vectors of them where these are whole; weights lie in panels of so many."""
    program, tiles = tiled(channels, 6, columns)
    text = print_program(tiles)
    assert f"w_panels: f32[{-(-channels // width)},48,3,3,{width}]" in text
    assert ("# reduce fenced" in text) == (width == 16)
    inputs = given(program)
    want = interpret.run(program, inputs, widen=True)[0]
    got = kernel_interpret.run(lower.lower(tiles), inputs, widen=True)[0]
    np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("channels", "columns"), [(32, 32), (32, 56), (20, 28)])
def test_columns_that_fill_the_lanes_stay_there(channels: int, columns: int) -> None:
    text = print_program(tiled(channels, 6, columns)[1])
    assert "w_panels" not in text
    assert "fenced" not in text


def test_a_fenced_loop_in_c() -> None:
    """Each iteration reads memory anew."""
    kernel = lower.lower(tiled(32, 6, 28)[1]).kernels[-1]
    loops = [line for line in emit_kernel(kernel, "y").splitlines() if "a5 < 3" in line]
    assert loops
    assert all(line.endswith('{ __asm__ volatile("" ::: "memory");') for line in loops)
