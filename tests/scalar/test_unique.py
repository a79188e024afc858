"""Kernels that read other parts of their inputs alike share their code, at every level."""

from __future__ import annotations

import numpy as np
import torch

import weft
from weft.interpret import kernels as kernel_interpret
from weft.interpret import nests as interpret
from weft.scalar.nest import Program
from weft.scalar.structure import Unique
from weft.text import parse_program

STEPS = """program loop steps
input x: f32[8,32]

kernel first(x: f32[8,32]) -> first: f32[16]
for a0 in 0..16:  # free
    in0 = load x[0, a0]
    in1 = load x[0, a0 + 16]
    v0 = add(in0, in1)
    first[a0] = v0

kernel third(x: f32[8,32]) -> third: f32[16]
for a0 in 0..16:  # free
    in0 = load x[2, a0]
    in1 = load x[2, a0 + 16]
    v0 = add(in0, in1)
    third[a0] = v0

kernel {name}(x: f32[8,32]) -> {name}: f32[16]
for a0 in 0..16:  # free
    in0 = load x[3, {index}]
    in1 = load x[3, {other}]
    v0 = add(in0, in1)
    {name}[a0] = v0

output first, third, {name}
"""


def steps(index: str, other: str) -> Program:
    program = parse_program(STEPS.format(name="last", index=index, other=other))
    assert isinstance(program, Program)
    return program


def test_rows_of_one_tensor_share_a_kernel() -> None:
    unique = Unique(steps("a0", "a0 + 16"), starts=True)
    assert [k.name for k in unique.program.kernels] == ["first"]
    assert unique.starts == {"first": (0,), "third": (64,), "last": (96,)}


def test_kernels_are_their_own_where_parts_are_not_asked_for() -> None:
    unique = Unique(steps("a0", "a0 + 16"))
    assert len(unique.program.kernels) == 3 and not unique.starts


def test_other_distances_are_another_kernel() -> None:
    unique = Unique(steps("a0", "a0 + 8"), starts=True)
    assert [k.name for k in unique.program.kernels] == ["first", "last"]


def test_what_goes_down_starts_at_no_later_element() -> None:
    """x[3, 15 - a0] from column 15 on would reach before it."""
    program = steps("15 - a0", "15 - a0 + 16")
    unique = Unique(program, starts=True)
    assert len(unique.program.kernels) == 2
    assert "last" not in unique.starts


def test_a_restored_program_reads_what_the_program_did() -> None:
    program = steps("a0", "a0 + 16")
    unique = Unique(program, starts=True)
    x = np.random.default_rng(0).standard_normal((8, 32)).astype(np.float32)
    want = interpret.run(program, [x])
    got = interpret.run(unique.restore(unique.program), [x])
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)


def test_steps_over_rows_are_right_at_every_level() -> None:
    x = torch.linspace(-1, 1, 6 * 40).reshape(6, 40)

    def rows(x: torch.Tensor) -> list[torch.Tensor]:
        state = torch.zeros(20)
        out: list[torch.Tensor] = []
        for row in x:
            state = (torch.softmax(state * row[20:], 0) + row[:20]).cumsum(0)
            out.append(state)
        return out

    compiled = weft.compile(rows, target="cpu:avx2")
    got, want = compiled(x), rows(x)
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b)
    kernels = compiled.report.kernels
    assert len({k.symbol for k in kernels}) < len(kernels)
    for level, run in (("tile", interpret.run), ("kernel", kernel_interpret.run)):
        program = parse_program(compiled.ir(level))
        assert isinstance(program, Program)
        for a, b in zip(run(program, [x.numpy()]), want, strict=True):
            np.testing.assert_allclose(a.reshape(b.shape), b.numpy(), rtol=1e-4, atol=1e-5)
