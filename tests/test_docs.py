"""What the documentation shows is what weft prints: `$ weft ...` lines are run and compared.

pytest tests/test_docs.py --update-golden      # (make docs) writes the output into the pages
Of tutorials, and of pages in WHOLE, every block runs (pages.py).
"""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest

from tests.pages import ROOT, Apart, Here, current
from weft.tile.schedule import CPU_PROGRAM, CPU_SCHEDULE, GPU_PROGRAM, GPU_SCHEDULE

DOCS = ROOT / "docs"
WHOLE = (
    "EXPORT.md",
    "SIMULATOR.md",
    "DISTRIBUTED.md",
    "QUANTIZE.md",
)  # others show what this machine may lack, or parts


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda p: p.name)
def test_pages_show_what_weft_prints(page: Path, update_golden: bool, tmp_path: Path) -> None:
    check(page, update_golden, Apart(tmp_path) if page.name in WHOLE else Here())


@pytest.mark.parametrize("page", sorted(DOCS.glob("tutorials/*.md")), ids=lambda p: p.stem)
def test_tutorials_work(page: Path, update_golden: bool, tmp_path: Path) -> None:
    check(page, update_golden, Apart(tmp_path))


def check(page: Path, update_golden: bool, worker: Here | Apart) -> None:
    text = page.read_text()
    with worker:
        now = current(text, worker)
    if update_golden:
        page.write_text(now)
    assert now == text or update_golden, f"{page} shows old output: run make docs"
    assert len(now.splitlines()) <= 200


def test_the_architecture_lists_every_pass_in_order() -> None:
    listed = re.findall(
        r"^\| `[lt]:(\w+)` \|", (DOCS / "ARCHITECTURE.md").read_text(), re.MULTILINE
    )
    passes = [name.partition("_")[2] for name, _ in (*CPU_PROGRAM, *CPU_SCHEDULE)]
    assert listed == passes, "docs/ARCHITECTURE.md has a table of the passes: keep it in step"


MOVES = re.compile(r"^\| ([\w ,]+) \| (.*) \| (.*) \| (.*) \|$", re.MULTILINE)
TILE = DOCS.parent / "weft" / "tile"
OTHERS = {"tiles": TILE / "analysis"}  # a module of moves that is elsewhere


def moves_listed() -> list[re.Match[str]]:
    """The rows of the table of moves."""
    section = (DOCS / "ARCHITECTURE.md").read_text().partition("## The moves\n")[2]
    return list(MOVES.finditer(section.partition("\n## ")[0]))[1:]


def uses(path: Path, module: str, names: list[str]) -> bool:
    """Whether a file imports one of these names of a module; any of it where there are none."""
    tree = ast.parse(path.read_text())
    folder = "weft.tile.analysis" if module in OTHERS else "weft.tile.moves"
    for node in (n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)):
        found = {alias.name for alias in node.names}
        if node.module == f"{folder}.{module}" and (not names or found & {*names}):
            return True
        if node.module == folder and module in found:
            return True
    return False


@pytest.mark.parametrize("row", moves_listed(), ids=lambda row: row[1])
def test_the_table_of_moves_is_true(row: re.Match[str]) -> None:
    modules, _, named = row[2].partition(":")
    modules = re.findall(r"`(?:analysis/)?(\w+)`", modules.partition(",")[0])
    names = re.findall(r"`(\w+)`", named)
    schedules = ((*CPU_PROGRAM, *CPU_SCHEDULE), (*GPU_PROGRAM, *GPU_SCHEDULE))
    for schedule, cell in zip(schedules, row.groups()[2:], strict=True):
        listed = re.findall(r"`(\w+)`", cell)
        paths = [Path(inspect.getfile(step)) for _, step in schedule]
        users = [p.stem for p in paths if any(uses(p, m, names) for m in modules)]
        assert bool(listed) is (cell != "-"), f"{row[1]}: passes, or a dash"
        assert {*listed} <= {p.stem for p in paths}, f"{row[1]}: passes of that machine"
        assert listed == users or not modules, f"{row[1]}: docs/ARCHITECTURE.md is not true"


def test_the_table_of_moves_names_every_module() -> None:
    listed = {name for row in moves_listed() for name in re.findall(r"`(\w+)`", row[2])}
    missing = {path.stem for path in (TILE / "moves").glob("*.py")} - listed - {"__init__"}
    assert not missing, f"docs/ARCHITECTURE.md has a table of the moves: {missing} are not in it"
