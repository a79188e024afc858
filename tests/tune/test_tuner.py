"""Tuning for real: a child process measures, the database keeps, later compilations take it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import weft
from weft.cli.main import app
from weft.core.errors import WeftError
from weft.options import find_target
from weft.runtime.child import ChildError
from weft.tune import tuner
from weft.tune.database import Database, Row, kernel_key, latest, read_rows
from weft.tune.tuner import SETTINGS, Settings
from weft.tune.worker import Session, differ

X = torch.randn(64, 512, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def short() -> Iterator[Settings]:
    settings = Settings(seconds=1)
    token = SETTINGS.set(settings)
    yield settings
    SETTINGS.reset(token)


def row(key: str = "k", kernel: str = "softmax", **facts: Any) -> Row:
    given = {
        "decisions": {"vectors": "2"},
        "default_us": 2.0,
        "us": 1.0,
        "tried": 9,
        "when": "2026-11-26",
    }
    return Row(key, kernel, "cpu", **{**given, **facts})


def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


def loop_kernel(f: Any) -> Any:
    """The kernel of a compiled function, at the loop level."""
    (levels,) = [p.artifact.levels() for p in weft.driver.compilation(f).programs]
    return levels.unique.program.kernels[0]


def test_rows_are_kept_and_the_latest_counts(tmp_path: Path) -> None:
    database = Database(tmp_path / "deep" / "tuned.jsonl")
    assert database.find("k") is None and database.rows() == {}
    database.add([row(us=1.5, when="2026-11-25"), row("other", "mm")])
    before = database.digest()
    database.add([row(decisions={}, when="2026-11-26T10:00")])
    found = Database(database.path).find("k")
    assert found is not None and found.decisions == {} and database.digest() != before
    assert database.forget("soft") == 1 and [*database.rows()] == ["other"]
    with database.path.open("a") as file:
        file.write('{"key": "torn')
    assert [*Database(database.path).rows()] == ["other"]


def test_files_merge() -> None:
    old, new = row(when="2026-11-25"), row(us=0.5, when="2026-11-26")
    assert latest([new, old]) == latest([old, new]) == {"k": new}
    with pytest.raises(WeftError, match=r"nowhere.jsonl: No such file"):
        read_rows(Path("nowhere.jsonl"))


def test_a_key_is_for_a_structure_and_a_machine() -> None:
    def named(value: torch.Tensor) -> torch.Tensor:
        return torch.softmax(value, -1)

    keys = []
    for f, shape in ((softmax, (64, 512)), (named, (64, 512)), (softmax, (64, 256))):
        compiled = weft.compile(f, target="cpu")
        compiled(torch.ones(shape))
        keys.append(kernel_key(loop_kernel(compiled), find_target("cpu")))
    assert keys[0] == keys[1] != keys[2]
    assert kernel_key(loop_kernel(compiled), find_target("cpu:plain")) != keys[2]


def test_a_program_is_tuned_at_its_first_call(short: Settings) -> None:
    f = weft.compile(softmax, target="cpu", tune="now")
    torch.testing.assert_close(f(X), softmax(X))
    torch.testing.assert_close(f(X), softmax(X))
    assert short.rows and all(r.us > 0 and r.target == "cpu" for r in short.rows)
    found = tuner.database().rows()
    assert {r.key for r in short.rows} == {*found}
    count = len(short.rows)
    again = weft.compile(softmax, target="cpu", tune="now")
    torch.testing.assert_close(again(X), softmax(X))
    assert len(short.rows) == count  # nothing is measured twice


def test_what_is_known_is_taken_unless_it_is_not_asked_for() -> None:
    default = weft.compile(softmax, target="cpu")
    default(X)
    kernel = loop_kernel(default)
    key = kernel_key(kernel, find_target("cpu"))
    tuner.database().add([row(key, decisions={"vectors": "1", "gone": "3"})])
    line = f"{kernel.name}.vectors = 1 "
    known, off = (
        weft.compile(softmax, target="cpu"),
        weft.compile(softmax, target="cpu", tune="off"),
    )
    torch.testing.assert_close(known(X), softmax(X))
    off(X)
    assert line in known.ir("schedule")
    assert line not in off.ir("schedule") and off.ir("c") == default.ir("c") != known.ir("c")
    asked = weft.compile(softmax, target="cpu", schedule=f"{kernel.name}.vectors = 2")
    asked(X)
    assert f"{kernel.name}.vectors = 2 " in asked.ir("schedule")


def test_candidates_that_cannot_be_built_or_priced_are_left_out(tmp_path: Path) -> None:
    f = weft.compile(softmax, target="cpu")
    f(X)
    (levels,) = [p.artifact.levels() for p in weft.driver.compilation(f).programs]
    text = weft.text.print_program(levels.made["loop"])
    told: list[str] = []
    request = {"target": "cpu", "narrows": False}
    bench = tuner._Bench(tmp_path, text, [X], request, told.append)  # pyright: ignore[reportPrivateUsage]
    kernel = levels.unique.program.kernels[0].name
    good, bad = bench.build([{}, {kernel: {"vectors": "77"}}])
    assert good is not None and bad is None
    bench.child.process.kill()  # as a candidate that crashes would
    other = bench.build([{kernel: {"vectors": "1"}}, {}])
    assert all(other) and not told
    times = bench.times([good.number])
    assert times[0][kernel] > 0
    bench.child.process.kill()
    bench.child.process.wait()
    assert bench.price([{}]) == [None] and "no price, and please report it" in told[0]
    assert bench.build([{}])[0] is not None  # by another child
    bench.close()


def test_the_command(own_cache: Path) -> None:
    def weft_tune(*arguments: str) -> str:
        made = CliRunner().invoke(app, ["tune", *arguments], catch_exceptions=False)
        assert made.exit_code == 0
        return made.output

    program = ("-c", "torch.softmax(torch.randn(64, 512), -1)", "--seconds", "1")
    assert "kernels are faster: all take" in weft_tune(*program)
    assert "nothing new to tune" in weft_tune(*program)
    rows = json.loads(weft_tune("--show", "--json"))
    assert rows and rows[0]["default_us"] > 0
    assert "decisions" in weft_tune("--show")
    file = own_cache / "rows.jsonl"
    assert f"{len(rows)} rows written" in weft_tune("--export", str(file))
    assert f"{len(rows)} rows forgotten" in weft_tune("--forget", "")
    assert f"{len(rows)} of {len(rows)} rows" in weft_tune("--import", str(file))


def test_random_draws_are_the_same_for_every_candidate(short: Settings) -> None:
    def drop(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(x, 0.5) * 2

    told: list[str] = []
    short.tell = told.append
    weft.compile(drop, target="cpu", tune="now")(X)
    assert short.rows and not any("left out" in line for line in told)


def test_results_that_differ_are_wrong() -> None:
    one = torch.tensor([1.0, float("nan"), float("inf"), 100.0])
    assert differ(one, one + 1e-4) == "" and differ(one.long(), one.long()) == ""
    assert differ(one, one + torch.tensor([0.1, 0, 0, 0])).startswith("results differ: ")
    assert differ(torch.ones(2).long(), torch.zeros(2).long()) == "other integers than by default"
    assert differ(torch.tensor([1.0]), torch.tensor([float("nan")])) != ""
    assert differ(3, 4) == "4 instead of 3" and differ(3, 3) == ""


def test_what_cannot_run_here_is_not_tuned(short: Settings) -> None:
    f = weft.compile(softmax, target="cuda:sm_90a", tune="now")
    with pytest.raises(WeftError, match="need tensors on a CUDA device"):
        f(X)
    simulated = weft.compile(softmax, target="cuda:sm_90a", tune="now", simulate=True)
    torch.testing.assert_close(simulated(X[:2]), softmax(X[:2]))
    assert not short.rows


def test_a_program_whose_child_fails_runs_untuned(
    short: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise ChildError("worker: its process ended")

    monkeypatch.setattr(tuner, "Child", broken)
    told: list[str] = []
    short.tell = told.append
    f = weft.compile(softmax, target="cpu", tune="now")
    with caplog.at_level("WARNING"):
        torch.testing.assert_close(f(X), softmax(X))
    assert told[-1] == "not tuned: worker: its process ended" and "is not tuned" in caplog.text


def test_what_took_little_of_one_program_is_tuned_in_another() -> None:
    small, large = row(tried=0, small=True, default_us=1.0), row(tried=9, default_us=99.0)
    untried = tuner._untried  # pyright: ignore[reportPrivateUsage]
    assert untried({"small": small, "large": large}) == []
    assert untried({"small": small}) == ["small"]
    assert untried({"small": small, "new": None}) == ["small", "new"]
    assert untried({"large": row(tried=0, default_us=99.0)}) == []  # nothing else to try


def test_prices_of_alike_kernels_count_as_the_compiler_unites_them(tmp_path: Path) -> None:
    """Of any size, kernels that read other parts of an input are two structures."""

    def two(x: torch.Tensor, y: torch.Tensor) -> Any:
        return x[:, 3:67].softmax(1) @ y, x[:, 70:134].softmax(1) @ y

    counts: list[int] = []
    for dynamic in (False, True):
        inputs = [torch.randn(40, 150), torch.randn(64, 64)]
        f = weft.compile(two, target="cpu", dynamic=dynamic, tune="off")
        f.prepare(*inputs)
        (levels,) = [p.artifact.levels() for p in weft.driver.compilation(f).programs]
        (tmp_path / "program").write_text(weft.text.print_program(levels.made["loop"]))
        torch.save(inputs, tmp_path / "inputs")
        session = Session()
        session.load(str(tmp_path / "program"), str(tmp_path / "inputs"), "cpu", False)
        assert {*session.alike} == {k.name for k in levels.unique.program.kernels}
        counts.append(len(session.alike))
    assert counts[0] < counts[1]
