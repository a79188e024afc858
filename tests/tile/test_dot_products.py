"""When lanes run along the sum: few rows, and both operands contiguous along it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.steps import step_of
from tests.tile.test_passes import close, inputs_of
from weft.interpret import kernels as kernel_interpret
from weft.interpret import nests as interpret
from weft.kernel import verify as kernel_verify
from weft.scalar.nest import For, Program
from weft.targets.cpu import CPUS
from weft.text import parse_program, print_program
from weft.tile.analysis.access import contraction
from weft.tile.lower import kernels as lower
from weft.tile.passes.cpu.tile_dot_products import tile_dot_products
from weft.tile.price.products import dot_tile
from weft.tile.schedule import CPU_SCHEDULE

LINEAR = """
program loop linear
input x: f32[{m},{k}]
input w: f32[{n},{k}]

kernel y(x: f32[{m},{k}], w: f32[{n},{k}]) -> y: f32[{m},{n}]
for a0 in 0..{m}:  # free
    for a1 in 0..{n}:  # free
        for a2 in 0..{k}:  # reduce
            in0 = load x[a0, a2]
            in1 = load w[a1, a2]
            v0 = multiply(in0, in1)
            acc0 <- add(acc0, v0)
        y[a0, a1] = acc0

output y
"""


def linear(m: int, n: int, k: int) -> Program:
    return parse_program(LINEAR.format(m=m, n=n, k=k).lstrip())  # type: ignore[return-value]


def tile_of(program: Program, isa: str = "avx512") -> object:
    nest = program.kernels[0].body[0]
    assert isinstance(nest, For)
    found = contraction(nest)
    assert found is not None
    return dot_tile(found, CPUS[isa])


@pytest.mark.parametrize(
    ("m", "k", "pays"),
    [(2, 768, True), (8, 768, True), (32, 768, True), (256, 768, False), (4, 15, False),
     (32, 770, False), (16, 64, False)],
)  # fmt: skip
def test_few_rows_are_dot_products(m: int, k: int, pays: bool) -> None:
    """Many rows gain more from panels; so do short sums, and rows that start inside a line."""
    assert (tile_of(linear(m, 768, k)) is not None) is pays


def test_a_matrix_contiguous_across_the_sum_is_none() -> None:
    text = print_program(linear(8, 768, 768)).replace("w[a1, a2]", "w[a2, a1]")
    assert tile_of(parse_program(text)) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("isa", ["avx512", "avx2", "neon", "plain"])
@pytest.mark.parametrize("shape", [(2, 5, 33), (7, 50, 64), (8, 49, 100), (13, 37, 331)])
def test_each_level_gives_the_same(shape: tuple[int, int, int], isa: str) -> None:
    program, target = linear(*shape), CPUS[isa]
    inputs = inputs_of(program)
    want = inputs[0].astype(np.float64) @ inputs[1].astype(np.float64).T
    tiled = step_of(program, tile_dot_products, target)
    assert "local dots0" in print_program(tiled)
    for _, change in CPU_SCHEDULE:
        program = step_of(program, change, target)
    close(interpret.run(program, inputs, widen=True), [want])
    kernels = lower.lower(program)
    kernel_verify.verify(kernels)
    close(kernel_interpret.run(kernels, inputs, widen=True), [want])
