"""The GPU's schedule, pass by pass: what each leaves verifies and means the same.

The golden files show the tile level, one thread's program, and its CUDA text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.steps import step_of
from weft.core.errors import WeftError
from weft.emit.gpu import emit_gpu
from weft.interpret import kernels as kernel_interpret
from weft.interpret import nests as interpret
from weft.kernel import verify as kernel_verify
from weft.levels import GPU_THREADS
from weft.targets.gpu import GPUS
from weft.text import parse_program, print_program
from weft.tile import verify as tile_verify
from weft.tile.lower import kernels as lower
from weft.tile.schedule import GPU_SCHEDULE

TARGET, NEWER = GPUS["cuda:sm_80"], GPUS["cuda:sm_90a"]
TARGETS = {"boxes": NEWER, "warpgroups": replace(NEWER, cores=1)}  # of one, tiles are large

PROGRAMS = {
    "pointwise": """
program loop relu
input x: f32[3,7,100]

kernel y(x: f32[3,7,100]) -> y: f32[3,7,100]
for a0 in 0..3:  # free
    for a1 in 0..7:  # free
        for a2 in 0..100:  # free
            in0 = load x[a0, a1, a2]
            y[a0, a1, a2] = relu(in0)

output y
""",
    "rows": """
program loop centred
input x: f32[5,300]

kernel y(x: f32[5,300]) -> y: f32[5,300]
for a0 in 0..5:  # free
    for a1 in 0..300:  # reduce
        in0 = load x[a0, a1]
        acc0 <- add(acc0, in0)
    v0 = multiply(acc0, 0.5)
    for a2 in 0..300:  # free
        in1 = load x[a0, a2]
        y[a0, a2] = subtract(in1, v0)

output y
""",
    "short_rows": """
program loop centred
input x: f32[3000,48]

kernel y(x: f32[3000,48]) -> y: f32[3000,48]
for a0 in 0..3000:  # free
    for a1 in 0..48:  # reduce
        in0 = load x[a0, a1]
        acc0 <- add(acc0, in0)
    v0 = multiply(acc0, 0.5)
    for a2 in 0..48:  # free
        in1 = load x[a0, a2]
        y[a0, a2] = subtract(in1, v0)

output y
""",
    "product": """
program loop linear
input x: f32[40,36]
input w: f32[36,50]

kernel y(x: f32[40,36], w: f32[36,50]) -> y: f32[40,50]
for a0 in 0..40:  # free
    for a1 in 0..50:  # free
        for a2 in 0..36:  # reduce
            in0 = load x[a0, a2]
            in1 = load w[a2, a1]
            acc0 <- add(acc0, multiply(in0, in1))
        y[a0, a1] = relu(acc0)

output y
""",
    "boxes": """
program loop linear
input x: f32[20,132]
input w: f32[24,132]

kernel y(x: f32[20,132], w: f32[24,132]) -> y: f32[20,24]
for a0 in 0..20:  # free
    for a1 in 0..24:  # free
        for a2 in 0..132:  # reduce
            in0 = load x[a0, a2]
            in1 = load w[a1, a2]
            acc0 <- add(acc0, multiply(in0, in1))
        y[a0, a1] = relu(acc0)

output y
""",
    "warpgroups": """
program loop linear
input x: bf16[60,256]
input w: bf16[256,32]

kernel y(x: bf16[60,256], w: bf16[256,32]) -> y: f32[60,32]
for a0 in 0..60:  # free
    for a1 in 0..32:  # free
        for a2 in 0..256:  # reduce
            in0 = load x[a0, a2]
            in1 = load w[a2, a1]
            acc0 <- add(acc0, multiply(f32(in0), f32(in1)))
        y[a0, a1] = relu(acc0)

output y
""",
    "columns": """
program loop sums
input x: f32[5,300]

kernel y(x: f32[5,300]) -> y: f32[300]
for a0 in 0..300:  # free
    for a1 in 0..5:  # reduce
        in0 = load x[a1, a0]
        acc0 <- add(acc0, in0)
    y[a0] = acc0

output y
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_passes(name: str, golden: Callable[[str, str], None]) -> None:
    target = TARGETS.get(name, TARGET)
    program = parse_program(PROGRAMS[name].lstrip(), name)
    inputs = [np.random.default_rng(0).normal(size=b.type.shape) for b in program.inputs]
    (wanted,) = interpret.run(program, inputs, widen=True)
    program = program.map_kernels("tile", lambda kernel: kernel)
    for _, step in GPU_SCHEDULE:
        program = step_of(program, step, target)
        tile_verify.verify(program)
        assert print_program(parse_program(print_program(program), name)) == print_program(program)
        np.testing.assert_allclose(interpret.run(program, inputs, widen=True)[0], wanted)
    texts = [print_program(program)]
    program = lower.lower(program)
    kernel_verify.verify(program)
    if name != "warpgroups":  # four warps at once are for the simulator
        np.testing.assert_allclose(kernel_interpret.run(program, inputs, widen=True)[0], wanted)
    for _, step in GPU_THREADS:
        program = step_of(program, step, target)
        kernel_verify.verify(program)
    text = print_program(program)
    assert print_program(parse_program(text, name)) == text
    texts += [text, emit_gpu(program.kernels[0], "k_y").source]
    golden(f"gpu/{name}.txt", "\n".join(texts))


def test_threads_that_meet_are_not_interpreted() -> None:
    program = parse_program(PROGRAMS["rows"].lstrip(), "rows")
    for _, step in GPU_SCHEDULE:
        program = step_of(program, step, TARGET)
    program = lower.lower(program)
    for _, step in GPU_THREADS:
        program = step_of(program, step, TARGET)
    with pytest.raises(WeftError, match="the simulator runs it"):
        kernel_interpret.run(program, [np.zeros((5, 300))])
