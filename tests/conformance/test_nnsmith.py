"""A fixed part of `python -m tests.conformance.nnsmith`: three random models of ONNX."""

from __future__ import annotations

import pytest

from tests.conformance import nnsmith


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", [0, 6, 15])
def test_random_model(seed: int) -> None:
    case = nnsmith.sample(seed)
    assert isinstance(case, nnsmith.Sample), case
    for name in ("from_onnx", "compiled"):
        assert nnsmith.problem(nnsmith.RUNS[name], case) == ""
    wrong = nnsmith.Sample(case.proto, case.inputs, [e + 1 for e in case.expected])
    assert nnsmith.problem(nnsmith.RUNS["from_onnx"], wrong)
