"""What is asked of GPU targets wrongly: one sentence says what to do. The corpus tests the rest."""

from __future__ import annotations

import pytest
import torch

import weft
from weft.driver import compile_text
from weft.options import Options


def test_without_the_simulator_the_error_says_what_to_do() -> None:
    with pytest.raises(weft.WeftError, match="simulate=True"):
        weft.compile(lambda x: x + 1, target="cuda:sm_90a")(torch.ones(3))
    with pytest.raises(weft.WeftError, match="simulate is for cuda:sm_80"):
        weft.compile(lambda x: x + 1, simulate=True)


@pytest.mark.parametrize("passes", ["007", "-7", "-007;-008"])
def test_passes_are_named_by_number(passes: str) -> None:
    with pytest.raises(weft.WeftError, match="-007 leaves 007 out"):
        weft.compile(lambda x: x, passes=passes)


@pytest.mark.parametrize("level", ["tile", "kernel"])
@pytest.mark.parametrize(("one", "other"), [("cuda:sm_80", "cpu:avx2"), ("cpu:avx2", "cuda:sm_80")])
def test_text_for_another_machine_is_refused(level: str, one: str, other: str) -> None:
    compiled = weft.compile(lambda x: x.softmax(-1), target=one)
    compiled.prepare(torch.ones(4, 64))
    with pytest.raises(weft.WeftError, match="choose the target"):
        compile_text(compiled.ir(level), Options(other))


def test_sources_are_of_one_language() -> None:
    compiled = weft.compile(lambda x: x + 1, target="cuda:sm_80")
    compiled.prepare(torch.ones(3))
    with pytest.raises(weft.WeftError, match="are cuda, not c"):
        compiled.ir("c")
