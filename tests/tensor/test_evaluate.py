"""The reference interpreter: primitives against NumPy, library calls through torch, widening."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch

from weft.core.arguments import Arguments
from weft.core.errors import UnsupportedOpError, VerifyError
from weft.core.node import Graph, Node, make
from weft.core.types import TensorType, bf16, f16, f32, i64
from weft.interpret.tensors import evaluate, to_numpy, to_torch
from weft.tensor import build
from weft.tensor.build import Tensor
from weft.tensor.ops import Extern, Input, Part

X = Tensor(make(Input("x", TensorType(f32, (16, 64)))))
W = Tensor(make(Input("w", TensorType(f32, (64, 8)))))


def run(output: Tensor | Node, *inputs: np.ndarray, widen: bool = False) -> np.ndarray:
    node = output.node if isinstance(output, Tensor) else output
    graph = Graph("tensor", "main", (X.node, W.node)[: len(inputs)], (node,))
    return evaluate(graph, inputs, widen)[0]


def draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def test_matmul_and_softmax() -> None:
    x, w = draw(16, 64), draw(64, 8)
    np.testing.assert_allclose(run(build.matmul(X, W), x, w), x @ w, rtol=2e-4, atol=1e-5)
    expected = torch.softmax(torch.from_numpy(x), -1).numpy()
    np.testing.assert_allclose(run(build.softmax(X, 1), x), expected, rtol=1e-5)


def test_widened_programs_round_nowhere() -> None:
    x = draw(16, 64)
    half = build.cast(build.cast(X, f16) * 3, f32)
    out = run(half, x, widen=True)
    assert out.dtype == np.float64
    np.testing.assert_array_equal(out, x.astype(np.float64) * 3)
    assert not np.array_equal(run(half, x), x * 3)


def test_library_calls() -> None:
    x = draw(16, 64)
    both = (TensorType(f32, (16, 64)), TensorType(i64, (16, 64)))
    call = make(Extern("aten.sort.default", Arguments('[{"tensor": 0}, 1, true]'), both), X.node)
    values, order = torch.sort(torch.from_numpy(x), dim=1, descending=True)
    np.testing.assert_array_equal(run(make(Part(0), call), x), values.numpy())
    np.testing.assert_array_equal(run(make(Part(1), call), x), order.numpy())


def test_library_calls_with_keywords() -> None:
    text = '{"args": [{"tensor": 0}], "kwargs": {"dtype": {"dtype": "float32"}}}'
    call = make(Extern("aten.sum.default", Arguments(text), (TensorType(f32, ()),)), X.node)
    x = draw(16, 64)
    np.testing.assert_allclose(run(call, x), x.sum(), rtol=1e-5)
    assert run(call, x, widen=True).dtype == np.float64


def test_an_unknown_library_call_is_named() -> None:
    call = make(Extern("aten.nonsense.default", Arguments("[]"), (TensorType(f32, ()),)))
    with pytest.raises(UnsupportedOpError, match=r"no operator aten\.nonsense\.default"):
        run(call)


def test_wrong_inputs_are_named() -> None:
    with pytest.raises(VerifyError, match=r"input x is f32\[16,64\], got float32\[2, 2\]"):
        run(X, draw(2, 2))
    with pytest.raises(VerifyError, match="main takes 0 inputs, got 1"):
        evaluate(Graph("tensor", "main", (), (X.node,)), [draw(2)])
    with pytest.raises(VerifyError, match="main reads x, which is not an input"):
        evaluate(Graph("tensor", "main", (), (X.node,)), [])


def test_bf16_goes_to_torch_and_back() -> None:
    x = draw(3, 5).astype(ml_dtypes.bfloat16)
    assert to_torch(x).dtype == torch.bfloat16
    np.testing.assert_array_equal(to_numpy(to_torch(x)), x)
    assert to_numpy(to_torch(x)).dtype == bf16.numpy
