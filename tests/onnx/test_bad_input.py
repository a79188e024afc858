"""What no module can be made of, or what a module is not made for: one sentence with the node."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import ModelProto, helper, save

import weft
from tests.onnx.models import external, model, module
from weft.onnx.load import module_of
from weft.onnx.types import OnnxError

RELU = "g (float[N] x) => (float[N] y) { y = Relu(x) }"


def sentence(made: ModelProto, folder: Path = Path(".")) -> str:
    with pytest.raises(OnnxError) as caught:
        module_of(made, folder, "test")
    assert isinstance(caught.value, weft.WeftError)
    assert "\n" not in caught.value.message
    return caught.value.message


@pytest.mark.parametrize(
    ("graph", "opset", "words"),
    [
        (RELU, 999, ["opset 999"]),
        ("g (float[N] x) => (float[N] y) { [fold] y = my.Fold(x) }", 21, ["Fold fold", "custom"]),
        ("g (float[N] x) => (float[N] y) { [r] y = Rollo(x) }", 21, ["no row for Rollo r"]),
        ("g (float[N] x) => (float[N] y) { [r] y = Relu<deep = 1>(x) }", 21, ["Relu r", "deep"]),
        ("g (float[N] x) => (float[N] y) { [r] y = Add(x) }", 21, ["Add r"]),
        ("g (float[N] x) => (float[N] y) { [r] y = Relu(z) }", 21, ["Relu r", "'z'"]),
        ("g (float[N] x) => (float[N] z) { y = Relu(x) }", 21, ["'z'"]),
    ],
)
def test_models_without_a_module(graph: str, opset: int, words: list[str]) -> None:
    message = sentence(model(graph, opset))
    assert all(word in message for word in words), message


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"location": "absent.bin"}, "there is no file absent.bin"),
        ({"location": "../secret.bin"}, "outside of the model's folder"),
        ({"location": "/etc/hostname"}, "outside of the model's folder"),
        ({"location": "link.bin"}, "outside of the model's folder"),
        ({"location": "data.bin", "offset": 8, "length": 16}, "cut off"),
        ({"location": "data.bin", "offset": -8, "length": 16}, "cut off"),
        ({"location": "data.bin", "length": 8}, "damaged"),
    ],
)
def test_external_data(tmp_path: Path, entries: dict[str, object], words: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(bytes(16))
    (folder / "data.bin").write_bytes(bytes(16))
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    made = model("g (float[4] x) => (float[4] y) { y = Add(x, w) }")
    made.graph.initializer.append(external("w", [4], **entries))
    message = sentence(made, folder)
    assert "'w'" in message and words in message, message


def test_external_data_are_read(tmp_path: Path) -> None:
    weights = np.arange(6, dtype=np.float32)
    (tmp_path / "data.bin").write_bytes(weights.tobytes())
    made = model("g (float[4] x) => (float[4] y) { y = Add(x, w) }")
    made.graph.initializer.append(external("w", [4], location="data.bin", offset=8, length=16))
    found = module_of(made, tmp_path, "test")
    assert found(torch.zeros(4)).tolist() == [2, 3, 4, 5]


def test_damaged_files(tmp_path: Path) -> None:
    whole = model("g (float[4] x) => (float[4] y) { y = Add(x, w) }", w=np.ones(4, np.float32))
    data = whole.SerializeToString()
    file = tmp_path / "model.onnx"
    for content in (data[: len(data) // 2], b"", b"\x80\x04N.", data[:-30] + bytes(30)):
        file.write_bytes(content)
        with pytest.raises(OnnxError):
            weft.from_onnx(file)
    with pytest.raises(OnnxError, match="No such file"):
        weft.from_onnx(tmp_path / "absent.onnx")
    save(whole, file)
    assert weft.from_onnx(file)(torch.zeros(4)).tolist() == [1, 1, 1, 1]


def test_names_are_no_program_text() -> None:
    """Names of a file become names, comments and strings of the text that runs, nothing else."""
    made = model(RELU)
    made.graph.node[0].name = "a\n    raise SystemExit  # \r    raise SystemExit"
    made.graph.node[0].output[0] = made.graph.output[0].name = "y); raise SystemExit; (\ufb01"
    net = module_of(made, Path("."), "test\nraise SystemExit")
    assert net(torch.tensor([-1.0, 2.0])).tolist() == [0, 2]
    weights = {"W": np.ones((1, 4, 3), "f"), "R": np.ones((1, 4, 4), "f")}
    made = model("g (float[2,1,3] x) => (float[2,1,1,4] y) { y, h = RNN(x, W, R) }", **weights)
    hostile = helper.make_attribute("hidden_size=raise_, **exit()", 4)
    made.graph.node[0].attribute.append(hostile)
    assert "no name of an attribute" in sentence(made)


def test_inputs_that_do_not_fit() -> None:
    net = module(
        "g (float[N,3] x) => (float[N,2] y) { [mm] y = MatMul(x, w) }", w=np.ones((4, 2), "f")
    )
    with pytest.raises(OnnxError, match=r"the input x is of shape \[N, 3\], not \[2, 4\]"):
        net(torch.ones(2, 4))
    with pytest.raises(OnnxError, match="1 inputs, not 2"):
        net(torch.ones(2, 3), torch.ones(1))
    with pytest.raises(OnnxError, match=r"^MatMul mm: .*shapes cannot be multiplied") as caught:
        net(torch.ones(2, 3))
    assert "MatMul(x, self.w)" in str(caught.value)
