"""Tuning with no device: the beam, what it keeps, and what says that it is predicted."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import weft
from weft.cli.main import app
from weft.cli.tuning import simulated
from weft.config import config
from weft.core.errors import CompilerError, WeftError
from weft.tune import predicted, tuner
from weft.tune.database import Database, Row, latest
from weft.tune.predicted import exactly, machine_of, spills
from weft.tune.price import scheduled as scheduling
from weft.tune.price.gpu import Price
from weft.tune.price.scheduled import alone, scheduled
from weft.tune.search import Scheduled, beam
from weft.tune.tuner import Settings

TARGET = "cuda:sm_90a"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tuner, "config", replace(config, cache=tmp_path))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    return tmp_path


def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


X = torch.randn(8, 300, generator=torch.Generator().manual_seed(0))


def levels_of(function: Any = softmax, x: torch.Tensor = X) -> Any:
    f = weft.compile(function, target=TARGET, tune="off")
    f.prepare(x)
    (levels,) = [p.artifact.levels() for p in weft.driver.compilation(f).programs]
    return levels


# ---- the beam, on prices that are made up

OPTIONS = {"tile": ("a", "b", "c"), "pad": ("0", "1"), "unroll": ("yes", "no")}
COSTS = {"a": 10.0, "b": 12.0, "c": 14.0, "0": 3.0, "1": 1.0, "yes": 1.0, "no": 5.0}


class Fake:
    """A kernel with three choices; with tile b a pad of 1 saves much, which no single one does."""

    def __init__(self) -> None:
        self.built: list[dict[str, str]] = []

    def __call__(self, decisions: Mapping[str, str]) -> Scheduled | None:
        self.built.append(dict(decisions))
        taken = {name: decisions.get(name, options[0]) for name, options in OPTIONS.items()}
        if taken["tile"] == "c":
            return None  # does not fit
        us = sum(COSTS[o] for o in taken.values()) - 6 * (taken["tile"] + taken["pad"] == "b1")
        text = "same" if taken["unroll"] == "no" else str(taken)
        options = {n: (taken[n], *(o for o in OPTIONS[n] if o != taken[n])) for n in OPTIONS}
        return Scheduled(dict(decisions), options, text, us)


def test_the_beam_finds_what_only_two_decisions_together_give() -> None:
    fake = Fake()
    found = beam(fake, time.monotonic() + 60, {})
    assert found[0].decisions == {}
    assert min(found, key=lambda s: s.us).decisions == {"tile": "b", "pad": "1"}


def test_nothing_is_built_twice_and_equal_texts_are_one() -> None:
    fake = Fake()
    found = beam(fake, time.monotonic() + 60, {})
    assert len(fake.built) == len({str(sorted(d.items())) for d in fake.built})
    assert len(found) == len({s.text for s in found}) == 5
    assert [s.text for s in found].count("same") == 1


def test_no_time_leaves_the_default() -> None:
    fake = Fake()
    assert [s.decisions for s in beam(fake, 0.0, {})] == [{}] and len(fake.built) == 1
    assert beam(lambda decisions: None, time.monotonic() + 60, {}) == []


# ---- real kernels


def test_decisions_that_do_not_fit_are_no_schedule() -> None:
    (kernel,) = levels_of().unique.program.kernels
    assert scheduled(kernel, TARGET, {"gone": "3"}) is None
    made = scheduled(kernel, TARGET, {"stage_inputs": "no"})
    default = scheduled(kernel, TARGET, {})
    assert made is not None and default is not None and made.text != default.text


def test_a_pass_that_fails_is_told_and_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (kernel,) = levels_of().unique.program.kernels

    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("modulo by zero")

    monkeypatch.setattr(scheduling, "lower", broken)
    with caplog.at_level("WARNING"):
        assert scheduled(kernel, TARGET, {"stage_inputs": "no"}) is None
    assert "please report it: ZeroDivisionError" in caplog.text
    assert f"{kernel.name}.stage_inputs = no" in caplog.text


def test_a_wrong_schedule_is_found_in_the_simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    (kernel,) = levels_of().unique.program.kernels
    made = scheduled(kernel, TARGET, {"stage_inputs": "no"})
    assert made is not None
    lines = f"{kernel.name}.stage_inputs = no\n"
    assert simulated(alone(kernel), TARGET, lines, exactly(made, machine_of(TARGET))) == ""
    run = weft.cli.tuning.run_simulated

    def wrong(program: Any, target: str, schedule: str, inputs: Any) -> Any:
        return [out + bool(schedule) for out in run(program, target, schedule, inputs)]

    monkeypatch.setattr(weft.cli.tuning, "run_simulated", wrong)
    told = simulated(alone(kernel), TARGET, lines, exactly(made, machine_of(TARGET)))
    assert told.startswith("results differ")


def slower_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prices the default twice as high, so that another schedule is better."""
    real, sure = predicted.scheduled, predicted.surely_us

    def made(kernel: Any, target: str, decisions: Mapping[str, str]) -> Scheduled | None:
        found = real(kernel, target, decisions)
        if found is None or decisions:
            return found
        return replace(found, us=2 * found.us)

    def surely(schedule: Scheduled, machine: Any) -> float:
        return (1 if schedule.decisions else 2) * sure(schedule, machine)

    monkeypatch.setattr(predicted, "scheduled", made)
    monkeypatch.setattr(predicted, "surely_us", surely)


def test_what_only_a_sample_prices_as_better_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    sure = predicted.surely_us
    slower_default(monkeypatch)
    monkeypatch.setattr(predicted, "surely_us", lambda s, m: sure(s, m) + bool(s.decisions))
    (row,) = predicted.tune(levels_of(), TARGET, Settings(30), lambda *_: "")
    assert row.decisions == {} and row.us == row.default_us


