"""Bad input at the command line: one sentence with its place, exit code 2, nothing left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from weft.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
RMSNORM = "nn.RMSNorm(8)(torch.randn(4, 8))"
BRANCH = """def f(x=torch.randn(3)):
    if x.sum().item() > 0: return x + 1
    return x - 1"""
CUSTOM = """@torch.library.custom_op("weft_tests::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor: return x * 2
@twice.register_fake
def _(x): return torch.empty_like(x)
twice(torch.randn(3)) + 1"""


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a refused command says."""
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    captured = capsys.readouterr()
    assert caught.value.code == 2 and captured.out == ""
    assert "Traceback" not in captured.err and len(captured.err.splitlines()) <= 3
    return captured.err


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (CUSTOM, "weft_tests.twice.default: has no row in the ATen table\n  at -c line 5: twice("),
        ("torch.randn(4, dtype=torch.complex64) * 2", "aten.mul.Tensor: no code is generated for"),
        ("torch.nonzero(torch.randn(4))", "the shape of what nonzero gives depends on values"),
        (BRANCH, "what to do depends on a number that a tensor holds\n  at -c line 2: if x"),
        ("nn.Linear(3, 4)(torch.randn(2, 5))", "RuntimeError: a and b must have same reduction"),
    ],
    ids=["op", "dtype", "shape", "branch", "mismatch"],
)
def test_what_has_no_code(text: str, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    error = refused(capsys, "compile", "-c", text, "--fallback", "error")
    assert error.startswith(f"weft: {sentence}") and "\n  at -c line " in error


@pytest.mark.parametrize("text", [CUSTOM, BRANCH, "torch.nonzero(torch.randn(4))"])
def test_the_same_runs_by_default(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["run", "-c", text.replace("weft_tests::", "weft_tests_run::")])
    assert caught.value.code == 0 and "passed" in capsys.readouterr().out


def test_a_program_that_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    error = refused(capsys, "compile", "-c", "y = 1\ntorch.randn(2, 3) @ torch.randn(2, 3)")
    assert error.startswith("weft: RuntimeError: mat1 and mat2 shapes cannot be multiplied")
    assert "at -c line 2:  torch.randn(2, 3) @ torch.randn(2, 3)" in error


def test_a_model_folder_without_a_config(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "has no config.json" in refused(capsys, "compile", str(tmp_path))
    assert "no file, model folder" in refused(capsys, "run", str(tmp_path / "nosuch"))


# One undefined name and one wrong shape for the text of each level, and where the mistake stands.
MISTAKES = {
    "torch": (("(x, ", "(nosuch, "), ("x: f32[4,8]", "x: f32[4,7]")),
    "tensor": (("(x, x)", "(x, nosuch)"), ("x: f32[4,8]", "x: f32[4,7]")),
    "loop": (("(in0, in0)", "(in0, nosuch)"), ("input x: f32[4,8]", "input x: f32[4,7]")),
    "tile": (("(in0, in0)", "(in0, nosuch)"), ("input x: f32[4,8]", "input x: f32[4,7]")),
    "kernel": (("multiply(", "multiply(nosuch, "), ("(x: f32[32]", "(x: f32[31]")),
}


@pytest.mark.parametrize("level", MISTAKES)
def test_ir_text(level: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = tmp_path / f"rmsnorm.{level}"
    with pytest.raises(SystemExit):
        main(["compile", "-c", RMSNORM, "--ir", level, "-o", str(good)])
    with pytest.raises(SystemExit) as caught:
        main(["run", str(good)])
    assert caught.value.code == 0, capsys.readouterr()
    capsys.readouterr()
    for (old, new), sentence in zip(MISTAKES[level], ("undefined name nosuch", ""), strict=True):
        text = good.read_text()
        assert old in text
        bad = tmp_path / f"bad.{level}"
        bad.write_text(text.replace(old, new, 1))
        error = refused(capsys, "run", str(bad))
        assert error.startswith(f"weft: {sentence}") and f"\n  at {bad} line " in error


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own: the environment is read when weft starts."""
    return subprocess.run(
        [sys.executable, "-m", "weft.cli.main", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
    )


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    occupied = tmp_path / "file"
    occupied.write_text("mine")
    done = command("run", "-c", RMSNORM, WEFT_CACHE=str(occupied / "cache"))
    told = f"weft: cannot use the cache {occupied}/cache (Not a directory): set WEFT_CACHE to"
    assert done.returncode == 2 and done.stderr.startswith(told) and done.stdout == ""
    assert [p.name for p in tmp_path.iterdir()] == ["file"] and occupied.read_text() == "mine"


def test_no_compiler(tmp_path: Path) -> None:
    unset = {"PATH": str(tmp_path), "CC": "", "WEFT_CC": "", "WEFT_CACHE": str(tmp_path / "cache")}
    done = command("compile", "-c", RMSNORM, "-o", str(tmp_path / "out.c"), **unset)
    told = "weft: weft needs a C compiler and found neither gcc nor clang: install"
    assert done.returncode == 2 and done.stderr.startswith(told)
    assert {path.name for path in tmp_path.iterdir()} <= {"cache"}
