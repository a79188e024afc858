"""Every CPU pass, one after the other: the program it leaves verifies and means the same.

The golden files show what each pass makes of the smallest program it applies to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.steps import step_of
from weft.interpret import kernels as kernel_interpret
from weft.interpret import nests as interpret
from weft.kernel import verify as kernel_verify
from weft.scalar.nest import Program
from weft.targets.cpu import CPUS
from weft.text import parse_program, print_program
from weft.tile import verify as tile_verify
from weft.tile.lower import kernels as lower
from weft.tile.passes.both.collapse_loops import collapse_loops
from weft.tile.schedule import CPU_SCHEDULE

PROGRAMS = {
    "split_ranges": """
program loop cat
input x: f32[4,5]
input z: f32[4,7]

kernel y(x: f32[4,5], z: f32[4,7]) -> y: f32[4,12]
for a0 in 0..4:  # free
    for a1 in 0..12:  # free
        v0 = lt(a1, 5)
        v1 = ge(a1, 5)
        in0 = load x[a0, a1] if v0 else 0.0
        in1 = load z[a0, a1 - 5] if v1 else 0.0
        v2 = where(v0, in0, in1)
        y[a0, a1] = v2

output y
""",
    "collapse_loops": """
program loop relu
input x: f32[6,40]

kernel y(x: f32[6,40]) -> y: f32[6,40]
for a0 in 0..6:  # free
    for a1 in 0..40:  # free
        in0 = load x[a0, a1]
        v0 = relu(in0)
        y[a0, a1] = v0

output y
""",
    "list_live": """
program loop masked
input m: f32[3,12]
input w: f32[12,130]

kernel y(m: f32[3,12], w: f32[12,130]) -> y: f32[3,130]
for a0 in 0..3:  # free
    for a1 in 0..130:  # free
        for a2 in 0..12:  # reduce
            in0 = load m[a0, a2]
            v0 = gt(in0, 0.0)
            in1 = load w[a2, a1] if v0 else 0.0
            acc0 <- add(acc0, in1)
        y[a0, a1] = acc0

output y
""",
    "tile_dot_products": """
program loop linear
input x: f32[6,90]
input w: f32[37,90]
input b: f32[37]

kernel y(x: f32[6,90], w: f32[37,90], b: f32[37]) -> y: f32[6,37]
for a0 in 0..6:  # free
    for a1 in 0..37:  # free
        for a2 in 0..90:  # reduce
            in0 = load x[a0, a2]
            in1 = load w[a1, a2]
            v0 = multiply(in0, in1)
            acc0 <- add(acc0, v0)
        in2 = load b[a1]
        v1 = add(acc0, in2)
        y[a0, a1] = v1

output y
""",
    "block_contraction": """
program loop matmul
input x: f32[11,7]
input w: f32[7,37]

kernel y(x: f32[11,7], w: f32[7,37]) -> y: f32[11,37]
for a0 in 0..11:  # free
    for a1 in 0..37:  # free
        for a2 in 0..7:  # reduce
            in0 = load x[a0, a2]
            in1 = load w[a2, a1]
            v0 = multiply(in0, in1)
            acc0 <- add(acc0, v0)
        v1 = relu(acc0)
        y[a0, a1] = v1

output y
""",
    "spread_sums": """
program loop groups
input x: f32[2,192]
input codes: u8[7,6,16]
input scale: f32[7,6]

kernel y(x: f32[2,192], codes: u8[7,6,16], scale: f32[7,6]) -> y: f32[2,7]
for a0 in 0..2:  # free
    for a1 in 0..7:  # free
        for a2 in 0..6:  # reduce
            for a3 in 0..32:  # reduce into acc1
                in0 = load x[a0, a2 * 32 + a3]
                v0 = lt(a3, 16)
                in1 = load codes[a1, a2, a3 % 16]
                v2 = and(in1, 15:u8)
                v3 = shift_right(in1, 4:u8)
                v4 = where(v0, v2, v3)
                v5 = f32(v4)
                v6 = subtract(v5, 8.0)
                v7 = multiply(in0, v6)
                acc1 <- add(acc1, v7)
            in2 = load scale[a1, a2]
            v8 = multiply(acc1, in2)
            acc0 <- add(acc0, v8)
        y[a0, a1] = acc0

