"""The loop by hand that `python -m bench.nnue` times trains as torch does, in any form."""

from __future__ import annotations

import pytest

from bench import nnue
from bench.nnue import FORMS, loader, stepping


@pytest.fixture(scope="module")
def wanted() -> list[float]:
    nnue.BATCH = 512  # enough to compare
    step = stepping("eager", 128, "bag")
    return [float(step()) for _ in range(4)]


@pytest.mark.parametrize("form", FORMS[1:])
def test_forms(form: str, wanted: list[float]) -> None:
    step = stepping("eager", 128, form)
    assert [float(step()) for _ in range(4)] == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("backend", ["weft", "by hand"])
def test_losses(backend: str, wanted: list[float]) -> None:
    step = stepping(backend, 128, "bag")
    found = [float(step()) for _ in range(4)]
    assert found == pytest.approx(wanted, rel=1e-5)
    assert found[0] > found[-1]


def test_the_loader_reads_random_records() -> None:
    assert loader(None) > 0
