"""The torch level: calls read as in PyTorch, and read back to the same graph."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.captures import capture_call
from weft.core.arguments import Arguments
from weft.core.errors import ParseError, VerifyError, WeftError
from weft.core.node import Graph, make
from weft.core.types import TensorType, f32
from weft.frontend.torch_level import Aten
from weft.tensor.ops import Input
from weft.text import parse_program, print_program


def program(x: torch.Tensor, m: torch.Tensor) -> Any:
    values, order = torch.sort(x.pow(2))
    low = torch.full((3,), float("-inf")) + torch.rand(3) + torch.rand(3)
    total = torch.sum(x, dim=[-1], dtype=torch.float64)
    rounded = torch.div(x, 2, rounding_mode="floor")
    return torch.where(m, x, 0.5), values, order, low, total, rounded, torch.complex(x, x)


def test_calls_read_as_in_pytorch() -> None:
    inputs = (torch.randn(4, 8).t(), torch.ones(8, 4, dtype=torch.bool))
    graph = capture_call(program, inputs, {}).graph
    text = print_program(graph)
    for line in (
        "input x: f32[8,4]{1,8}",
        "aten.pow.Tensor_Scalar(x, 2): f32[8,4]",
        "aten.sum.dim_IntList(x, [-1], dtype=torch.float64): f64[8]",
        "aten.full.default([3], -inf, ",
        "aten.rand.default{after=rand}([3], ",
        'aten.div.Tensor_mode(x, 2, rounding_mode="floor"): f32[8,4]',
        "aten.complex.default(x, x): complex64[8,4]",
    ):
        assert line in text
    assert parse_program(text) == graph
    assert print_program(parse_program(text)) == text


@pytest.mark.parametrize(
    "arguments",
    [
        '{"args":[{"tensor":1},{"tensor":0}],"kwargs":{}}',
        '{"args": [{"tensor":0},{"tensor":1}], "kwargs": {}}',
        '{"args":[{"tensor":0},{"tensor":1},99999999999999999999],"kwargs":{}}',
        '{"args":[{"tensor":0},{"tensor":1},null,"x\\n",[{"complex":[1.0,2.5]}]],"kwargs":{}}',
        '{"args":[{"tensor":0}],"kwargs":{"b":{"tensor":1},"c":{"layout":"strided"},"d":true}}',
    ],
)
def test_any_call_reads_back(arguments: str) -> None:
    x, y = (make(Input(n, TensorType(f32, (2,)))) for n in "xy")
    call = make(Aten("aten.add.Tensor", Arguments(arguments), (TensorType(f32, (2,)),)), x, y)
    graph = Graph("torch", "main", (x, y), (call,))
    assert parse_program(print_program(graph)) == graph


@pytest.mark.parametrize(
    ("line", "kind", "sentence"),
    [
        ("aten.relu.default(x)", ParseError, "the result of aten.relu.default needs its type"),
        ("aten.relu.default(z): f32[2]", ParseError, "undefined name z"),
        ("aten.a.b(dtype=torch.flot): f32[2]", ParseError, "torch.flot is no dtype, layout or"),
        ("aten.a.b(alpha=1, x): f32[2]", ParseError, "an argument without a name follows one with"),
        ("aten.a.b(complex(1.0)): f32[2]", ParseError, "complex of 1 values"),
        ("map{relu}(x): f32[2]", VerifyError, "map is not an op of the torch level"),
    ],
)
def test_wrong_calls(line: str, kind: type[WeftError], sentence: str) -> None:
    with pytest.raises(kind) as caught:
        parse_program(f"program torch main\ninput x: f32[2]\ny = {line}\noutput y\n")
    assert sentence in caught.value.message