output y
""",
    "split_reduction": """
program loop total
input x: f32[700000]

kernel y(x: f32[700000]) -> y: f32[]
for a0 in 0..700000:  # reduce
    in0 = load x[a0]
    v0 = exp(in0)
    acc0 <- add(acc0, v0)
y[] = acc0

output y
""",
    "sweep_rows": """
program loop columns
input x: f32[21,300]

kernel y(x: f32[21,300]) -> y: f32[300]
for a0 in 0..300:  # free
    for a1 in 0..21:  # reduce
        in0 = load x[a1, a0]
        acc0 <- add(acc0, in0)
    v0 = relu(acc0)
    y[a0] = v0

output y
""",
    "stage_rows": """
program loop softmax
input x: f32[3,35]

kernel y(x: f32[3,35]) -> y: f32[3,35]
for a0 in 0..3:  # free
    for a1 in 0..35:  # reduce
        in0 = load x[a0, a1]
        v0 = exp(in0)
        acc0 <- add(acc0, v0)
    for a2 in 0..35:  # free
        in1 = load x[a0, a2]
        v1 = exp(in1)
        v2 = divide(v1, acc0)
        y[a0, a2] = v2

output y
""",
    "stage_transposes": """
program loop transpose
input x: f32[20,35]

kernel y(x: f32[20,35]) -> y: f32[35,20]
for a0 in 0..35:  # free
    for a1 in 0..20:  # free
        in0 = load x[a1, a0]
        y[a0, a1] = in0

output y
""",
    "widen_folds": """
program loop running
input x: f32[40,50]
input u: f32[140000]

kernel y(x: f32[40,50]) -> y: f32[40,50]
for a0 in 0..40:  # free
    for a1 in 0..50:  # scan
        in0 = load x[a0, a1]
        acc0 <- add(acc0, in0)
        y[a0, a1] = running acc0

kernel z(u: f32[140000]) -> z: f32[]
for a0 in 0..140000:  # reduce
    in0 = load u[a0]
    v0 = cos(in0)
    acc0 <- multiply(acc0, v0)
z[] = acc0

output y, z
""",
    "vectorize_loops": """
program loop columns
input x: f32[9,37]

kernel y(x: f32[9,37]) -> y: f32[37]
for a0 in 0..37:  # free
    for a1 in 0..9:  # reduce
        in0 = load x[a1, a0]
        acc0 <- maximum(acc0, in0)
    y[a0] = acc0

output y
""",
    "parallelize_loops": """
program loop chain
input x: f32[4,100000]

kernel y(x: f32[4,100000]) -> y: f32[4]
for a0 in 0..4:  # free
    for a1 in 0..100000:  # reduce
        in0 = load x[a0, a1]
        v0 = tanh(in0)
        acc0 <- add(acc0, v0)
    y[a0] = acc0

output y
""",
    "skip_masked": """
program loop attention
input q: f32[128,4]
input k: f32[4,128]
input v: f32[128,8]

kernel y(q: f32[128,4], k: f32[4,128], v: f32[128,8]) -> y: f32[128,8]
for a0 in 0..4:  # free
    local s: f32[32,128]
    local t: f32[32]
    for a1 in 0..32:  # free
        for a2 in 0..128:  # free
            for a3 in 0..4:  # reduce
                in0 = load q[a0 * 32 + a1, a3]
                in1 = load k[a3, a2]
                v0 = multiply(in0, in1)
                acc0 <- add(acc0, v0)
            s[a1, a2] = acc0
    for a4 in 0..32:  # free
        for a5 in 0..128:  # reduce
            in2 = load s[a4, a5]
            v1 = ge(a0 * 32 + a4, a5)
            v2 = where(v1, in2, -inf)
            acc1 <- maximum(acc1, v2)
        for a6 in 0..128:  # reduce
            in3 = load s[a4, a6]
            v3 = ge(a0 * 32 + a4, a6)
            v4 = where(v3, in3, -inf)
            v5 = subtract(v4, acc1)
            v6 = exp(v5)
            acc2 <- add(acc2, v6)
            s[a4, a6] = v6
        t[a4] = acc2
    for a7 in 0..32:  # free
        for a8 in 0..8:  # free
            for a9 in 0..128:  # reduce
                in4 = load s[a7, a9]
                in5 = load v[a9, a8]
                v7 = multiply(in4, in5)
                acc3 <- finite add(acc3, v7)
            in6 = load t[a7]
            v8 = divide(acc3, in6)
            y[a0 * 32 + a7, a8] = v8

