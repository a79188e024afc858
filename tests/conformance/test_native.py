"""What `python -m tests.conformance.native` counts."""

from __future__ import annotations

import pytest
import torch

from tests.conformance.cases import operators
from tests.conformance.native import not_native, without_seeds

TOLD = {
    "index_add": "",
    "nn.functional.dropout": "",
    "linalg.svdvals": "aten._linalg_svd.default",
    "nonzero": "depends on values",
}


@pytest.mark.parametrize("name", TOLD)
def test_operators_with_a_call_of_atens_are_told(name: str) -> None:
    with without_seeds():
        told = not_native(operators()[name], torch.float32, 2)
    assert TOLD[name] in told and bool(TOLD[name]) == bool(told)
