"""Layouts: a copy that turns what is looked up, made where lanes then read it in order."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import weft
from weft.interpret import nests as interpret
from weft.interpret.tensors import evaluate
from weft.tensor.layouts import Contiguous, without_layouts
from weft.tensor.lower import lower as lower_groups
from weft.tensor.verify import verify
from weft.text import parse_program, print_program

TEXT = """
program tensor turned
input x: f32[3,9]
input rows: i64[5]
a = view{[9,3] -> (i1, i0)}(x)
b = contiguous(a): f32[9,3]
c = view{[5,3] -> (i0)}(rows)
y = gather{axes=(0,), rest=(1,)}(b, c): f32[5,3]
output y
"""


def test_a_copy_has_the_same_elements_with_a_buffer_and_without() -> None:
    graph = parse_program(TEXT)
    verify(graph)
    assert print_program(parse_program(print_program(graph))) == print_program(graph)
    rng = np.random.default_rng(0)
    inputs = [rng.random((3, 9)).astype(np.float32), rng.integers(0, 9, 5)]
    wanted = inputs[0].T[inputs[1]]
    (copied,) = (n for n in graph.nodes() if isinstance(n.op, Contiguous))
    assert not any(isinstance(n.op, Contiguous) for n in without_layouts(graph).nodes())
    for program in (graph, without_layouts(graph)):
        np.testing.assert_array_equal(evaluate(program, inputs)[0], wanted)
    for groups in ([(copied,), graph.outputs], [graph.outputs]):
        program = lower_groups(graph, [tuple(g) for g in groups])
        assert len(program.kernels) == len(groups)
        np.testing.assert_array_equal(interpret.run(program, inputs)[0], wanted)


@pytest.mark.parametrize(
    ("image", "points", "copies"),
    [((2, 16, 20, 20), 400, True), ((1, 16, 200, 200), 7, False), ((2, 1, 20, 20), 400, False)],
)
def test_an_image_is_turned_where_its_channels_are_read_often(
    image: tuple[int, ...], points: int, copies: bool
) -> None:
    torch.manual_seed(0)
    x, grid = torch.randn(image), torch.rand(image[0], points, 1, 2) * 2.2 - 1.1
    sampled = weft.compile(lambda x, grid: F.grid_sample(x, grid, align_corners=False))
    wanted = F.grid_sample(x.double(), grid.double(), align_corners=False)
    torch.testing.assert_close(sampled(x, grid).double(), wanted, rtol=1e-4, atol=1e-4)
    assert any("contiguous" in k.name for k in sampled.report.kernels) == copies
