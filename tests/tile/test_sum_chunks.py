"""Contractions of many terms: chunk by chunk, of which a near cache holds the columns."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import torch

import weft
from tests.steps import step_of
from weft.interpret import kernels as kernel_interpret
from weft.interpret import nests as interpret
from weft.scalar.nest import Program
from weft.targets.cpu import CPUS
from weft.text import parse_program, print_program
from weft.tile import verify as tile_verify
from weft.tile.lower import kernels as lower
from weft.tile.passes.programs.pack_constants import pack_constants
from weft.tile.schedule import CPU_SCHEDULE

PRODUCT = """
program loop product
input x: f32[{m},{k}]
input w: f32[{k},{n}]
input b: f32[{n}]

kernel y(x: f32[{m},{k}], w: f32[{k},{n}], b: f32[{n}]) -> y: f32[{m},{n}]
for a0 in 0..{m}:  # free
    for a1 in 0..{n}:  # free
        for a2 in 0..{k}:  # reduce
            in0 = load x[a0, a2]
            in1 = load w[a2, a1]
            v0 = multiply(in0, in1)
            acc0 <- add(acc0, v0)
        in2 = load b[a1]
        v1 = add(acc0, in2)
        y[a0, a1] = maximum(v1, 0.0)

output y
"""
AVX512 = replace(CPUS["avx512"], l2=8 << 20)


def tiled(m: int, k: int, n: int, constants: tuple[int, ...] = ()) -> tuple[Program, Program]:
    program = parse_program(PRODUCT.format(m=m, k=k, n=n))
    scheduled = pack_constants(program, constants, AVX512)
    for _, change in CPU_SCHEDULE:
        scheduled = step_of(scheduled, change, AVX512)
    tile_verify.verify(scheduled)
    return program, scheduled


@pytest.mark.parametrize("constants", [(), (1,)])
@pytest.mark.parametrize(
    ("m", "k", "n"), [(40, 512, 32), (29, 523, 45), (17, 700, 7), (600, 300, 33)]
)
def test_values(m: int, k: int, n: int, constants: tuple[int, ...]) -> None:
    """Rows, terms and columns that no tile and no chunk divides; more rows than one buffer has."""
    program, tiles = tiled(m, k, n, constants)
    assert "sums0" in print_program(tiles)
    random = np.random.default_rng(0)
    inputs = [random.standard_normal(b.type.shape).astype(np.float32) for b in program.inputs]
    want = interpret.run(program, inputs, widen=True)[0]
    got = kernel_interpret.run(lower.lower(tiles), inputs, widen=True)[0]
    np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)


def test_one_accumulator_for_each_element() -> None:
    """The buffer adds chunks up, so that tiles are as large as registers allow."""
    text = print_program(tiled(400, 1040, 64)[1])
    assert "acc0_s0" not in text
    assert re.search(r"for s0 in 0\.\.1040 by 130:  # scan serial", text)
    (rows,) = {int(n) for n in re.findall(r"by (\d+):  # free serial\n +for a0", text)}
    assert AVX512.register_tile[0] < rows <= (AVX512.vector_registers - 3) // 2


@pytest.mark.parametrize(("m", "k"), [(16, 1024), (64, 256), (2048, 1040)])
def test_few_tiles_or_terms_have_none(m: int, k: int) -> None:
    """Nor have rows that no cache holds: their pieces would come from memory one by one."""
    assert "sums0" not in print_program(tiled(m, k, 64)[1])


@pytest.mark.parametrize("size", [7, 9, 14])
def test_lines_of_an_image_share_weights(size: int) -> None:
    """A block of several lines, padded by a window, beside what eager gives."""
    torch.manual_seed(0)
    conv = torch.nn.Conv2d(40, 64, 3, padding=1).eval()
    x = torch.randn(2, 40, size, size)
    compiled = weft.compile(lambda x: torch.relu(conv(x)) + 1, freeze=True)
    want = torch.relu(torch.nn.functional.conv2d(
        x.double(), conv.weight.double(), conv.bias.double(), padding=1)) + 1  # fmt: skip
    with torch.no_grad():
        torch.testing.assert_close(compiled(x).double(), want, rtol=2e-6, atol=2e-6)


def test_the_same_bits_for_any_number_of_threads() -> None:
    x, w = torch.randn(130, 700), torch.randn(700, 90)
    compiled = weft.compile(torch.mm)
    threads = torch.get_num_threads()
    found = []
    for n in (1, 2, 3):
        torch.set_num_threads(n)
        found.append(compiled(x, w))
    torch.set_num_threads(threads)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
    torch.testing.assert_close(found[0], x @ w, rtol=1e-5, atol=1e-4)
