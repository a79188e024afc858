"""A fixed, fast part of JAX's own cases; `python -m tests.conformance.jax` runs all of them."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("jax")
pytest.importorskip("absl")

from tests.conformance.jax import differ, harnesses, outcome

CASES = harnesses()


def one_of_each(last: bool) -> list:
    """The first case of each group, or the last one."""
    found: dict[str, object] = {}
    for harness in CASES:
        if last or harness.group_name not in found:
            found[harness.group_name] = harness
    return [*found.values()]


@pytest.mark.parametrize("harness", one_of_each(last=True), ids=lambda h: h.group_name)
def test_torch_gives_what_jax_gives(harness) -> None:
    assert outcome(harness, compiled=False) == ""


COMPILED = """add cumsum dot_general conv_general_dilated gather scatter_add reduce_window_max pad
sort select_n""".split()


@pytest.mark.parametrize(
    "harness",
    [h for h in one_of_each(last=False) if h.group_name in COMPILED],
    ids=lambda h: h.group_name,
)
def test_weft_gives_what_jax_gives(harness) -> None:
    assert outcome(harness, compiled=True) == ""


def test_the_judge_refuses_other_numbers() -> None:
    ones = np.ones(3, np.float32)
    assert not differ(ones, ones)
    assert "relative error" in differ(ones * np.float32(1.0001), ones)
    assert "NaN" in differ(np.array([1, np.nan, 1], np.float32), ones)
    assert "1 of 3 differ" in differ(np.array([1, 2, 1]), np.array([1, 1, 1]))
