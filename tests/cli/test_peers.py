"""OpenVINO and ONNX Runtime compute what eager does, on bound tensors; absent ones are named."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from weft.cli import peers
from weft.cli.peers import PEERS, missing, restored
from weft.cli.program import Source
from weft.core.errors import WeftError


def source(function: Any, *args: Any) -> Source:
    return Source(function, args, {}, "program")


@pytest.mark.parametrize("backend", PEERS)
def test_a_peer_computes_what_eager_does(backend: str) -> None:
    for module in peers.NEEDS[backend]:
        pytest.importorskip(module)
    layer = nn.Sequential(nn.Linear(8, 5), nn.GELU()).eval()
    x = torch.randn(3, 8)
    peer = PEERS[backend](source(layer, x))
    with torch.no_grad():
        torch.testing.assert_close(peer(x)[0], layer(x), rtol=1e-4, atol=1e-5)
        run = peer.bind(x)
        first, before = run()[0], layer(x)
        torch.testing.assert_close(first, before, rtol=1e-4, atol=1e-5)
        x.mul_(2)  # the input is read where it lies, the output written where it lay
        assert run()[0].data_ptr() == first.data_ptr()
        torch.testing.assert_close(first, layer(x), rtol=1e-4, atol=1e-5)


def test_the_older_exporter_stands_in() -> None:
    """Today's has no translation of amax over everything."""
    for module in peers.NEEDS["onnxruntime"]:
        pytest.importorskip(module)
    x = torch.randn(3, 4)
    assert PEERS["onnxruntime"](source(torch.amax, x))(x)[0] == x.amax()


def test_what_is_not_a_tensor_is_a_constant() -> None:
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    flat = peers.Flat(source(lambda pair, n: {"sum": pair[0] * n + pair[1]}, [x, y], 3))
    assert torch.equal(flat(x, y)[0], x * 3 + y)


def test_outputs_take_the_structure_and_strides_of_eager() -> None:
    eager = {"a": torch.randn(2, 3).t(), "b": torch.randn(4)}
    out = restored([eager["a"].contiguous(), eager["b"]], eager)
    assert out["a"].stride() == eager["a"].stride() and torch.equal(out["a"], eager["a"])
    assert restored([eager["b"]], eager) != eager  # too few: left to the check


def test_shapes_that_depend_on_values_are_refused() -> None:
    with pytest.raises(WeftError, match="output y is not static"):
        peers.static("y", ["n", 2], torch.float32)


def test_missing_modules_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(peers.NEEDS, "onnxruntime", ("torch", "no_such_module"))
    assert missing("onnxruntime") == ["no_such_module"]
    assert missing("eager") == []
