"""A small side of a contraction that lies across its sum is copied along it."""

from __future__ import annotations

import numpy as np
import pytest

from weft.interpret import nests as interpret
from weft.loop.verify import verify
from weft.targets.cpu import CPUS
from weft.text import parse_program, print_program
from weft.tile.passes.programs.transpose_operands import transpose_operands

PRODUCT = """
program loop product
input x: f32[{m},{k}]
input w: {dtype}[{k},{n}]

kernel y(x: f32[{m},{k}], w: {dtype}[{k},{n}]) -> y: f32[{m},{n}]
for a0 in 0..{m}:  # free
    for a1 in 0..{n}:  # free
        for a2 in 0..{k}:  # reduce
            in0 = load x[a0, a2]
            in1 = load w[a2, a1]
            {widened}
            v0 = multiply(in0, v1)
            acc0 <- add(acc0, v0)
        y[a0, a1] = acc0

output y
"""
AVX512 = CPUS["avx512"]


def product(m: int, k: int, n: int, dtype: str = "f32"):
    widened = "v1 = multiply(in1, 2.0)" if dtype == "f32" else "v1 = f32(in1)"
    return parse_program(PRODUCT.format(m=m, k=k, n=n, dtype=dtype, widened=widened))


@pytest.mark.parametrize("dtype", ["f32", "i8"])
def test_a_narrow_right_side(dtype: str) -> None:
    """Copied as it is stored; what is computed of it is computed where it is read."""
    program = product(1000, 512, 3, dtype)
    changed = transpose_operands(program, AVX512)
    verify(changed)
    copy, kernel = changed.kernels
    assert f"w_along: {dtype}[3,512]" in print_program(changed)
    assert [b.name for b in copy.inputs] == ["w"]
    assert [b.name for b in kernel.inputs] == ["x", "w_along"]
    draw = np.random.default_rng(0)
    x = draw.normal(size=(1000, 512)).astype(np.float32)
    w = draw.integers(-9, 9, (512, 3)).astype(dtype.replace("f", "float").replace("i", "int"))
    for a, b in zip(interpret.run(program, [x, w]), interpret.run(changed, [x, w]), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "m, k, n",
    [
        (1000, 512, 512),  # panels are faster
        (3, 512, 1000),  # the side across the sum is the large one
        (1000, 8, 3),  # shorter than a vector
        (4, 16, 3),  # too little to pay for a kernel
    ],
)
def test_what_stays(m: int, k: int, n: int) -> None:
    program = product(m, k, n)
    assert transpose_operands(program, AVX512) is program or (
        print_program(transpose_operands(program, AVX512)) == print_program(program)
    )


WRITTEN = """
program loop written
input x: f32[1000,512]

kernel y(x: f32[1000,512]) -> (w: f32[512,3], y: f32[1000,3])
for a3 in 0..512:  # free
    for a4 in 0..3:  # free
        w[a3, a4] = 1.0
for a0 in 0..1000:  # free
    for a1 in 0..3:  # free
        for a2 in 0..512:  # reduce
            in0 = load x[a0, a2]
            in1 = load w[a2, a1]
            v0 = multiply(in0, in1)
            acc0 <- add(acc0, v0)
        y[a0, a1] = acc0

output w, y
"""


def test_what_the_kernel_itself_writes_is_not_copied_before_it() -> None:
    assert len(transpose_operands(parse_program(WRITTEN), AVX512).kernels) == 1
