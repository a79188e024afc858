"""The commands of docs/EXPORT.md work, in an empty folder, and so does its program."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "EXPORT.md").read_text()


def test_commands_of_the_page(tmp_path: Path) -> None:
    shells, (program,) = (
        re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL) for kind in ("sh", "c")
    )
    (tmp_path / "use.c").write_text(program)
    weft = f'weft() {{ "{sys.executable}" -m weft "$@"; }}\n'
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for shell in shells:
        done = subprocess.run(
            ["bash", "-e", "-c", weft + shell],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        if "env -i" in shell:
            assert re.search(r"^(avx2|avx512|neon|plain): -?\d", done.stdout, re.MULTILINE)
            assert "out f32[4, 10] =" in done.stdout
    assert len(shells) == 2 and len(PAGE.splitlines()) <= 100