output y
""",
    "block_sums": """
program loop columns
input x: f32[5000,40]

kernel y(x: f32[5000,40]) -> y: f32[40]
for a0 in 0..40:  # free
    for a1 in 0..5000:  # reduce
        in0 = load x[a1, a0]
        acc0 <- add(acc0, in0)
    y[a0] = acc0

output y
""",
    "stream_stores": """
program loop relu
input x: f32[80,40]

kernel y(x: f32[80,40]) -> y: f32[80,40]
for a0 in 0..80:  # free
    for a1 in 0..40:  # free
        in0 = load x[a0, a1]
        v0 = relu(in0)
        y[a0, a1] = v0

output y
""",
    "prefetch_rows": """
program loop less_max
input x: f32[80,40]

kernel y(x: f32[80,40]) -> y: f32[80,40]
for a0 in 0..80:  # free
    for a1 in 0..40:  # reduce
        in0 = load x[a0, a1]
        acc0 <- maximum(acc0, in0)
    for a2 in 0..40:  # free
        in1 = load x[a0, a2]
        v0 = subtract(in1, acc0)
        y[a0, a2] = v0

output y
""",
}
# caches that their 25 KB do not fit
FACTS = {
    "stream_stores": {"l3": 16 << 10},
    "prefetch_rows": {"l2": 8 << 10, "l3": 16 << 10},
    "sweep_rows": {"l2": 8 << 10, "l3": 16 << 10},
}
NAMES = [name.split("_", 1)[1] for name, _ in CPU_SCHEDULE]


def inputs_of(program: Program) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.standard_normal(b.type.shape).astype(b.type.dtype.numpy) for b in program.inputs]


def close(got: list[np.ndarray], want: list[np.ndarray]) -> None:
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-10, atol=1e-12)


def test_every_pass_has_a_program() -> None:
    assert list(PROGRAMS) == NAMES


@pytest.mark.parametrize("isa", ["avx512", "avx2", "plain"])
@pytest.mark.parametrize("name", NAMES)
def test_passes_keep_the_meaning(name: str, isa: str, golden: Callable[[str, str], None]) -> None:
    """All passes in order, each verified and interpreted; then the kernel level likewise."""
    program: Program = parse_program(PROGRAMS[name])
    inputs = inputs_of(program)
    want = interpret.run(program, inputs, widen=True)
    target = replace(CPUS[isa], **FACTS.get(name, {}))
    shown: list[str] = []
    for label, change in CPU_SCHEDULE:
        before = print_program(program)
        program = step_of(program, change, target)
        tile_verify.verify(program)
        close(interpret.run(program, inputs, widen=True), want)
        if label.endswith(name):
            shown = [f"--- before {label}", before, f"--- after {label}", print_program(program)]
            assert shown[1].split("\n", 1)[1] != shown[3].split("\n", 1)[1], f"{label} did nothing"
    kernels = lower.lower(program)
    kernel_verify.verify(kernels)
    close(kernel_interpret.run(kernels, inputs, widen=True), want)
    if isa == "avx512":
        golden(f"tile/{name}.txt", "\n".join(shown))


BLOCKS = """
program loop blocks
input x: f32[10,5]

kernel y(x: f32[10,5]) -> y: f32[10,5]
for a0 in 0..10 by 4:  # free
    for a1 in a0..min(a0 + 4, 10):  # free
        for a2 in 0..5:  # free
            in0 = load x[a1, a2]
            y[a1, a2] = in0

output y
"""


def test_a_block_of_rows_that_may_be_shorter_is_not_collapsed() -> None:
    program: Program = parse_program(BLOCKS.lstrip())
    inputs = inputs_of(program)
    changed = program.map_kernels("tile", lambda k: collapse_loops(k, CPUS["avx2"]))
    close(interpret.run(changed, inputs, widen=True), interpret.run(program, inputs, widen=True))
