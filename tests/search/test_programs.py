"""What the search finds, by counted multiply-adds, and that values stay those of eager."""

from __future__ import annotations

import pytest
import torch

import weft
from tests.search.programs import PROGRAMS, Program, as_type, graph_of, multiply_adds


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_fewer_multiply_adds(program: Program) -> None:
    plain, found = (
        multiply_adds(graph_of(program.run, program.inputs(), search)) for search in ("off", "on")
    )
    assert found * program.times <= plain, f"{plain} -> {found}: {plain / found:.1f}x"


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_values_are_those_of_eager(program: Program) -> None:
    inputs = program.inputs()
    exact = program.run(*as_type(inputs, torch.float64))
    scale = exact.abs().max()
    eager, on = (
        program.run(*inputs),
        weft.compile(program.run, search="on", fallback="error")(*inputs),
    )
    errors = [((y.double() - exact).abs().max() / scale).item() for y in (eager, on)]
    assert errors[1] <= max(4 * errors[0], 2e-6)


@pytest.mark.parametrize(
    "name",
    [
        *("A@B@c", "linear attention", "A@C+B@C", "one_hot(i)@E", "A@diag(d)@B", "Householder"),
        *("tril(ones)@x", "kron(A,B)@x", "3x3 + 3x1"),
    ],
)
def test_gradients_are_those_of_eager(name: str) -> None:
    program = PROGRAMS[name]

    def gradients(run: object, dtype: torch.dtype) -> list[torch.Tensor]:
        inputs = as_type(program.inputs(), dtype)
        for x in inputs:
            x.requires_grad_(x.is_floating_point())
        run(*inputs).square().sum().backward()  # type: ignore[operator]
        return [x.grad for x in inputs if x.grad is not None]

    exact, eager = gradients(program.run, torch.float64), gradients(program.run, torch.float32)
    found = gradients(weft.compile(program.run, search="on"), torch.float32)
    for a, b, c in zip(exact, eager, found, strict=True):
        errors = [((g.double() - a).abs().max() / a.abs().max()).item() for g in (b, c)]
        assert errors[1] <= max(4 * errors[0], 2e-6)
