"""What `make corpus` prints: lines while it runs, and a table with what failed."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.gpu.corpus import __main__ as command
from tests.gpu.corpus.row import Row

RIGHT = Row("mean of rows", "reductions", kernels=1, schedules=4, spent={"g++": 1.0, "NVRTC": 1.0})
WRONG = Row("sum of rows", "reductions", kernels=2, schedules=5, spent={"g++": 2.0})
WRONG.fail("misses", "cuda:sm_80: result 0: error 1.0e-02, allowed 1.0e-06")


def test_the_summary_names_what_failed(capsys: pytest.CaptureFixture[str]) -> None:
    hip = Row("mean of rows", "reductions", spent={"hipcc": 3.0})
    command.summary([RIGHT, WRONG, hip], 7.0)
    told = capsys.readouterr().out.splitlines()
    assert ["reductions", *"2 3 9 0 0 0 0 1 0 7".split()] in [line.split() for line in told]
    assert told[-2:] == ["2 programs in 7 s: 1 FAILED", "    sum of rows"]
    assert "CPU s of g++ 3, hipcc 3, NVRTC 1" in told
    assert "--only '^sum\\ of\\ rows$' runs it alone" in command.told(WRONG)


def test_progress_has_an_estimate(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "EVERY", 0)
    progress = command.Progress(Counter({"reductions": 62}), jobs=2)
    for row in (RIGHT, WRONG):
        progress.add(row)
    assert "2 of 62 programs, 4 CPU s in 0 s; about 1 minutes more" in capsys.readouterr().err


def die(group: str, name: str) -> Row:
    """Stands for what examines a program."""
    if name == "scalar":
        os.abort()
    return Row(name, group)


def test_a_process_that_dies_is_an_error_of_its_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "examined", die)
    rows = list(command.run([("programs", "add"), ("programs", "scalar")], jobs=1))
    assert {row.name: row.errors for row in rows if row.name == "scalar"} == {"scalar": 1}
