"""The corpus: every program by group, in one table.

GROUPS["layouts"]["softmax of strided, f32"]
"""

from __future__ import annotations

from tests.agree.test_programs import PROGRAMS as AGREE
from tests.gpu.corpus.chance import chance
from tests.gpu.corpus.checks import examine
from tests.gpu.corpus.indexing import INDEXING
from tests.gpu.corpus.layouts import LAYOUT_CASES
from tests.gpu.corpus.program import Program, of_case, of_row
from tests.gpu.corpus.reductions import REDUCTIONS
from tests.gpu.corpus.row import Row
from tests.gpu.corpus.workloads import workloads
from tests.gpu.programs import PROGRAMS

CHANCES = 60


def named(programs: list[Program]) -> dict[str, Program]:
    found = {program.name: program for program in programs}
    assert len(found) == len(programs), "two programs of one name"
    return found


GROUPS = {
    "programs": named([of_row(name, *row) for name, row in PROGRAMS.items()]),
    "reductions": named([of_case(case) for case in REDUCTIONS]),
    "layouts": named([of_case(case) for case in LAYOUT_CASES]),
    "indexing": named([of_case(case) for case in INDEXING]),
    "agree": named([of_case(case) for case in AGREE if not case.externs]),
    "chance": named([chance(seed) for seed in range(CHANCES)]),
    "small workloads": named([p for p in workloads() if not p.real]),
    "workloads": named([p for p in workloads() if p.real]),
}


def examined(group: str, name: str) -> Row:
    """Its row, without what hipcc says: that is asked of many programs at once."""
    row = examine(GROUPS[group][name], hip=False)
    row.group = group
    return row
