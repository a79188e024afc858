"""Nodes at the ends of what ONNX allows, in eager torch: empty, of an old opset, of another type.

Expectations are those of ONNX's reference; of ONNX Runtime where it says `runtime`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import ModelProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tests.onnx.models import model, module
from weft.onnx.load import module_of
from weft.onnx.table import find
from weft.onnx.types import OnnxError, from_numpy, to_numpy


def node(
    op: str, *inputs: Any, opset: int = 21, constants: tuple[int, ...] = (), **attributes: Any
) -> tuple[ModelProto, dict[str, Any]]:
    """A model of one node, and what to call it with; `constants` are inputs that the model has."""
    names = ["" if x is None else f"i{k}" for k, x in enumerate(inputs)]
    arrays = {n: x for n, x in zip(names, inputs, strict=True) if n}
    made = [numpy_helper.from_array(inputs[k], f"i{k}") for k in constants]
    given = {n: x for n, x in arrays.items() if n not in {tensor.name for tensor in made}}
    kinds = {n: helper.np_dtype_to_tensor_dtype(x.dtype) for n, x in given.items()}
    ports = [helper.make_tensor_value_info(n, kinds[n], x.shape) for n, x in given.items()]
    ends = [helper.make_empty_tensor_value_info("y")]
    body = helper.make_node(op, names, ["y"], **attributes)
    graph = helper.make_graph([body], "g", ports, ends, made)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]), given


def ours(made: ModelProto, given: dict[str, Any]) -> Any:
    net = module_of(made, Path("."), "test")
    kinds = {p.name: p.element for p in net.inputs}
    with torch.no_grad():
        found = net(*[from_numpy(x, kinds[name]) for name, x in given.items()])
    return to_numpy(found, None)


def check(made: ModelProto, given: dict[str, Any], runtime: Any = None) -> None:
    found = ours(made, given)
    expected = ReferenceEvaluator(made).run(None, given)[0] if runtime is None else runtime
    expected = np.asarray(expected)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    if expected.dtype.kind != "f":
        assert found.tolist() == expected.tolist()
    else:
        np.testing.assert_allclose(found, expected, rtol=4 * np.finfo(expected.dtype).eps)


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


X = np.arange(6, dtype=np.float32).reshape(2, 3)
CASES = {
    "pad with a list of one": node("Pad", X, ints(1, 0, 0, 1), X[0, 1:2], constants=(1, 2)),
    "pad with 2^62 + 1": node("Pad", ints(1), ints(1, 1), np.int64(2**62 + 1), constants=(1, 2)),
    "clip by a list of one": node("Clip", X, X[0, 2:], constants=(1,)),
    "running sum of nothing": node("CumSum", X[:, :0], np.int64(1), exclusive=1),
    "scatter rows of nothing": node("ScatterND", X[:, :0], ints(1).reshape(1, 1), X[:1, :0]),
    "range that ends before it starts": node("Range", np.int32(3), np.int32(1), np.int32(2)),
    "slice back from before its end": node("Slice", X, ints(0), ints(2), ints(1), ints(-1)),
    "a node's mean over one place": node("InstanceNormalization", 0 * X[..., None], X[1], X[0]),
    "erf of integers": node("Erf", ints(-2, 0, 3)),
    "slopes of integers without a sign": node("PRelu", X.astype("u4"), X[0].astype("u4")),
    "inverse transform of real numbers": node("DFT", 1 + 0 * X[..., None], inverse=1),
    "selu in f64": node("Selu", X.astype("f8") - 3),
}


@pytest.mark.parametrize("case", CASES)
def test_as_the_reference(case: str) -> None:
    check(*CASES[case])


def test_statistics_of_each_place_before_opset_9() -> None:
    x, v = np.arange(6, dtype=np.float32).reshape(2, 1, 3), X[1:] + 1
    made, given = node("BatchNormalization", x, v, v, v, v, opset=7, spatial=0)
    check(made, given, (x - v) / np.sqrt(v + np.float32(1e-5)) * v + v)


def test_slopes_are_of_channels_before_opset_7() -> None:
    x, slopes = -np.ones((1, 2, 2), np.float32), np.array([2, 3], np.float32)
    check(*node("PRelu", x, slopes, opset=6), runtime=np.float32([[[-2, -2], [-3, -3]]]))
    check(*node("PRelu", x, slopes, opset=7), runtime=np.float32([[[-2, -3], [-2, -3]]]))


def test_windows_that_begin_after_the_first_element() -> None:
    x, words = np.arange(6, dtype=np.float32).reshape(1, 1, 6), {"auto_pad": "SAME_UPPER"}
    check(*node("MaxPool", x, kernel_shape=[1], strides=[3], **words), runtime=x[..., 1::3])
    once = np.ones((1, 1, 1), np.float32)
    check(*node("Conv", x, once, strides=[3], **words), runtime=x[..., ::3])
    wide = np.float32([[[7, 1, 8, 1]]])  # of an output larger than what windows reach
    made = node("ConvTranspose", wide[..., ::2] - 1, once, once[0, 0], strides=[2], **words)
    check(*made, runtime=wide)


def test_integers_are_not_multiplied_by_fractions() -> None:
    with pytest.raises(OnnxError, match="integers are not multiplied by"):
        ours(*node("Gemm", X.astype("i4"), X.T.astype("i4"), alpha=0.5))


def test_coefficients_go_to_activations_that_take_one() -> None:
    """LeakyRelu, the second, has the first and only coefficient, as in ONNX Runtime."""
    torch.manual_seed(0)
    w0, w1 = -torch.rand(1, 6, 3), torch.randn(1, 6, 2)
    names = '["Sigmoid", "LeakyRelu"], activation_alpha = [0.5]'
    text = f"y, h = GRU<hidden_size = 2, activations = {names}>(x, w0, w1)"
    words = {"w0": w0.numpy(), "w1": w1.numpy()}
    net = module(f"g (float[1,1,3] x) => (float[1,1,1,2] y) {{ {text} }}", **words)
    update, _, new = w0[0].sum(1).split(2)
    expected = (1 - torch.sigmoid(update)) * 0.5 * new
    torch.testing.assert_close(net(torch.ones(1, 1, 3)).flatten(), expected)


def test_graphs_side_by_side_use_a_name_for_two_types() -> None:
    branch = "(float[2] z) { k = QuantizeLinear(x, s, zp)  z = DequantizeLinear(k, s, zp) }"
    text = f"y = If(c) <then_branch = t () => {branch}, else_branch = e () => {branch}>"
    made = model(f"g (bool c, float[2] x) => (float[2] y) {{ {text} }}", s=np.float32(1))
    for attribute, kind in zip(made.graph.node[0].attribute, ("int8", "uint8"), strict=True):
        attribute.g.initializer.append(numpy_helper.from_array(np.zeros((), kind), "zp"))
    net = module_of(made, Path("."), "test")
    for chosen in (True, False):
        given = {"c": np.array(chosen), "x": np.float32([-1, 1])}
        found = net(torch.tensor(chosen), torch.tensor([-1.0, 1.0]))
        assert found.tolist() == ReferenceEvaluator(made).run(None, given)[0].tolist()


def test_a_branch_gives_a_value_of_a_graph_around_the_one_around_it() -> None:
    inner = (
        "If(c) <then_branch = t2 () => (float[2] a) { }, else_branch = e2 () => (float[2] b) { }>"
    )
    net = module(f"""g (bool c, float[2] x) => (float[2] y) {{
        a = Neg(x)  b = Abs(a)  rest = Add(b, b)
        y = If(c) <then_branch = t () => (float[2] z) {{ z = {inner} }},
                   else_branch = e () => (float[2] w) {{ w = Neg(x) }}>
    }}""")
    assert net(torch.tensor(True), torch.ones(2)).tolist() == [-1, -1]


def test_values_may_be_named_as_what_the_text_calls() -> None:
    made = model(
        "g (float[2] getattr) => (float[2] y) { y = Add(getattr, w_1) }", **{"w.1": X[0, :2]}
    )
    assert module_of(made, Path("."), "test")(torch.ones(2)).tolist() == [1, 2]
    one, other = "(float[2] z) { z = Exp(Exp) }", "(float[2] w) { w = Exp(x) }"
    text = f"Exp = Relu(x)  y = If(c) <then_branch = t () => {one}, else_branch = e () => {other}>"
    net = module(f"g (bool c, float[2] x) => (float[2] y) {{ {text} }}")
    assert net(torch.tensor(True), torch.zeros(2)).tolist() == [1, 1]
    text = "y = ai.onnx.ml.Binarizer<threshold = 0.5>(ml_Binarizer)"
    net = module(f"g (float[2] ml_Binarizer) => (float[2] y) {{ {text} }}")
    assert net(torch.tensor([0.0, 1.0])).tolist() == [0, 1]


@pytest.mark.parametrize("times", [0, 2])
def test_a_loop_may_not_run_at_all(times: int) -> None:
    body = "(int64 i, bool d, float[2] v) => (bool d2, float[2] w, float[2] u)"
    text = (
        f"z, y = Loop(n, , x) <body = b {body} {{ d2 = Identity(d)  w = Add(v, v)  u = Neg(v) }}>"
    )
    net = module(f"g (int64 n, float[2] x) => (float[2] z, float[k,2] y) {{ {text} }}")
    last, kept = net(torch.tensor(times), torch.ones(2))
    assert last.tolist() == [2.0**times] * 2
    assert kept.shape == (times, 2) and kept.dtype is torch.float32
    open_body = body.replace("float[2] u", "float[m] u").replace("float[2] v", "float[m] v")
    text = text.replace(body, open_body.replace("float[2] w", "float[m] w"))
    net = module(f"g (int64 n, float[m] x) => (float[m] z, float[k,m] y) {{ {text} }}")
    if not times:
        with pytest.raises(OnnxError, match="Loop z: it runs not once"):
            net(torch.tensor(times), torch.ones(2))


def test_long_lists_are_tensors() -> None:
    """What stands for numbers decides shapes; a list of a thousand would be text in a graph."""
    kinds = ((7, 7, 7), (7,))
    for length, kind in ((8, tuple), (1000, torch.Tensor)):
        fill, value = find("", "ConstantOfShape", 20), (7, (3,))
        spread, count = find("", "Expand", 20), find("", "Range", 20)
        assert fill and spread and count
        assert isinstance(fill.call((length,), value=value), kind)
        assert isinstance(spread.call(3, (length,)), kind)
        assert isinstance(count.call(0, length, 1, types=kinds), kind)


def test_the_largest_of_one_shape() -> None:
    net = module("g (float[2,3] x) => (int64[2] y) { s = Shape(x)  y = Max(s) }")
    assert net(torch.ones(2, 3)).tolist() == [2, 3]
