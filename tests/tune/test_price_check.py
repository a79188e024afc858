"""`weft bench cpu --model` and `weft doctor --calibrate`: figures, and one small run of each."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from weft.cli import calibrate, price_check
from weft.cli.calibrate import PROBES, Measured, Probe, fit, rates_table, solve
from weft.cli.main import app, main
from weft.cli.output import show
from weft.cli.price_check import (
    Candidate,
    KernelPrices,
    Study,
    check_prices,
    draw,
    prices_within,
    study_json,
    study_lines,
    study_tables,
)
from weft.cli.workloads import WORKLOADS
from weft.config import config
from weft.core.errors import WeftError
from weft.scalar.nest import Kernel
from weft.targets.cpu import CPU, CPUS
from weft.tune.price import rates as rates_file
from weft.tune.price.rates import Rates, default_rates

MET = {"vectors": (["4", "1", "2"], "4"), "threads": (["yes", "no"], "yes")}


def tried(name: str, *pairs: tuple[float, float]) -> KernelPrices:
    """A kernel with candidates of such prices and times."""
    candidates = tuple(Candidate({"vectors": str(i)}, *pair) for i, pair in enumerate(pairs))
    return KernelPrices(name, name, *pairs[0], candidates)


def test_how_well_candidates_are_ordered() -> None:
    right = tried("right", (1.0, 2.0), (2.0, 3.0), (3.0, 9.0))
    wrong = tried("wrong", (3.0, 20.0), (2.0, 30.0), (1.0, 40.0))
    flat = tried("flat", (1.0, 100.0), (2.0, 101.0), (3.0, 102.0))
    assert (right.correlation, wrong.correlation) == (1.0, -1.0)
    assert flat.flat and flat.correlation is None and not right.flat
    near = tried("near", (1.0, 101.0), (1.01, 100.0), (2.0, 200.0), (3.0, 300.0))
    assert near.correlation == 1.0 and near.ranked(0.0, 0.0) == pytest.approx(0.8)
    noisy = replace(wrong, noise=1.0)  # it takes 20 or 40 us by chance
    assert noisy.flat and noisy.correlation is None
    constant = tried("constant", (1.0, 1.0), (1.0, 2.0), (1.0, 3.0))
    assert constant.correlation == 0.0  # a price without an order is of no use
    assert (right.needed, wrong.needed, near.needed) == ((1, 2.0), (3, 2.0), (1, 5 / 3))
    slow = tried("slow", (1.0, 1.0), (3.1, 3.0))
    assert len(slow.left_out) == 1 and slow.spared == 0.75 and not right.left_out
    assert (right.loss, wrong.loss) == (1.0, 2.0) and right.spread == 4.5
    study = Study([right, wrong, flat], {"broken": "it cannot"})
    assert study.median_within == 0.0
    assert study.correlation == pytest.approx(0.0)
    lines = "\n".join(study_lines(study))
    assert "of 1 more all candidates take the same time" in lines and "it cannot" in lines
    assert [k["flat"] for k in study_json(study)["kernels"]] == [False, False, True]


def test_tables(capsys: pytest.CaptureFixture[str]) -> None:
    study = Study([tried("right", (1.0, 2.0), (2.0, 3.0), (3.0, 9.0))])
    show(*study_tables(study))
    out = capsys.readouterr().out
    assert "0.50" in out and "4.50" in out and "1.00" in out


def test_decisions_differ_in_one_choice_or_two() -> None:
    found = draw(MET, random.Random(0))
    assert found == draw(MET, random.Random(0))
    assert {len(d) for d in found} == {1, 2}
    assert {"vectors": "4"} not in found and {"threads": "no"} in found
    assert len({tuple(sorted(d.items())) for d in found}) == len(found) == 5
    assert draw({"threads": (["yes"], "yes")}, random.Random(0)) == []


def test_a_small_workload_is_priced_and_measured(tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    options = ["--only", "call overhead", "--rounds", "1", "--json", str(path)]
    assert CliRunner().invoke(app, ["bench", "cpu", "--model", *options]).exit_code == 0
    (kernel,) = json.loads(path.read_text())["kernels"]
    assert kernel["workload"] == "call overhead 16x16" and kernel["predicted_us"] > 0
    assert kernel["candidates"][0]["decisions"] == {} and len(kernel["candidates"]) > 3


def test_prices_are_measured_on_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "cuda", "--model"])
    assert "weft bench --model measures on cpu" in capsys.readouterr().err


@pytest.mark.parametrize("other", [["--dynamic"], ["--seconds", "1"]])
def test_options_of_the_other_bench_are_refused(
    other: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "cpu", "--model", *other])
    assert "--model takes --only, --minutes, --rounds and --json" in capsys.readouterr().err


def test_no_workload_is_begun_after_its_minutes() -> None:
    study = check_prices(WORKLOADS, 1, print, minutes=-1.0)
    assert not study.kernels and {*study.failures.values()} == {"not begun"}
    assert f"{len(WORKLOADS)} workloads were not begun in that time" in study_lines(study)


class Restating:
    """Stands for a Bench whose program has a kernel that no call runs."""

    def price(self, schedules: Sequence[object]) -> list[object]:
        return [SimpleNamespace(prices={"map": 1.0, "mm": 2.0}, met={"mm": {}})] * len(schedules)

    def build(self, schedules: Sequence[object]) -> list[object]:
        return [SimpleNamespace(number=0, texts={"mm": ""})] * len(schedules)

    def times(self, numbers: Sequence[int]) -> list[dict[str, float]]:
        return [{"map": 0.0, "mm": 2.0}] * len(numbers)


def test_a_kernel_that_no_call_runs_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that restates bf16 as pairs of them, where a machine sums these two at a time."""
    monkeypatch.setattr(price_check, "candidates", lambda *_: iter(()))
    monkeypatch.setattr(price_check, "tried", lambda *_: {})
    (found,) = prices_within("matmul", Restating(), ["map", "mm"], 1)  # type: ignore[arg-type]
    assert (found.kernel, found.predicted_us, found.measured_us) == ("mm", 2.0, 2.0)


