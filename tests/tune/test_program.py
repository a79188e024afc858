"""Tuning which kernels a program has: searched as one kernel, kept, and taken later."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import weft
from weft.cli import tuning
from weft.cli.main import app
from weft.cli.program import SourceSpec
from weft.cli.tuning import summary
from weft.options import Options, find_target
from weft.scalar.nest import Kernel
from weft.text import print_program
from weft.tune import database, predicted, tuner
from weft.tune.database import PRICING, Row, digest_of, kernel_key, program_key
from weft.tune.price.scheduled import Fusing
from weft.tune.tuner import SETTINGS, Settings

X = torch.randn(64, 512, generator=torch.Generator().manual_seed(0))
GPU = "cuda:sm_90a"
TWICE = "(lambda x: x.exp().sum(0) / x.sum())(torch.randn(64, 512))"


@pytest.fixture
def settings() -> Iterator[Settings]:
    made = Settings(seconds=2)
    token = SETTINGS.set(made)
    yield made
    SETTINGS.reset(token)


def twice(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = torch.tanh(x) * 2
    return y + 1, (y * x)[:, :300].sum(0)


def compiled(target: str = "cpu", **facts: Any) -> Any:
    f = weft.compile(twice, target=target, **facts)
    f.prepare(X)
    return f


def levels_of(target: str = "cpu") -> Any:
    (levels,) = [p.artifact.levels() for p in weft.driver.compilation(compiled(target)).programs]
    return levels


def kernels(f: Any) -> int:
    return len(weft.report(f).kernels)


def undone(target: str = "cpu") -> dict[str, str]:
    """Decisions that undo every fusion of the default."""
    levels = levels_of(target)
    met = levels.chooser.program.met
    return {
        n: "no" for n, c in met.items() if c.taken == "yes" and n.startswith(("inline", "join"))
    }


def known(target: str, decisions: dict[str, str], **facts: Any) -> Row:
    levels = levels_of(target)
    key = program_key(levels.made["tensor"], find_target(target))
    given = {"default_us": 2.0, "us": 1.0, "tried": 3, "when": "2026-11-26", "whole": True}
    row = Row(key, levels.chooser.name, target, decisions, **{**given, **facts})
    tuner.database().add([row])
    return row


def test_what_is_known_of_a_program_is_taken_with_no_measurement() -> None:
    default, decisions = kernels(compiled()), undone()
    assert decisions
    row = known("cpu", decisions)
    fused, off, none = compiled(), compiled(tune="off"), compiled(fuse="none")
    assert kernels(fused) > default == kernels(off) and kernels(none) >= kernels(fused)
    (name, _), *_ = decisions.items()
    assert f"{row.kernel}.{name} = no " in fused.ir("schedule")
    for mine, eager in zip(fused(X), twice(X), strict=True):
        torch.testing.assert_close(mine, eager)
    assert tuner.database().forget("program") == 1 and kernels(compiled()) == default


def test_a_key_is_for_a_program_its_sizes_and_its_machine() -> None:
    graph = levels_of().made["tensor"]
    again = weft.compile(twice, target="cpu", dynamic=False)
    again.prepare(X[:32])
    (other,) = [p.artifact.levels() for p in weft.driver.compilation(again).programs]
    keys = {
        program_key(graph, find_target("cpu")),
        program_key(replace(graph, name="other"), find_target("cpu")),  # titles do not count
        program_key(other.made["tensor"], find_target("cpu")),
        program_key(graph, find_target("cpu:plain")),
    }
    assert len(keys) == 3


def test_declined_fusions_are_candidates() -> None:
    """With all taken back, each is offered again, and asking for it gives the default's kernels."""
    levels, decisions = levels_of(), undone()
    fusing = Fusing(levels.made["tensor"], "cpu", levels.known, "off")
    default, apart = fusing({}), fusing(decisions)
    assert default is not None and apart is not None and apart.text != default.text
    assert default.us != apart.us > 0
    assert {n: apart.options[n] for n in decisions} == dict.fromkeys(decisions, ("no", "yes"))
    assert fusing({"inline.nothing": "yes"}) is None  # no such choice
    before = len(fusing.prices)
    assert fusing({}) == default and len(fusing.prices) == before  # nothing is priced twice


