"""Panels of constants: packed by kernels of their own, and read where the register tiles are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from weft.core.text import parse_program, print_program
from weft.kernel import interpret as kernel_interpret
from weft.loop.verify import verify as verify_loop
from weft.scalar import interpret
from weft.targets.cpu import CPUS
from weft.tile import lower
from weft.tile.pack_constants import pack_constants
from weft.tile.schedule import CPU_SCHEDULE

LINEAR = """
program loop linear
input x: f32[11,7]
input w: f32[{n},7]

kernel y(x: f32[11,7], w: f32[{n},7]) -> y: f32[11,{n}]
for a0 in 0..11:  # free
    for a1 in 0..{n}:  # free
        for a2 in 0..7:  # reduce
            in0 = load x[a0, a2]
            in1 = load w[a1, a2]
            v0 = multiply(in0, in1)
            acc0 <- add(acc0, v0)
        v1 = relu(acc0)
        y[a0, a1] = v1

output y
"""
BATCHED = """
program loop batched
input x: f32[3,5,6]
input w: i8[3,6,40]
input s: f32[3]

kernel y(x: f32[3,5,6], w: i8[3,6,40], s: f32[3]) -> y: f32[3,5,40]
for a0 in 0..3:  # free
    for a1 in 0..5:  # free
        for a2 in 0..40:  # free
            for a3 in 0..6:  # reduce
                in0 = load x[a0, a1, a3]
                in1 = load w[a0, a3, a2]
                v0 = f32(in1)
                in2 = load s[a0]
                v1 = multiply(v0, in2)
                v2 = multiply(in0, v1)
                acc0 <- add(acc0, v2)
            y[a0, a1, a2] = acc0

output y
"""
PROGRAMS = {"even": LINEAR.format(n=64), "uneven": LINEAR.format(n=37), "computed": BATCHED}


@pytest.mark.parametrize("isa", ["avx512", "avx2"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_packed_programs_mean_the_same(
    name: str, isa: str, golden: Callable[[str, str], None]
) -> None:
    program = parse_program(PROGRAMS[name])
    random = np.random.default_rng(0)
    inputs = [(random.standard_normal(b.type.shape) * 9).astype(b.type.dtype.numpy)
              for b in program.inputs]  # fmt: skip
    want = interpret.run(program, inputs, widen=True)[0]
    packed = pack_constants(program, range(1, len(inputs)), CPUS[isa])
    verify_loop(packed)
    assert [k.name.startswith("pack_w") for k in packed.kernels] == [True, False]
    np.testing.assert_allclose(interpret.run(packed, inputs, widen=True)[0], want, rtol=1e-12)
    tiled = packed
    for _, change in CPU_SCHEDULE:
        tiled = tiled.map_kernels("tile", lambda k, f=change: f(k, CPUS[isa]))
    assert "local panel" not in print_program(tiled)
    low = lower.lower(tiled)
    got = kernel_interpret.run(low, inputs, widen=True)[0]
    np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)
    if isa == "avx512":
        golden(f"tile/pack_{name}.txt", print_program(packed))


@pytest.mark.parametrize("constants", [(), (0,)])
def test_only_what_constants_decide_is_packed(constants: tuple[int, ...]) -> None:
    program = parse_program(LINEAR.format(n=64))
    assert pack_constants(program, constants, CPUS["avx512"]).steps == program.steps
