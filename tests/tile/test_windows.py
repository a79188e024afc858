"""Windows that slide over lines: columns join the lines, and panels keep shared lines once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.tile.test_passes import close, inputs_of
from weft.core.text import parse_program, print_program
from weft.driver import CPU_SCHEDULE
from weft.kernel import interpret as kernel_interpret
from weft.kernel import verify as kernel_verify
from weft.scalar import interpret
from weft.scalar.nest import Program
from weft.targets.cpu import CPUS
from weft.tile import lower
from weft.tile import verify as tile_verify

CONVOLUTION = """
program loop convolution
input x: f32[2,{h},{w}]
input weight: f32[{n},2,3,3]

kernel y(x: f32[2,{h},{w}], weight: f32[{n},2,3,3]) -> y: f32[{n},{h},{w}]
for a0 in 0..{n}:  # free
    for a1 in 0..{h}:  # free
        for a2 in 0..{w}:  # free
            for a3 in 0..2:  # reduce
                for a4 in 0..3:  # reduce
                    for a5 in 0..3:  # reduce
                        v0 = ge(a1 + a4, 1)
                        v1 = lt(a1 + a4, {h} + 1)
                        v2 = and(v0, v1)
                        v3 = ge(a2 + a5, 1)
                        v4 = lt(a2 + a5, {w} + 1)
                        v5 = and(v2, v3)
                        v6 = and(v5, v4)
                        in0 = load x[a3, a1 + a4 - 1, a2 + a5 - 1] if v6 else 0.0
                        in1 = load weight[a0, a3, a4, a5]
                        v7 = multiply(in0, in1)
                        acc0 <- add(acc0, v7)
            y[a0, a1, a2] = acc0

output y
"""


@pytest.mark.parametrize("isa", ["avx512", "avx2"])
@pytest.mark.parametrize(
    ("h", "w", "n", "panel"),
    [
        (14, 12, 20, {"avx512": "f32[2,3,108]", "avx2": "f32[2,3,108]"}),  # 7 lines, and 2
        (7, 7, 32, {"avx512": "f32[2,3,63]", "avx2": "f32[2,3,10]"}),  # all lines; 8 columns
        (6, 64, 9, {"avx512": "f32[2,3,34]", "avx2": "f32[2,3,18]"}),  # columns of one, and 2
    ],
)
def test_lines_are_packed_once(
    h: int, w: int, n: int, panel: dict[str, str], isa: str, golden: Callable[[str, str], None]
) -> None:
    program: Program = parse_program(CONVOLUTION.format(h=h, w=w, n=n))
    inputs = inputs_of(program)
    want = interpret.run(program, inputs, widen=True)
    for label, change in CPU_SCHEDULE:
        program = program.map_kernels("tile", lambda k, f=change: f(k, CPUS[isa]))
        tile_verify.verify(program)
        close(interpret.run(program, inputs, widen=True), want)
        if label.endswith("block_contraction"):
            assert f"local panel0: {panel[isa]}" in print_program(program)
            if (h, isa) == (14, "avx512"):
                golden("tile/window.txt", print_program(program))
    kernels = lower.lower(program)
    kernel_verify.verify(kernels)
    close(kernel_interpret.run(kernels, inputs, widen=True), want)