def test_a_better_schedule_is_kept_checked_and_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    slower_default(monkeypatch)
    checked: list[str] = []

    def check(program: Any, target: str, schedule: str, price: Price) -> str:
        checked.append(schedule)
        return simulated(program, target, schedule, price)

    settings, levels = Settings(30), levels_of()
    (row,) = predicted.tune(levels, TARGET, settings, check)
    assert row.predicted and row.decisions and row.us < 0.98 * row.default_us and len(checked) == 1
    assert predicted.tune(levels, TARGET, settings, check) == []  # known
    cached = weft.compile(softmax, target=TARGET, simulate=True)
    torch.testing.assert_close(cached(X), softmax(X))
    name, option = next(iter(row.decisions.items()))
    assert f"{row.kernel}.{name} = {option} " in cached.ir("schedule")


def test_what_the_check_refuses_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    slower_default(monkeypatch)
    told: list[str] = []
    settings = Settings(30, told.append)
    (row,) = predicted.tune(levels_of(), TARGET, settings, lambda *_: "other results")
    assert row.decisions == {} and row.us == row.default_us
    assert any("left out: other results" in line for line in told)


def test_measured_rows_go_before_predicted_ones() -> None:
    facts = {"kernel": "softmax", "target": TARGET, "default_us": 2.0, "us": 1.0, "tried": 3}
    old = Row("k", decisions={"pad": "1"}, when="2026-01-01", **facts)
    new = Row("k", decisions={}, when="2026-02-01", predicted=True, **facts)
    assert latest([old, new]) == latest([new, old]) == {"k": old}
    untried = tuner._untried  # pyright: ignore[reportPrivateUsage]
    assert untried({"softmax": new}) == ["softmax"] and untried({"softmax": old}) == []


def test_rows_of_older_files_were_measured(tmp_path: Path) -> None:
    line = {"key": "k", "kernel": "mm", "target": "cpu", "decisions": {}, "default_us": 2.0}
    file = tmp_path / "old.jsonl"
    file.write_text(json.dumps({**line, "us": 1.0, "tried": 3, "when": "2026"}) + "\n")
    (row,) = tuner.Database(file).rows().values()
    assert not row.predicted


def run(*arguments: str) -> str:
    made = CliRunner().invoke(app, ["tune", *arguments], catch_exceptions=False)
    assert made.exit_code == 0
    return made.output


def test_the_command_without_a_device() -> None:
    program = ("-c", "torch.softmax(torch.randn(64, 512), -1)", "--target", TARGET)
    out = run(*program, "--seconds", "2")
    assert "predicted, no device" in out and "predicted to be faster" in out
    assert "nothing new to tune" in run(*program, "--seconds", "2")
    (row,) = json.loads(run("--show", "--json"))
    assert row["predicted"] is True and row["target"] == TARGET and row["tried"] > 0


def test_a_table_of_times_takes_no_other_wishes() -> None:
    with pytest.raises(WeftError, match="--predict prints a table of times"):
        run("--target", TARGET, "--predict", "--forget", "softmax")


def test_a_measured_row_is_imported_over_a_predicted_one(tmp_path: Path) -> None:
    own = Row("k", "softmax", TARGET, {}, 9.0, 8.0, 3, "2026-02-01T00:00:00", predicted=True)
    tuner.database().add([own])
    measured = replace(own, us=7.0, when="2026-01-01T00:00:00", predicted=False)
    file = tmp_path / "rows.jsonl"
    Database(file).add([measured])
    assert "1 of 1 rows" in run("--import", str(file))
    assert tuner.database().find("k") == measured
    assert "0 of 1 rows" in run("--import", str(file))


def test_a_text_that_the_compiler_refuses_does_not_hold() -> None:
    pytest.importorskip("cuda.bindings")
    with pytest.raises(CompilerError, match="NVRTC refused"):
        spills('extern "C" __global__ void k( { nonsense }', "sm_90a")


def test_a_kernel_without_time_is_searched_later() -> None:
    told: list[str] = []
    rows = predicted.tune(levels_of(), TARGET, Settings(0.0, told.append), simulated)
    assert not rows and "its time was over" in told[0]


def test_the_simulator_runs_sizes_at_their_hints() -> None:
    f = weft.compile(softmax, target=TARGET, tune="off", dynamic=True)
    f.prepare(X)
    (levels,) = [p.artifact.levels() for p in weft.driver.compilation(f).programs]
    (kernel,) = levels.unique.program.kernels
    found = scheduled(kernel, TARGET, {})
    assert (
        found is not None
        and simulated(alone(kernel), TARGET, "", exactly(found, machine_of(TARGET))) == ""
    )


def test_the_table_of_a_programs_kernels() -> None:
    out = run(
        "-c", "torch.softmax(torch.randn(4096, 4096), -1)", "--target", "cuda:sm_80", "--predict"
    )
    assert "cuda:sm_80: predicted, no device" in out
    (line,) = [line for line in out.splitlines() if line.startswith(" softmax")]
    name, kernels, us, bound, percent = line.split()
    assert (name, kernels, bound) == ("softmax", "1", "memory")
    assert 70 < float(us) < 90 and 80 <= int(percent) <= 92


@pytest.mark.parametrize("target", ["hip:gfx942", "cpu", "auto"])
def test_other_targets_have_no_exact_price(target: str) -> None:
    with pytest.raises(WeftError, match=r"--target.*cuda:sm_80, cuda:sm_90a"):
        run("-c", "torch.randn(4).relu()", "--target", target, "--predict")