def test_a_declined_fusion_is_told_and_can_be_known() -> None:
    def pairs(x: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(x).exp().sin()
        return (y[:, None] + y[None]).amax(-1)

    f = weft.compile(pairs, target="cpu")
    f.prepare(X)
    (levels,) = [p.artifact.levels() for p in weft.driver.compilation(f).programs]
    declined = levels.chooser.program.declined
    fusing = Fusing(levels.made["tensor"], "cpu", levels.known, "off")
    asked = [fusing({name: "yes"}) for name in declined]
    default = fusing({})
    assert default is not None and declined
    assert any(one is not None and one.text != default.text for one in asked)


def test_a_child_prices_builds_and_times_whole_programs(tmp_path: Path) -> None:
    levels = levels_of()
    text, name, told = print_program(levels.made["loop"]), levels.chooser.name, list[str]()
    graph = tmp_path / "graph.txt"
    graph.write_text(print_program(levels.made["tensor"]))
    request = {"target": "cpu", "narrows": False, "graph": str(graph), "constants": []}
    bench = tuner._Bench(tmp_path, text, [X], request, told.append)  # pyright: ignore[reportPrivateUsage]
    with closing(bench):
        default, other, none = bench.price(
            [{name: {}}, {name: undone()}, {name: {"inline.0": "yes"}}]
        )
        assert default is not None and other is not None and none is None
        assert default.prices[name] != other.prices[name]
        first, second = bench.build([{}, {name: undone()}])
        assert first is not None and second is not None and not told
        assert first.texts[name] != second.texts[name] and {*first.met} == {name}
        times = bench.times([first.number, second.number])
        assert all({*row} == {name} and row[name] > 0 for row in times)


def test_a_better_program_is_kept_and_its_kernels_are_tuned(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the search finds of the program decides which kernels it then searches."""
    decisions, searched = undone(), list[list[str]]()

    def found(bench: Any, wanted: Any, seconds: float, tell: Any, width: int = 4) -> Any:
        searched.append([*wanted])
        best = decisions if width == 1 else {}
        return {name: tuner.Found(best, 2.0, 1.0 if best else 2.0, 5) for name in wanted}

    monkeypatch.setattr(tuner, "search", found)
    default = kernels(compiled())
    f = weft.compile(twice, target="cpu", tune="now")
    f(X)
    program, *others = settings.rows
    assert program.whole and program.decisions == decisions and not program.predicted
    assert searched[0] == [program.kernel] and [*searched[1]] == [r.kernel for r in others]
    assert kernels(f) > default == kernels(compiled(tune="off"))
    assert summary(settings.rows) == (
        "1 of 1 programs are faster: all take 0.50 of their time; "
        f"0 of {len(others)} kernels are faster: all take 1.00 of their time"
    )
    weft.compile(twice, target="cpu", tune="now")(X)
    assert len(searched) == 2  # all is known


def test_without_a_device_the_exact_price_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the kernels of the default are dear: one fusion other than it has is better."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    levels, settings, machine = levels_of(GPU), Settings(30), find_target(GPU)
    default = {kernel_key(k, machine) for k in levels.made["loop"].kernels}

    def dear(self: Fusing, kernel: Kernel) -> str:
        key = kernel_key(kernel, machine)
        self.prices[key] = 100.0 if key in default else 1.0
        return key

    monkeypatch.setattr(Fusing, "priced", dear)
    changed = predicted.fuse(levels, GPU, settings)
    (row,) = settings.rows
    found = {kernel_key(k, machine) for k in changed.made["loop"].kernels}
    assert row.predicted and row.whole and row.price == digest_of(PRICING)
    assert row.decisions and row.default_us == 100.0 * len(default)
    assert row.us == sum(100.0 if key in default else 1.0 for key in found) < row.default_us
    assert predicted.fuse(levels, GPU, settings) is levels and len(settings.rows) == 1


def turned(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1).t().contiguous()


@pytest.mark.parametrize("function", [turned, lambda x: x.relu().relu()])
def test_a_program_whose_last_call_is_simplified_away(function: Any, settings: Settings) -> None:
    """The child, which has the tensor level's graph, names the program as its parent does."""
    f = weft.compile(function, target="cpu", tune="now")
    torch.testing.assert_close(f(X), function(X))
    (levels,) = [p.artifact.levels() for p in weft.driver.compilation(f).programs]
    fusing = Fusing(levels.made["tensor"], "cpu", levels.known, "off")
    assert fusing.name == levels.chooser.name
    assert [r.kernel for r in settings.rows if not r.whole]


def test_fusion_that_was_chosen_otherwise_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    rows = tuning.tune(SourceSpec(TWICE), Options(GPU, fuse="none"), 2.0, lambda line: None)
    assert rows and not any(row.whole for row in rows)


def test_what_an_older_price_predicted_is_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    decisions = undone(GPU) or {"inline.t0": "no"}
    default = kernels(compiled(GPU))
    row = known(GPU, decisions, predicted=True, price="of another version")
    assert tuner.database().find(row.key) is None and kernels(compiled(GPU)) == default
    digest = tuner.database().digest()
    fresh = replace(row, price=digest_of(PRICING), when="2026-11-27")
    tuner.database().add([fresh])
    assert tuner.database().find(row.key) == fresh and tuner.database().digest() != digest
    assert not database.is_fresh(replace(row, price="")) and database.is_fresh(
        replace(row, price="", predicted=False)
    )


def test_rows_of_programs_are_shown_exported_and_forgotten(own_cache: Path) -> None:
    def run(*arguments: str) -> str:
        made = CliRunner().invoke(app, ["tune", *arguments], catch_exceptions=False)
        assert made.exit_code == 0
        return made.output

    row = known("cpu", {"inline.y": "no"})
    assert row.kernel[:9] in run("--show")
    file = own_cache / "rows.jsonl"
    assert "1 rows written" in run("--export", str(file))
    assert "1 rows forgotten" in run("--forget", row.kernel)
    assert "1 of 1 rows" in run("--import", str(file))
    assert tuner.database().find(row.key) == row
