"""The corpus: every program, by every executor."""

from __future__ import annotations

import pytest

from tests.agree.checks import check
from tests.agree.folds import FOLDS
from tests.agree.inputs import Case
from tests.agree.large import LARGE
from tests.agree.nets import NETS
from tests.agree.pointwise import POINTWISE
from tests.agree.shapes import SHAPES

PROGRAMS = [*POINTWISE, *FOLDS, *SHAPES, *NETS, *LARGE]


@pytest.mark.parametrize("case", PROGRAMS, ids=lambda c: c.name)
def test_every_executor_agrees(case: Case) -> None:
    check(case.fn, case.make(), case.externs)
