"""The nests that groups of tensors become."""

from __future__ import annotations

import numpy as np

from weft.interpret import nests as interpret
from weft.scalar.nest import Kernel
from weft.tensor.lower import lower
from weft.text import parse_program, print_program

PADDED = """
program tensor pad
input x: f32[4,8]
input bias: f32[4,1]
v0 = view{[4,8] -> (i0, 0)}(bias): f32[4,8]
v1 = map{add}(x, v0): f32[4,8]
y = view{[4,9] -> (i0, i1 - 1) where i1 >= 1 else 0.0}(v1): f32[4,9]
output y
"""


def test_a_load_is_masked_where_its_place_may_not_exist() -> None:
    graph = parse_program(PADDED)
    program = lower(graph, [tuple(graph.outputs)])
    text = print_program(program)
    assert "load x[a0, a1 - 1] if v0 else 0.0" in text
    assert "in0 = load bias[a0, 0]\n" in text  # outside the loop over the padded axis
    (kernel,) = program.steps
    assert isinstance(kernel, Kernel)
    x, bias = np.arange(32.0).reshape(4, 8), np.arange(4.0).reshape(4, 1)
    (y,) = interpret.run(program, [x, bias], widen=True)
    np.testing.assert_array_equal(y, np.pad(x + bias, ((0, 0), (1, 0))))
