"""Panels of constants: packed by kernels of their own, and read where the register tiles are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.steps import step_of
from weft.core.types import TensorType, bf16, boolean, f32, u8
from weft.interpret import kernels as kernel_interpret
from weft.interpret import nests as interpret
from weft.loop.verify import verify as verify_loop
from weft.scalar.blocks import unpacks
from weft.targets.cpu import CPUS
from weft.text import parse_program, print_program
from weft.tile.lower import kernels as lower
from weft.tile.passes.programs.pack_constants import pack_constants
from weft.tile.schedule import CPU_SCHEDULE

LINEAR = """
program loop linear
input x: f32[{m},7]
input w: f32[{n},7]

kernel y(x: f32[{m},7], w: f32[{n},7]) -> y: f32[{m},{n}]
for a0 in 0..{m}:  # free
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
input w: bf16[3,6,40]
input s: f32[3]

kernel y(x: f32[3,5,6], w: bf16[3,6,40], s: f32[3]) -> y: f32[3,5,40]
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
GATED = """
program loop gated
input x: f32[7]
input w: bf16[60,7]
input w2: bf16[60,7]

kernel y(x: f32[7], w: bf16[60,7], w2: bf16[60,7]) -> y: f32[60]
for a0 in 0..60:  # free
    for a1 in 0..7:  # reduce
        in0 = load x[a1]
        in1 = load w[a0, a1]
        v0 = f32(in1)
        v1 = multiply(in0, v0)
        acc0 <- add(acc0, v1)
        in2 = load w2[a0, a1]
        v2 = f32(in2)
        v3 = multiply(in0, v2)
        acc1 <- maximum(acc1, v3)
    v4 = multiply(acc0, acc1)
    y[a0] = v4

output y
"""
PROGRAMS = {
    "even": LINEAR.format(m=11, n=64),
    "uneven": LINEAR.format(m=11, n=37),
    "few_rows": LINEAR.format(m=3, n=60),
    "one_row": GATED,
    "computed": BATCHED,
}
FAR = {isa: replace(CPUS[isa], l2=1 << 9) for isa in ("avx512", "avx2")}  # holds no weights


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
    packed = pack_constants(program, range(1, len(inputs)), FAR[isa])
    verify_loop(packed)
    *packs, last = (k.name for k in packed.kernels)
    assert packs and all(name.startswith("pack_w") for name in packs) and last == "y"
    np.testing.assert_allclose(interpret.run(packed, inputs, widen=True)[0], want, rtol=1e-12)
    tiled = packed
    for _, change in CPU_SCHEDULE:
        tiled = step_of(tiled, change, CPUS[isa])
    assert "local panel" not in print_program(tiled)
    low = lower.lower(tiled)
    got = kernel_interpret.run(low, inputs, widen=True)[0]
    np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)
    if isa == "avx512":
        golden(f"tile/pack_{name}.txt", print_program(packed))


@pytest.mark.parametrize("constants", [(), (0,)])
@pytest.mark.parametrize("rows", [3, 11])
def test_only_what_constants_decide_is_packed(constants: tuple[int, ...], rows: int) -> None:
    program = parse_program(LINEAR.format(m=rows, n=64))
    assert pack_constants(program, constants, CPUS["avx512"]).steps == program.steps


def test_one_row_reads_what_the_cache_holds_as_it_is() -> None:
    program = parse_program(GATED)
    assert pack_constants(program, (1, 2), CPUS["avx512"]).steps == program.steps


def test_few_rows_do_not_read_panels_that_are_mostly_empty() -> None:
    program = parse_program(LINEAR.format(m=3, n=70))
    assert pack_constants(program, (1,), CPUS["avx512"]).steps == program.steps


TRIANGLE = """
program loop triangle
input x: f32[2,8,6]
input w: f32[2,6,40]

kernel y(x: f32[2,8,6], w: f32[2,6,40]) -> y: f32[2,2,8,40]
for a0 in 0..2:  # free
    for a1 in 0..2:  # free
        for a2 in 0..8:  # free
            for a3 in 0..40:  # free
                y[a0, a1, a2, a3] = 0.0
for a4 in 0..2:  # free
    for a5 in {low}..min(4, a4 + 1):  # scan
        for a6 in 0..8:  # free
            for a7 in 0..40:  # free
                for a8 in 0..6:  # reduce
                    in0 = load x[a4, a6, a8]
                    in1 = load w[{place}, a8, a7]
                    v0 = multiply(in0, in1)
                    acc0 <- add(acc0, v0)
                y[a4, a5, a6, a7] = acc0

output y
"""


@pytest.mark.parametrize(("low", "place"), [(0, "a5"), (0, "1 - a5"), (1, "a5")])
def test_loops_that_end_earlier_in_some_turns(low: int, place: str) -> None:
    """Four turns of a5, as its end says, would read beyond w, which has two: or before it."""
    program = parse_program(TRIANGLE.format(low=low, place=place))
    random = np.random.default_rng(0)
    inputs = [random.standard_normal(b.type.shape).astype(np.float32) for b in program.inputs]
    want = interpret.run(program, inputs, widen=True)[0]
    packed = pack_constants(program, [1], CPUS["avx2"])
    verify_loop(packed)
    assert len(packed.kernels) == 2 - low  # a loop with another start packs nothing ahead
    np.testing.assert_allclose(interpret.run(packed, inputs, widen=True)[0], want, rtol=1e-12)


def test_codes_stay_codes() -> None:
    """Panels of f32 would be four times as large; each block of columns makes one of its own."""
    text = BATCHED.replace("bf16", "i8")
    program = parse_program(text)
    same = pack_constants(program, [1, 2], FAR["avx512"])
    assert print_program(same) == print_program(program)


def test_masks_are_no_codes() -> None:
    assert unpacks([TensorType(u8, (64,)), TensorType(f32, (4,))], 256)
    assert not unpacks([TensorType(u8, (64,)), TensorType(f32, (4,))], 80)
    assert not unpacks([TensorType(boolean, (64,))], 256)
    assert not unpacks([TensorType(bf16, (64,))], 256)
    assert not unpacks([], 256)
