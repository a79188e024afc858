"""Reductions of slices of one tensor: joined where they cover it, and what that is not done for."""

import numpy as np
import pytest
import torch

import weft
from weft.interpret.tensors import evaluate
from weft.tensor.slices import join_slices
from weft.text import parse_program, print_program

HALVES = """
program tensor halves
input x: f32[6,10]
a = view{[6,4] -> (i0, i1)}(x): f32[6,4]
b = view{[6,6] -> (i0, i1 + 4)}(x): f32[6,6]
c = reduce{sum, axes=(0,)}(a): f32[1,4]
d = reduce{sum, axes=(0,)}(b): f32[1,6]
output c, d
"""
APART = {
    "one has other columns": HALVES.replace("i1 + 4", "i1 + 3"),
    "columns are left": HALVES.replace("x: f32[6,10]", "x: f32[6,11]"),
    "other reductions": HALVES.replace("d = reduce{sum", "d = reduce{max"),
    "columns are folded": HALVES.replace("(0,)", "(1,)")
    .replace("f32[1,4]", "f32[6,1]")
    .replace("f32[1,6]", "f32[6,1]"),
    "one has a mask": HALVES.replace("i1 + 4)", "i1 + 4) where i1 < 5 else 0.0"),
    "one skips rows": HALVES.replace("[6,10]", "[12,10]").replace(
        "(i0, i1 + 4)", "(i0 * 2, i1 + 4)"
    ),
}


def sums(text: str) -> int:
    return text.count("reduce{")


@pytest.mark.parametrize("fold", ["sum", "max", "product"])
def test_slices_that_cover_a_tensor_are_reduced_in_one(fold: str) -> None:
    graph = parse_program(HALVES.replace("sum", fold))
    joined = join_slices(graph)
    text = print_program(joined)
    assert sums(text) == 1
    assert f"reduce{{{fold}, axes=(0,)}}(x): f32[1,10]" in text
    assert print_program(parse_program(text)) == text
    x = np.random.default_rng(0).random((6, 10), np.float32)
    for found, wanted in zip(evaluate(joined, [x]), evaluate(graph, [x]), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("case", APART)
def test_others_stay_apart(case: str) -> None:
    graph = parse_program(APART[case])
    assert join_slices(graph) is graph


def test_a_bias_that_both_halves_share_takes_one_pass_with_the_sums_beside_it() -> None:
    def step(x: torch.Tensor, y: torch.Tensor, bias: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        h = torch.cat([x + bias, y + bias], 1).clamp(0, 1).square()
        return torch.autograd.grad((h @ w).sigmoid().sum(), (bias, w))

    torch.manual_seed(0)
    given = [torch.randn(300, 64), torch.randn(300, 64), torch.randn(64), torch.randn(128, 1)]
    given[2:] = [t.requires_grad_() for t in given[2:]]
    compiled = weft.compile(step, fallback="error")
    wide = [t.detach().double().requires_grad_(t.requires_grad) for t in given]
    for found, wanted in zip(compiled(*given), step(*wide), strict=True):
        torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)
    text = compiled.ir("tensor")
    assert "reduce{sum, axes=(0,)}" in text
    assert "[1,64]" not in "".join(line for line in text.splitlines() if "reduce{" in line)
