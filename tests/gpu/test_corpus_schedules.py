"""What the corpus lowers for each schedule is what the driver makes of it, in fewer steps."""

from __future__ import annotations

import pytest
import torch

from tests.captures import capture_call
from tests.gpu.corpus.schedules import FIRST, LEFT_OUT, TARGETS, lowered, lowerings
from tests.gpu.corpus.table import GROUPS
from weft import driver
from weft.core.passes import PassLog
from weft.frontend.graph import Known
from weft.options import Options


@pytest.mark.parametrize("name", ["softmax", "linear", "long_sum", "bf16_product", "two_axes"])
def test_left_out_passes(name: str) -> None:
    source = GROUPS["programs"][name].source()
    with torch.no_grad():
        captured = capture_call(source.callable, source.args, source.kwargs)
    failures: list[str] = []
    found = lowerings(captured, lambda kind, message: failures.append(message))
    assert not failures and [one.name for one in found[: len(TARGETS)]] == TARGETS
    codes = {one.passes: one.code for one in found[len(TARGETS) :]}
    default = found[TARGETS.index(FIRST)].code
    assert 2 < len(codes) < len(LEFT_OUT)  # most change something, and some nothing
    for number in LEFT_OUT:
        options = Options(FIRST, passes=f"-{number}")
        known = Known(captured.layouts, captured.constants())
        levels = driver.lower(captured.graph, options, PassLog(), known)
        assert codes.get(number, default) == lowered("", FIRST, levels).code, number
