"""A fixed part of `make conformance`: one sample of some operators of each kind, both entries."""

from __future__ import annotations

import pytest

from tests.conformance.cases import DTYPES, ENTRIES, operators, run_case

QUICK = {
    "f32": (
        *("add", "where", "cumsum", "index_put", "linalg.svd", "view_as_complex"),
        *("nn.functional.layer_norm", "nn.functional.soft_margin_loss", "scatter_reduce.amax"),
        "nn.functional.conv2d",
        "sgn",
    ),
    "bf16": ("matmul", "logsumexp", "nn.functional.gelu"),
    "f16": ("div.floor_rounding",),
    "i64": ("pow", "remainder", "argmax", "unique", "bitwise_left_shift"),
    "bool": ("any", "logical_xor", "masked_fill", "cat"),
}  # fmt: skip
CASES = [(dtype, name) for dtype, names in QUICK.items() for name in names]


@pytest.mark.parametrize(("dtype", "name"), CASES)
def test_operator(dtype: str, name: str) -> None:
    runs = [*run_case(operators()[name], DTYPES[dtype], list(ENTRIES), 1)]
    assert len(runs) == len(ENTRIES)
    assert [problem for _, _, problem in runs if problem] == []