def test_a_workload_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it counts, also what was priced before it failed."""

    def failing(*args: object) -> Iterator[KernelPrices]:
        yield tried("softmax", (1.0, 1.0))
        raise WeftError("the default cannot be built")

    monkeypatch.setattr(price_check, "prices_within", failing)
    (name,) = [n for n in WORKLOADS if "16x16" in n]
    study = check_prices({name: WORKLOADS[name]}, 1, print)
    assert study.failures == {name: "the default cannot be built"} and not study.kernels


class Made(Measured):
    """A program whose time is made up from rates."""

    def price(self, rates: Rates, target: CPU) -> float:
        given = asdict(rates)[self.probe.rate]
        return 1e3 / given if self.probe.rate in calibrate.BANDWIDTHS else 5.0 + 1e3 * given


def test_a_rate_is_what_explains_a_time() -> None:
    target, kernels = CPUS["avx512"], tuple[Kernel, ...]()
    truth = replace(default_rates(target), fma=0.2, memory=7.0)
    for rate in ("fma", "memory"):
        probe = Probe(rate, lambda x: x, ())
        made = Made(probe, kernels, Made(probe, kernels, 0.0).price(truth, target))
        start = default_rates(target)
        assert solve(made, start, start, target) == pytest.approx(getattr(truth, rate), rel=1e-3)
        assert getattr(fit([made], target), rate) == pytest.approx(getattr(truth, rate), rel=1e-3)


@pytest.mark.parametrize("us", [1.0, 1e9])
def test_a_time_that_no_rate_explains_keeps_the_default(us: float) -> None:
    start = default_rates(CPUS["avx512"])
    made = Made(Probe("fma", lambda x: x, ()), (), us)
    assert solve(made, start, start, CPUS["avx512"]) == start.fma


def test_every_probe_is_for_a_rate() -> None:
    assert {p.rate for p in PROBES} <= {*asdict(Rates())}
    assert len({p.rate for p in PROBES}) == len(PROBES)


def test_doctor_measures_and_keeps_rates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates_file, "config", replace(config, cache=tmp_path))
    monkeypatch.setattr(calibrate, "PROBES", PROBES[:1])
    found = CliRunner().invoke(app, ["doctor", "--calibrate"])
    (path,) = tmp_path.glob("rates-*.json")
    assert found.exit_code == 0 and str(path) in found.output and "launch_us" in found.output
    assert json.loads(path.read_text())["rates"]["launch_us"] > 0
    show(rates_table(Rates(), Rates()))
