"""The site is built without a warning, its links lead somewhere, and the wheel has every file.

make site, make wheel      # the same, kept: and the wheel is installed and used
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.pages import ROOT
from weft.core.node import OPS
from weft.levels import GPU_THREADS
from weft.tile.schedule import CPU_PROGRAM, CPU_SCHEDULE, GPU_PROGRAM, GPU_SCHEDULE

OTHERS = {Path("genindex"), Path("search")}  # pages that Sphinx adds
LISTS = CPU_PROGRAM, CPU_SCHEDULE, GPU_PROGRAM, GPU_SCHEDULE, GPU_THREADS
PASSES = [name for passes in LISTS for name, _ in passes]
BROKEN = """# A page that no other one leads to

[no such page](NOWHERE.md), [no such section](TUNING.md#nothing), [fine](TUNING.md#weft-tune)
"""


def test_the_site_has_no_warning_but_of_broken_links(tmp_path: Path) -> None:
    pytest.importorskip("myst_parser")
    pytest.importorskip("furo")
    docs, html = tmp_path / "docs", tmp_path / "html"
    shutil.copytree(ROOT / "docs", docs, ignore=shutil.ignore_patterns("reference"))
    for name in ("README.md", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    (docs / "broken.md").write_text(BROKEN)
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", str(docs), str(html)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    told = "".join(line for line in done.stderr.splitlines() if "WARNING" in line)
    assert done.returncode == 1 and told.count("WARNING") == told.count("broken.md") == 3, told
    assert all(what in told for what in ("NOWHERE.md", "'nothing'", "toctree")), told
    pages = {path.relative_to(docs).with_suffix("") for path in docs.rglob("*.md")}
    assert pages == {p.relative_to(html).with_suffix("") for p in html.rglob("*.html")} - OTHERS
    names = {page: headings(docs / "reference" / f"{page}.md") for page in ("ops", "passes")}
    own = {name for name, op in OPS.items() if op.__module__.startswith("weft.")}
    assert own <= names["ops"], "of a folder that docs/reference.py does not list"
    assert {*PASSES} <= names["passes"]


def headings(path: Path) -> set[str]:
    return set(re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE))


def test_the_wheel_has_every_file_of_weft(tmp_path: Path) -> None:
    own = tmp_path / "setup.cfg"  # what is built stays out of the tree
    own.write_text(f"[build]\nbuild_base={tmp_path}/build\n[egg_info]\negg_base={tmp_path}\n")
    pip = [sys.executable, "-m", "pip", "wheel", "-qq", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [*pip, "-w", str(tmp_path), str(ROOT)],
        env={**os.environ, "DIST_EXTRA_CONFIG": str(own)},
        check=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
        text = archive.read(next(n for n in archive.namelist() if n.endswith("entry_points.txt")))
    files = {p for p in (ROOT / "weft").rglob("*") if p.is_file() and "__pycache__" not in p.parts}
    assert held == {str(path.relative_to(ROOT)) for path in files}
    assert b"weft = weft.cli.main:main" in text
