"""The module of a model: parameters, open sizes, control flow, and its way through weft."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import save
from torch import nn

import weft
from tests.onnx.models import model, module
from weft.cli.main import main
from weft.onnx.rows import recurrent

LAYER = """g (float[N,T,4] x) => (float[N,S] y) {
    [fc] a = MatMul(x, fc_weight)
    b = Add(a, fc_bias)
    s = Shape(b)
    n = Gather(s, zero)
    list = Unsqueeze(n, axes)
    rest = Constant<value_ints = [-1]>()
    shape = Concat<axis = 0>(list, rest)
    y = Reshape(b, shape)
}"""


def layer() -> Any:
    torch.manual_seed(0)
    weight, bias = torch.randn(4, 6).numpy(), torch.randn(6).numpy()
    words = {"fc.weight": weight, "fc.bias": bias, "zero": np.int64(0), "axes": np.array([0])}
    return module(LAYER, **words)


def test_initialisers_are_parameters_by_their_names() -> None:
    net = layer()
    assert [name for name, _ in net.named_parameters()] == ["fc.weight", "fc.bias"]
    assert not list(net.named_buffers()), "the integers are Python numbers"
    line = "a = MatMul(x, self.fc.weight)  # MatMul fc"
    assert line in net.code and "n = Gather(s, 0)" in net.code
    assert "del " in net.code, "what no later node reads is let go"
    copied = copy.deepcopy(net).double()
    assert copied(torch.ones(1, 2, 4, dtype=torch.float64)).dtype is torch.float64


def test_open_sizes_compile_once_and_have_gradients() -> None:
    net = layer()
    f = weft.compile(net, dynamic=True)
    for n, t in ((2, 3), (5, 4), (3, 7)):
        x = torch.randn(n, t, 4)
        torch.testing.assert_close(f(x), (x @ net.fc.weight + net.fc.bias).reshape(n, -1))
    assert f.report.externs == [] and f.report.reasons == []
    f(x).sum().backward()
    torch.testing.assert_close(net.fc.bias.grad, torch.full((6,), 21.0))


def test_exports_as_any_module() -> None:
    x = torch.randn(2, 3, 4)
    program = torch.export.export(layer(), (x,))
    torch.testing.assert_close(program.module()(x), layer()(x))


LOOP = """g (int64 most, bool alive, float[2] x) => (float[2] last, float[K,2] all) {
    last, all = Loop(most, alive, x) <body = b (int64 i, bool c, float[2] s)
        => (bool more, float[2] t, float[2] kept) {
            f = Cast<to = 1>(i)
            t = Add(s, f)
            limit = Constant<value_float = 6.0>()
            total = ReduceSum<keepdims = 0>(t)
            more = Less(total, limit)
            kept = Mul(t, x)
        }>
}"""


def test_a_loop_reads_values_around_it_and_ends_by_its_condition() -> None:
    net = module(LOOP)
    last, every = net(torch.tensor(10), torch.tensor(True), torch.ones(2))
    assert last.tolist() == [4, 4] and every.tolist() == [[1, 1], [2, 2], [4, 4]]
    last, every = net(2, True, torch.ones(2))
    assert last.tolist() == [2, 2] and len(every) == 2


def test_a_branch_by_a_size_is_chosen_while_tracing() -> None:
    net = module("""g (float[N] x) => (float[M] y) {
        s = Size(x)
        two = Constant<value_int = 2>()
        few = LessOrEqual(s, two)
        y = If(few) <then_branch = a () => (float[M] p) { p = Neg(x) },
                     else_branch = b () => (float[M] q) { q = Concat<axis = 0>(x, x) }>
    }""")
    f = weft.compile(net)
    assert f(torch.ones(2)).tolist() == [-1, -1] and f(torch.ones(3)).tolist() == [1] * 6
    assert f.report.reasons == []


def test_numbers_are_those_of_tensors() -> None:
    """Arithmetic on shapes, as Python numbers and as tensors, for negative numbers as well."""
    text = "g (int64[2] a, int64[2] b) => (int64[2] y) { y = OP(a, b) }"
    pairs = [(-7, 2), (7, -2), (-8, -3), (9, 4), (0, 5)]
    for name in (
        "Add",
        "Sub",
        "Mul",
        "Div",
        "Mod",
        "Max",
        "Min",
        "Equal",
        "Less",
        "GreaterOrEqual",
    ):
        net = module(text.replace("OP", name).replace("int64[2] y", "int64[2] y"))
        for a, b in pairs:
            one, other = net((a, 4), (b, 3)), net(torch.tensor([a, 4]), torch.tensor([b, 3]))
            assert one.dtype is other.dtype and one.tolist() == other.tolist(), (name, a, b)
    with pytest.raises(weft.WeftError, match="Div"):
        module(text.replace("OP", "Div"))((1, 2), (0, 1))


def test_unsigned_integers_of_all_bits() -> None:
    """u64 beyond 2^63, which torch computes with in no kernel."""
    large = np.array([2**64 - 1, 2**63, 2**63 + 5, 7, 12], np.uint64)
    small = np.array([3, 2**63 + 1, 10, 2**64 - 1, 5], np.uint64)
    text = "g (uint64[5] a, uint64[5] b) => (uint64[5] y) { y = OP(a, b) }"
    expected = {
        "Add": large + small, "Sub": large - small, "Mul": large * small, "Div": large // small,
        "Mod": large % small, "Max": np.maximum(large, small), "Min": np.minimum(large, small),
        "Less": large < small, "BitwiseXor": large ^ small,
    }  # fmt: skip
    for name, value in expected.items():
        found = module(text.replace("OP", name))(torch.from_numpy(large), torch.from_numpy(small))
        assert found.numpy().tolist() == value.tolist(), name
    with pytest.raises(weft.WeftError, match="Div y: ZeroDivisionError"):
        module(text.replace("OP", "Div"))(torch.from_numpy(large), torch.from_numpy(small * 0))


def test_rows_of_unequal_length_in_both_directions() -> None:
    """Beside torch's packed sequences; ONNX has the gates in another order."""
    torch.manual_seed(0)
    lstm = nn.LSTM(3, 4, bidirectional=True)
    words: dict[str, list[torch.Tensor]] = {"W": [], "R": [], "B": []}
    for end in ("", "_reverse"):
        parts = [
            getattr(lstm, f"{kind}_l0{end}")
            for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        ]
        turned = [p.detach().reshape(4, 4, -1)[[0, 3, 1, 2]].reshape(p.shape) for p in parts]
        words["W"].append(turned[0])
        words["R"].append(turned[1])
        words["B"].append(torch.cat(turned[2:]))
    net = module(
        """g (float[5,2,3] x, int32[2] n) => (float[5,2,2,4] y, float[2,2,4] h, float[2,2,4] c) {
            y, h, c = LSTM<hidden_size = 4, direction = "bidirectional">(x, W, R, B, n)
        }""",
        **{name: torch.stack(values).numpy() for name, values in words.items()},
    )
    x, lengths = torch.randn(5, 2, 3), torch.tensor([5, 3])
    packed, (h, c) = lstm(nn.utils.rnn.pack_padded_sequence(x, lengths))
    y = nn.utils.rnn.pad_packed_sequence(packed)[0].reshape(5, 2, 2, 4).transpose(1, 2)
    found = net(x, lengths.int())
    for one, other in zip(found, (y, h, c), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(("name", "gates", "words"), [
    ("LSTM", 4, ""), ("GRU", 3, ", linear_before_reset = 1"), ("RNN", 1, ""),
    ("RNN", 1, ', activations = ["Relu", "Relu"]'),
])  # fmt: skip
def test_a_layer_of_torch_is_the_loop(
    name: str, gates: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    sizes = {"W": (2, gates * 8, 6), "R": (2, gates * 8, 8), "B": (2, gates * 16)}
    net = module(
        f"""g (float[T,N,6] x) => (float[T,2,N,8] y, float[2,N,8] h) {{
            y, h = {name}<hidden_size = 8, direction = "bidirectional"{words}>(x, W, R, B)
        }}""",
        **{key: (0.3 * torch.randn(size)).numpy() for key, size in sizes.items()},
    )
    x = torch.randn(5, 3, 6)
    layer_of_torch = net(x)
    monkeypatch.setattr(recurrent, "layer_call", lambda *_: None)
    for one, other in zip(layer_of_torch, net(x), strict=True):
        torch.testing.assert_close(one, other)


def test_a_source_of_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = {"w": np.ones((4, 6), "f")}
    file = tmp_path / "net.onnx"
    save(model("g (float[N,4] x) => (float[N,6] y) { y = MatMul(x, w) }", **words), file)
    for arguments in (["run", str(file)], ["compile", str(file), "--ir", "loop"]):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 0
        assert "[2,6]" in capsys.readouterr().out
    file.write_bytes(b"\x08")
    with pytest.raises(SystemExit) as caught:
        main(["run", str(file)])
    assert caught.value.code != 0 and "not an ONNX model" in capsys.readouterr().err


def test_weft_alone_needs_no_onnx() -> None:
    """A process without onnx imports weft, and is told what from_onnx lacks."""
    import subprocess
    import sys

    code = """
import sys
sys.modules["onnx"] = None
import weft
assert "weft.onnx.build" not in sys.modules
try:
    weft.from_onnx("model.onnx")
except weft.WeftError as error:
    assert "pip install weft[onnx]" in str(error)
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_module_is_one_of_torch() -> None:
    assert isinstance(layer(), nn.Module)
