"""The template: colours that can be read, no library, one command."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from weft.cli.main import main
from weft.explain.report import HERE, data_in

CSS = (HERE / "page.css").read_text()


def luminance(colour: str) -> float:
    parts = (int(colour[i : i + 2], 16) / 255 for i in (0, 2, 4))
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def themes() -> list[dict[str, str]]:
    blocks = re.findall(r"\{\s*(--paper:.*?)\}", CSS, re.DOTALL)
    return [dict(re.findall(r"--(\w+): #(\w{6});", block)) for block in blocks]


def test_text_can_be_read_in_light_and_dark() -> None:
    light, preferred, dark = themes()
    assert preferred == dark != light
    pairs = [(ink, on) for ink in ("ink", "dim", "accent", "name", "good", "bad")
             for on in ("paper", "card")]  # fmt: skip
    pairs += [(ink, on) for ink in ("ink", "name") for on in ("lit", "hit")]
    pairs += [("add", "addbg"), ("del", "delbg")]
    for theme in (light, dark):
        poor = {p: round(contrast(theme[p[0]], theme[p[1]]), 1) for p in pairs
                if contrast(theme[p[0]], theme[p[1]]) < 4.5}  # fmt: skip
        assert not poor, poor


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as done:
        main(["explain", *arguments])
    code = done.value.code
    return int(code) if code is not None else 0


def test_explain_writes_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "report.html"
    text = "torch.randn(8, 8).relu() + 1"
    assert run("-c", text, "--target", "cpu", "--profile", "-o", str(path)) == 0
    assert "1 kernel, 0 externs" in capsys.readouterr().out
    (kernel,) = data_in(path.read_text())["programs"][0]["kernels"]
    assert kernel["flops"] == 2 * 64 and kernel["bytes"] == 2 * 4 * 64
    assert kernel["measured_us"] > 0 and kernel["predicted_us"] > 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("-c", "torch.randn(4)", "--search", "most"), "search"),
        (("no_such.py:f",), "no file no_such.py"),
        (("-c", "torch.randn(4)", "-o", "no/such/folder/report.html"), "cannot write"),
        (("-c", "torch.relu(torch.randn(4))", "--target", "metal", "--profile"), "not launched"),
    ],
)
def test_what_is_wrong_is_one_sentence(
    arguments: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 2
    told = capsys.readouterr().err
    assert told.startswith("weft: ") and sentence in told and "Traceback" not in told
