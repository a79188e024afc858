"""A real browser draws the page: what it shows, what lights up, in light and dark."""

from __future__ import annotations

import re
import shutil
import subprocess
import zlib
from html.parser import HTMLParser
from pathlib import Path

import pytest

from weft.cli.main import main
from weft.explain.report import HERE

NAMES = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
PROGRAM = "torch.softmax(torch.randn(20, 40) @ torch.randn(40, 24), 1).relu()"

TENSOR = re.compile(r"(?<![.{])\brelu\b(?!\()")  # and not the function, as in map{relu}

pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="no Chromium here (Debian's package chromium; make setup installs it)"
)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("explain") / "report.html"
    with pytest.raises(SystemExit) as done:
        main(["explain", "-c", PROGRAM, "--target", "cpu:avx2", "-o", str(path)])
    assert done.value.code == 0
    return path


def browse(report: Path, fragment: str, *options: str) -> str:
    """What Chromium prints for the page with that fragment."""
    assert BROWSER is not None
    command = (
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
        "--no-first-run", f"--user-data-dir={report.parent / 'profile'}", "--window-size=1200,800",
        *options, f"file://{report}#{fragment}",
    )  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Drawn(HTMLParser):
    """The lines of each level as they are drawn, those that are lit, and other lit elements."""

    def __init__(self, dom: str) -> None:
        super().__init__()
        self.lines: dict[str, list[str]] = {}
        self.lit: dict[str, list[str]] = {}
        self.others: list[str] = []
        self.level, self.depth, self.is_lit = "", 0, False
        self.feed(dom)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        lit = "lit" in (given.get("class") or "").split()
        if self.level and tag == "div":
            self.depth += 1
            self.is_lit = lit
            self.lines[self.level].append("")
        elif "data-level" in given:
            self.level, self.depth = given["data-level"] or "", 0
            self.lines[self.level], self.lit[self.level] = [], []
        elif lit and not self.level:
            self.others.append(tag)

    def handle_data(self, data: str) -> None:
        if self.level and self.depth:
            self.lines[self.level][-1] += data

    def handle_endtag(self, tag: str) -> None:
        if tag != "div" or not self.level:
            return
        if self.depth == 0:
            self.level = ""
        elif self.is_lit:
            self.lit[self.level].append(self.lines[self.level][-1])
        self.depth -= bool(self.level)


def test_pointing_at_a_tensor_lights_its_lines_in_all_levels(report: Path) -> None:
    page = Drawn(browse(report, "levels=tensor,tile,source&hover=relu", "--dump-dom"))
    assert list(page.lines) == ["tensor", "tile", "source"]
    for level, lines in page.lines.items():
        assert page.lit[level] == [line for line in lines if TENSOR.search(line)]
    assert [len(page.lit[level]) for level in page.lit] == [2, 3, 2]
    assert {"tr", "i"} <= {*page.others}  # in the tables of buffers and of kernels too


def test_pointing_at_a_kernel_lights_all_of_it(report: Path) -> None:
    page = Drawn(browse(report, "levels=torch,loop,kernel&hover=kernel", "--dump-dom"))
    assert [line.partition(" = ")[0] for line in page.lit["torch"]] == ["mm"]
    for level in ("loop", "kernel"):
        lit = page.lit[level]
        assert lit[0].startswith("kernel reduce(") and lit == page.lines[level][4 : 4 + len(lit)]
    assert {"tr", "g"} <= {*page.others}  # its row, and its point of the roofline


def first_pixel(png: bytes) -> tuple[int, ...]:
    """The colour of the upper left corner: no filter of PNG changes the first pixel."""
    packed, at = b"", 8
    while at < len(png):
        size, kind = int.from_bytes(png[at : at + 4], "big"), png[at + 4 : at + 8]
        packed += png[at + 8 : at + 8 + size] if kind == b"IDAT" else b""
        at += 12 + size
    return tuple(zlib.decompress(packed)[1:4])


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_page_is_drawn_in_light_and_dark(report: Path, theme: str) -> None:
    picture = report.parent / f"{theme}.png"
    browse(report, f"theme={theme}", f"--screenshot={picture}")
    paper = re.findall(r"--paper: #(\w+);", (HERE / "page.css").read_text())
    wanted = bytes.fromhex(paper[0] if theme == "light" else paper[1])
    assert first_pixel(picture.read_bytes()) == tuple(wanted)
