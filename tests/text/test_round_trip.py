"""Every form prints as its golden file says, and reads back to the very same program."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.text.samples import SAMPLES, mapped, same, scalar
from tests.work import calls
from weft.core.node import Graph, make
from weft.core.types import TensorType, f32
from weft.tensor.ops import Input
from weft.text import parse_program, print_program


@pytest.mark.parametrize("name", SAMPLES)
def test_prints_as_golden(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"text/{name}.txt", print_program(SAMPLES[name]))


@pytest.mark.parametrize("name", SAMPLES)
def test_reads_back(name: str) -> None:
    text = print_program(SAMPLES[name])
    program = parse_program(text)
    assert same(program, SAMPLES[name])
    assert print_program(program) == text


def test_design_example_is_the_contract() -> None:
    assert print_program(SAMPLES["relu"]).endswith("""
kernel relu(x: f32[16,64], bias: f32[64], w: f32[64,16]) -> relu: f32[16,16]
for a0 in 0..16:  # free
    for a1 in 0..16:  # free
        for a2 in 0..64:  # reduce
            in0 = load x[a0, a2]
            in1 = load bias[a2]
            in2 = load w[a2, a1]
            v0 = add(in0, in1)
            v1 = multiply(v0, in2)
            acc0 <- add(acc0, v1)
        v2 = relu(acc0)
        relu[a0, a1] = v2

output relu
""")


def test_hand_written_text_may_be_looser() -> None:
    text = """
program loop main   # blank lines, comments, infix values, nested calls, no annotation
input x: f32[8]
kernel k(x: f32[8]) -> y: f32[8]
for i in 0..8:
  y[i] = relu(load x[i] * 2.0 + (1.0 - load x[7 - i]))
output y
"""
    printed = print_program(parse_program(text))
    assert "    v0 = multiply(in0, 2.0)\n" in printed
    assert print_program(parse_program(printed)) == printed


def test_a_graph_of_300_nodes_takes_milliseconds() -> None:
    node = x = make(Input("x", TensorType(f32, (4, 5))))
    for i in range(150):
        node = mapped("add", mapped("multiply", node, x), scalar(float(i), f32))
    graph = Graph("tensor", "main", (x,), (node,))
    texts: list[str] = []
    assert calls(lambda: texts.append(print_program(graph))) < 40_000
    assert calls(lambda: parse_program(texts[0])) < 80_000
    assert parse_program(texts[0]) == graph
