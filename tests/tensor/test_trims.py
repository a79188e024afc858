"""Scatters of which only the first rows are read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import weft
from weft.core.errors import WeftError
from weft.interpret import nests as interpret
from weft.interpret.tensors import evaluate
from weft.tensor.lower import BY_TABLE, lower
from weft.tensor.trims import trim_scatters
from weft.text import parse_program, print_program

PADDED = """
program tensor padded
input base: f32[6,32]
input i: i64[9]
input x: f32[9,32]
v0 = view{[9,32] -> (i0)}(i): i64[9,32]
v1 = scatter{sum, axis=0}(base, v0, x): f32[6,32]
y = view{[4,32] -> (i0, i1)}(v1): f32[4,32]
output y
"""
ALL_READ = PADDED.replace("output y", "z = map{add}(v1, v1): f32[6,32]\noutput y, z")
LAST_ROWS = PADDED.replace("-> (i0, i1)}(v1)", "-> (i0 + 2, i1)}(v1)")


@pytest.mark.parametrize("fold", ["sum", "max", "last"])
def test_values_of_rows_that_nobody_reads_are_left_out(fold: str) -> None:
    graph = parse_program(PADDED.replace("sum", fold))
    trimmed = trim_scatters(graph)
    text = print_program(trimmed)
    assert f"y = scatter{{{fold}, axis=0, beyond=2}}(v0, v1, x): f32[4,32]" in text
    assert print_program(parse_program(text)) == text
    rng = np.random.default_rng(0)
    given = [
        rng.random((6, 32), np.float32),
        rng.integers(6, size=9),
        rng.random((9, 32), np.float32),
    ]
    (wanted,) = evaluate(graph, given, widen=True)
    (found,) = evaluate(trimmed, given, widen=True)
    np.testing.assert_array_equal(found, wanted)
    ways: dict[str, Any] = {"cache": 1 << 20, "segments": lambda *_: True}
    for roads in (BY_TABLE, BY_TABLE._replace(**ways), BY_TABLE._replace(atomic=lambda *_: True)):
        program = lower(trimmed, [tuple(trimmed.outputs)], roads=roads)
        (found,) = interpret.run(program, given, widen=True)
        np.testing.assert_allclose(found, wanted, rtol=1e-14)


@pytest.mark.parametrize("text", [ALL_READ, LAST_ROWS])
def test_scatters_of_which_more_is_read_stay(text: str) -> None:
    graph = parse_program(text)
    assert trim_scatters(graph) is graph


@pytest.mark.parametrize("target", ["auto", "cuda:sm_90a"])
def test_a_list_that_is_padded_trains_as_in_eager(target: str) -> None:
    torch.manual_seed(0)
    table, i = torch.randn(20, 48, requires_grad=True), torch.randint(21, (30, 4))

    def gradient(table: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        found = F.embedding_bag(i, F.pad(table, (0, 0, 0, 1)), mode="sum")
        return torch.autograd.grad(found.square().sum(), table)[0]

    simulated = {"simulate": True} if "cuda" in target else {}
    f = weft.compile(gradient, target=target, fallback="error", **simulated)
    torch.testing.assert_close(f(table, i), gradient(table, i))
    assert "beyond=1" in f.ir("tensor")
    with pytest.raises(WeftError, match="out of range"):
        f(table, i.where(i != 3, 21))
