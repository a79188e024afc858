"""From a captured program to the tensor level: names, source lines, library calls, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import weft
from tests.captures import capture_call
from weft.core.errors import UnsupportedOpError
from weft.core.node import Graph
from weft.frontend.lower import to_tensor
from weft.interpret import tensors as tensor_level
from weft.interpret.calls import evaluate
from weft.targets.cpu import TILED
from weft.tensor.ops import Extern, Gather, Part, Reduce


def torch_graph(function: Callable[..., Any], *args: torch.Tensor) -> Graph:
    return capture_call(function, args, {}).graph


def lowered(function: Callable[..., Any], *args: torch.Tensor, **options: Any) -> Graph:
    return to_tensor(torch_graph(function, *args), **options)


def test_running_example_is_one_sum_of_products() -> None:
    x, b, w = torch.randn(6, 4), torch.randn(4), torch.randn(4, 3)
    function = lambda x, b, w: torch.relu((x + b) @ w)  # noqa: E731
    graph = lowered(function, x, b, w)
    assert sum(isinstance(n.op, Reduce) for n in graph.nodes()) == 1
    (got,) = tensor_level.evaluate(graph, [x.numpy(), b.numpy(), w.numpy()])
    np.testing.assert_allclose(got, function(x, b, w).numpy(), rtol=1e-5, atol=1e-6)


def test_results_carry_torch_names_and_lines() -> None:
    graph = lowered(lambda x: torch.softmax(x, 1), torch.randn(3, 4))
    assert graph.names[graph.outputs[0]] == "softmax"
    assert "test_aten_lowering.py" in graph.origin[graph.outputs[0]]


def test_two_random_calls_stay_two() -> None:
    graph = lowered(lambda x: (torch.rand_like(x), torch.rand_like(x)), torch.randn(3))
    assert graph.outputs[0] is not graph.outputs[1]


def test_library_calls_say_why_and_give_parts() -> None:
    graph = lowered(lambda x: torch.linalg.qr(x)[1], torch.randn(5, 3))
    part = graph.outputs[0]
    assert isinstance(part.op, Part) and isinstance(part.args[0].op, Extern)
    assert part.args[0].op.reason == "has no row in the ATen table"


def test_complex_numbers_are_a_library_call() -> None:
    graph = lowered(lambda x: torch.fft.fft(x).abs(), torch.randn(4))
    externs = [n.op for n in graph.nodes() if isinstance(n.op, Extern)]
    assert {e.reason for e in externs} == {
        "has no row in the ATen table",
        "no code is generated for complex64",
    }


def test_fallback_error_names_op_and_line() -> None:
    with pytest.raises(
        UnsupportedOpError, match=r"aten\.linalg_qr.*has no row.*\n.*test_aten_lowering"
    ):
        lowered(lambda x: torch.linalg.qr(x)[0], torch.randn(5, 3), fallback="error")


def test_a_declined_call_gives_its_reason() -> None:
    x, mask = torch.randn(4), torch.tensor([True, False, True, True])
    graph = lowered(lambda x: torch.dropout(x, 0.5, True), x)
    reasons = [n.op.reason for n in graph.nodes() if isinstance(n.op, Extern)]
    assert "has no row in the ATen table" in reasons or "drawn by torch" in reasons[0]
    assert not any(isinstance(n.op, Gather) for n in lowered(lambda m: m.long(), mask).nodes())


@pytest.mark.parametrize("double", [False, True])
def test_torch_level_runs_through_torch(double: bool) -> None:
    x = torch.randn(3, 4).half()

    def function(x: torch.Tensor) -> Any:
        a, b = torch.softmax(x, 1, dtype=torch.float32).split([1, 3], 1)
        return a + 1, b.to(torch.float16), torch.arange(3, dtype=torch.float32)

    got = evaluate(torch_graph(function, x), [x], double=double)
    for a, b in zip(got, function(x), strict=True):
        torch.testing.assert_close(a.to(b.dtype), b)
        assert a.dtype == (torch.float64 if double else b.dtype)


@pytest.mark.parametrize("size", [(300,), (0,), (2, 300), (300, 2), (1,)])
@pytest.mark.parametrize("dtype", [None, torch.int64, torch.bool, torch.bfloat16])
def test_eye_of_more_than_255_rows(size: tuple[int, ...], dtype: torch.dtype | None) -> None:
    """Torch writes it over coordinates of uint16 there, which no `arange` of eager's can be."""

    def program() -> torch.Tensor:
        return torch.eye(*size, dtype=dtype)

    assert torch.equal(weft.compile(program, fallback="error")(), program())


def test_large_products_of_bf16_are_left_to_a_library_that_has_tiles_for_them() -> None:
    def kept(*shapes: tuple[int, ...], dtype: torch.dtype = torch.bfloat16) -> bool:
        given = [torch.zeros(s, dtype=dtype) for s in shapes]
        function = torch.mm if len(given) == 2 else torch.addmm
        graph = lowered(function, *given, tiled=TILED)
        assert not any(isinstance(n.op, Extern) for n in lowered(function, *given).nodes())
        return any(isinstance(n.op, Extern) for n in graph.nodes())

    assert kept((128, 512), (512, 256)) and kept((256,), (128, 512), (512, 256))
    assert not kept((128, 512), (512, 256), dtype=torch.float32)
    assert not kept((64, 64), (64, 64)), "too few products for a call"
    assert not kept((1, 4096), (4096, 4096)), "memory decides, not products"
