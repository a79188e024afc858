"""A fixed part of `python -m tests.conformance.onnx`: a third of the nodes, all exported models."""

from __future__ import annotations

import re
import zlib
from typing import Any

import numpy as np
import pytest
import torch
from onnx import helper

import weft
from tests.conformance.onnx import backend_of, run, suite
from weft.onnx import backend

# Random results, formats of images, f16 sums in another order, noise that NumPy's transform makes
# where the exact result is 0, and a test whose expectation its own runner cannot compare.
FAILING = re.compile(
    "test_(bernoulli|training_dropout|image_decoder|attention_4d_causal_fp16|dft_inverse"
    "|loop16_seq_none)"
)
PARTS = 3


@pytest.fixture(scope="module")
def made() -> list[Any]:
    return []


@pytest.fixture(scope="module")
def cases(made: list[Any]) -> dict[str, Any]:
    with np.errstate(all="ignore"):
        return suite(backend_of("eager", made))


def names(case: Any) -> list[str]:
    return [n for n in dir(case) if n.startswith("test_") and n.endswith("_cpu")]


def test_nodes(cases: dict[str, Any], made: list[Any]) -> None:
    every = names(cases["Node"])
    part = [name for name in every if zlib.crc32(name.encode()) % PARTS == 0]
    wrong = {}
    for name in part:
        row = run(cases["Node"], name, "eager", made)
        if row["state"] != "eager" and not FAILING.match(name):
            wrong[name] = row["problem"]
    assert len(every) >= 1884 and len(part) > 500 and wrong == {}


@pytest.mark.parametrize("kind", ["Simple", "PyTorchConverted", "PyTorchOperator"])
def test_models(kind: str, cases: dict[str, Any], made: list[Any]) -> None:
    rows = {name: run(cases[kind], name, "eager", made) for name in names(cases[kind])}
    assert {n: r["problem"] for n, r in rows.items() if r["state"] != "eager"} == {}


def test_a_network_compiles_to_kernels_alone(cases: dict[str, Any]) -> None:
    made: list[Any] = []
    case = suite(backend_of("compile", made))["Real"]
    row = run(case, "test_squeezenet_cpu", "compile", made)
    assert (row["state"], row["problem"]) == ("native", "")


def test_the_interface_of_a_backend() -> None:
    node = helper.make_node("Add", ["a", "b"], ["c"])
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    (found,) = backend.run_node(node, [a, a[:1]], compile=False)
    assert found.dtype == np.float32 and found.tolist() == (a + a[:1]).tolist()
    ports = [helper.make_tensor_value_info(n, 1, ["N", 3]) for n in "abc"]
    model = helper.make_model(helper.make_graph([node], "sum", ports[:2], ports[2:]))
    prepared = backend.prepare(model)
    (found,) = prepared.run({"b": a, "a": a})
    assert found.tolist() == (2 * a).tolist()
    assert weft.report(prepared.call).externs == []
    assert backend.run_model(model, [a, a], compile=False)[0].tolist() == (2 * a).tolist()
    assert backend.supports_device("CPU") and not backend.supports_device("TPU")
    assert backend.supports_device("CUDA") is torch.cuda.is_available()
    with pytest.raises(weft.WeftError, match="no device"):
        backend.prepare(model, "TPU")
