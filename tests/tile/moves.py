"""Small kernels to schedule by hand, as loop-level text, and what a schedule of them gives.

kernel, program = kernel_of("matmul")
same(program, moved, CPUS["avx2"])      # raises where the moved kernel gives other values
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from weft.interpret import kernels as kernel_interpret
from weft.interpret import nests as interpret
from weft.kernel import verify as kernel_verify
from weft.levels import GPU_THREADS
from weft.scalar.blocks import loops_in
from weft.scalar.nest import Kernel, Program
from weft.targets.cpu import CPU
from weft.targets.gpu import GPU
from weft.text import parse_program
from weft.tile import verify as tile_verify
from weft.tile.lower import kernels as tile_lower

PROGRAMS = {
    "matmul": """
program loop matmul
input x: f32[9,7]
input w: f32[7,11]

kernel y(x: f32[9,7], w: f32[7,11]) -> y: f32[9,11]
for a0 in 0..9:  # free
    for a1 in 0..11:  # free
        for a2 in 0..7:  # reduce
            in0 = load x[a0, a2]
            in1 = load w[a2, a1]
            v0 = multiply(in0, in1)
            acc0 <- add(acc0, v0)
        y[a0, a1] = acc0

output y
""",
    "softmax": """
program loop softmax
input x: f32[5,19]

kernel y(x: f32[5,19]) -> y: f32[5,19]
for a0 in 0..5:  # free
    for a1 in 0..19:  # reduce
        in0 = load x[a0, a1]
        acc0 <- maximum(acc0, in0)
    for a2 in 0..19:  # reduce
        in1 = load x[a0, a2]
        v0 = subtract(in1, acc0)
        v1 = exp(v0)
        acc1 <- add(acc1, v1)
    for a3 in 0..19:  # free
        in2 = load x[a0, a3]
        v2 = subtract(in2, acc0)
        v3 = exp(v2)
        y[a0, a3] = divide(v3, acc1)

output y
""",
    "total": """
program loop total
input x: f32[6,10]

kernel y(x: f32[6,10]) -> y: f32[]
for a0 in 0..6:  # reduce
    for a1 in 0..10:  # reduce
        in0 = load x[a0, a1]
        acc0 <- add(acc0, in0)
y[] = acc0

output y
""",
    "transpose": """
program loop transpose
input x: f32[12,17]

kernel y(x: f32[12,17]) -> y: f32[17,12]
for a0 in 0..17:  # free
    for a1 in 0..12:  # free
        in0 = load x[a1, a0]
        y[a0, a1] = relu(in0)

output y
""",
    "cumsum": """
program loop cumsum
input x: f32[6,13]

kernel y(x: f32[6,13]) -> y: f32[6,13]
for a0 in 0..6:  # free
    for a1 in 0..13:  # scan
        in0 = load x[a0, a1]
        acc0 <- add(acc0, in0)
        y[a0, a1] = running acc0

output y
""",
    "argmax": """
program loop argmax
input x: f32[5,14]

kernel y(x: f32[5,14]) -> y: i64[5]
for a0 in 0..5:  # free
    for a1 in 0..14:  # reduce
        in0 = load x[a0, a1]
        acc0, acc1 <- argmax(acc0, acc1; in0, a1)
    y[a0] = acc1

output y
""",
    "scatter": """
program loop scatter
input base: f32[7,3]
input at: i64[9]
input x: f32[9,3]

kernel y(base: f32[7,3], at: i64[9], x: f32[9,3]) -> y: f32[7,3]
local table: f32[7,3]
for a0 in 0..7:  # free
    for a1 in 0..3:  # free
        in0 = load base[a0, a1]
        table[a0, a1] = in0
for a2 in 0..9:  # scan
    in1 = load at[a2]
    v0 = checked_index(in1, 7)
    for a3 in 0..3:  # free
        in2 = load x[a2, a3]
        in3 = load table[v0, a3]
        v1 = add(in3, in2)
        table[v0, a3] = v1
for a4 in 0..7:  # free
    for a5 in 0..3:  # free
        in4 = load table[a4, a5]
        y[a4, a5] = in4

output y
""",
    "scaled": """
program loop scaled
input x: f32[5,14]

kernel y(x: f32[5,14]) -> y: f32[5,14]
local t: f32[5]
for a0 in 0..5:  # free
    for a1 in 0..14:  # reduce
        in0 = load x[a0, a1]
        acc0 <- add(acc0, in0)
    for a2 in 0..14:  # reduce
        in1 = load x[a0, a2]
        v0 = multiply(in1, in1)
        acc1 <- add(acc1, v0)
    t[a0] = divide(acc0, acc1)
for a3 in 0..5:  # free
    in2 = load t[a3]
    for a4 in 0..14:  # free
        in3 = load x[a3, a4]
        y[a3, a4] = multiply(in3, in2)

output y
""",
    "products": """
program loop products
input x: f16[32,24]
input w: f16[24,16]

kernel y(x: f16[32,24], w: f16[24,16]) -> y: f32[32,16]
for a0 in 0..32:  # free
    for a1 in 0..16:  # free
        for a2 in 0..24:  # reduce
            in0 = load x[a0, a2]
            in1 = load w[a2, a1]
            v0 = f32(in0)
            v1 = f32(in1)
            v2 = multiply(v0, v1)
            acc0 <- add(acc0, v2)
        y[a0, a1] = acc0

output y
""",
}


def program_of(name: str) -> Program:
    """One of the programs, of one kernel, at the tile level."""
    return replace(parse_program(PROGRAMS[name].lstrip()), level="tile")


def with_kernel(program: Program, kernel: Kernel) -> Program:
    return replace(program, steps=(kernel,))


def inputs_of(program: Program) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    made = [random.integers(0, 7, b.type.shape) for b in program.inputs]
    floats = [random.standard_normal(b.type.shape) for b in program.inputs]
    pairs = zip(program.inputs, made, floats, strict=True)
    return [(f if b.type.dtype.is_float else i).astype(b.type.dtype.numpy) for b, i, f in pairs]


def same(program: Program, moved: Kernel, target: CPU | GPU) -> None:
    """The tile and the kernel level of a moved kernel give what the nest gives."""
    inputs, other = inputs_of(program), with_kernel(program, moved)
    want = interpret.run(program, inputs, widen=True)
    tile_verify.verify(other)
    made = tile_lower.lower(other)
    kernel_verify.verify(made)
    found = [interpret.run(other, inputs, widen=True)]
    if not any(loops_in(moved.body, "mma")):  # whose threads wait: for the simulator
        found.append(kernel_interpret.run(made, inputs, widen=True))
    for got in found:
        for g, w in zip(got, want, strict=True):
            np.testing.assert_allclose(g, w, rtol=1e-10, atol=1e-12)
    for _, step in GPU_THREADS if isinstance(target, GPU) else ():
        made = made.map_kernels("kernel", lambda k, step=step: step(k, target))
        kernel_verify.verify(made)
