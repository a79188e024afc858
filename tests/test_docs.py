"""What the documentation shows is what weft prints: `$ weft ...` lines are run and compared.

pytest tests/test_docs.py --update-golden      # (make docs) writes the output into the pages
"""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from weft.cli.main import main
from weft.tile.schedule import CPU_PROGRAM, CPU_SCHEDULE

DOCS = Path(__file__).resolve().parent.parent / "docs"
BLOCK = re.compile(r"^```\n\$ (.*)\n((?:.*\n)*?)```$", re.MULTILINE)


def output(command: str, names: dict[str, str], capsys: pytest.CaptureFixture[str]) -> str:
    """What a line prints: `NAME=value`, or a weft command with what it is piped through."""
    assigned = re.fullmatch(r"(\w+)=(.*)", command)
    if assigned:
        names[assigned[1]] = shlex.split(assigned[2])[0]
        return ""
    for name, value in names.items():
        command = command.replace(f'"${name}"', shlex.quote(value))
    weft, _, pipe = command.partition(" | ")
    arguments = shlex.split(weft)
    assert arguments.pop(0) == "weft"
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    printed = capsys.readouterr().out
    assert caught.value.code == 0
    if pipe:
        return subprocess.run(
            pipe, shell=True, input=printed, text=True, capture_output=True
        ).stdout
    return printed


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda p: p.name)
def test_pages_show_what_weft_prints(
    page: Path, update_golden: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, str] = {}
    text = page.read_text()

    def again(found: re.Match[str]) -> str:
        return f"```\n$ {found[1]}\n{output(found[1], names, capsys)}```"

    current = BLOCK.sub(again, text)
    if update_golden:
        page.write_text(current)
    assert current == text or update_golden, f"{page} shows old output: run make docs"
    assert len(current.splitlines()) <= 200


def test_the_architecture_lists_every_pass_in_order() -> None:
    listed = re.findall(
        r"^\| `[lt]:(\w+)` \|", (DOCS / "ARCHITECTURE.md").read_text(), re.MULTILINE
    )
    passes = [name.partition("_")[2] for name, _ in (*CPU_PROGRAM, *CPU_SCHEDULE)]
    assert listed == passes, "docs/ARCHITECTURE.md has a table of the passes: keep it in step"
