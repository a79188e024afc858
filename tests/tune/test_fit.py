"""Rates fitted to kernels that were timed: found again, near their start, kept only if better."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import weft
from weft.cli import calibrate
from weft.cli.main import app, main
from weft.cli.suite_text import machine
from weft.config import config
from weft.scalar.nest import Kernel
from weft.targets.cpu import CPUS
from weft.tune.price import rates as rates_file
from weft.tune.price.cpu import kernel_us
from weft.tune.price.fit import FACTOR, Sample, fit, solved
from weft.tune.price.rates import Rates, default_rates

TARGET = CPUS["avx512"]
START = default_rates(TARGET)
WORKLOAD = "call overhead 16x16"


@cache
def kernels() -> tuple[Kernel, ...]:
    found: list[Kernel] = []
    for f in (torch.exp, lambda x: x.sum(1)):
        for shape in ((256, 256), (512, 2048), (2048, 8192)):
            made = weft.compile(f, target="cpu:avx512", tune="off", dynamic=False)
            made.prepare(torch.empty(shape))
            (part,) = weft.driver.compilation(made).programs
            found += part.artifact.levels().made["tile"].kernels
    return tuple(found)


def timed(rates: Rates, *factors: float) -> list[Sample]:
    """Kernels that take what such rates say, times factors in turn; each its own workload."""
    times = [kernel_us(k, TARGET, rates) for k in kernels()]
    times = [us * factors[i % len(factors)] for i, us in enumerate(times)]
    return [Sample(str(i), k, us) for i, (k, us) in enumerate(zip(kernels(), times, strict=True))]


def test_other_rates_are_found_from_times() -> None:
    truth = replace(START, memory_all=30.0, step=0.4)
    found = fit(timed(truth, 1.0), START, TARGET)
    assert found.kept and found.after < 0.75 * found.before
    assert found.rates.memory_all < 45.0 and found.rates.step > 0.3


def test_times_without_a_reason_keep_the_rates() -> None:
    found = fit(timed(START, 1.5, 1 / 1.5, 1 / 1.5, 1.5, 1.0), START, TARGET)
    assert not found.kept and found.rates == START and found.after > 0.9 * found.before


def test_a_rate_stays_near_its_start() -> None:
    found = solved(timed(START, 1000.0), START, TARGET)
    ratios = [n / asdict(START)[name] for name, n in asdict(found).items()]
    assert max(ratios) <= FACTOR * 1.001 and min(ratios) >= 0.999 / FACTOR and max(ratios) > 2


def test_doctor_fits_rates_to_a_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates_file, "config", replace(config, cache=tmp_path))
    rows = [{"workload": WORKLOAD, "kernel": "relu", "measured_us": 0.1}]
    study = {"machine": machine(on_cpu=True), "kernels": rows}
    (sample,) = calibrate.samples_of(calibrate.times_in(json.dumps(study), print), print)
    assert sample.kernel.name == "relu" and sample.us == 0.1
    file = tmp_path / "study.json"
    file.write_text(json.dumps(study))
    made = CliRunner().invoke(app, ["doctor", "--fit", str(file)])
    assert made.exit_code == 0 and "no better on what was held out" in made.output
    assert not [*tmp_path.glob("rates-*.json")]  # one workload: nothing could be held out


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"machine": {**machine(True), "cpu": "another"}}, "figures of another with"),
        ({"machine": {**machine(True), "processors": 512}}, "with 512, this machine"),
        ({"machine": None}, "is not what weft bench cpu --model --json writes"),
        ({"kernels": [1]}, "is not what weft bench cpu --model --json writes"),
        ({"kernels": []}, "measure here"),
        ({"kernels": [{"workload": WORKLOAD, "kernel": "relu", "measured_us": 0}]}, "took 0 us"),
        ({"kernels": [{"workload": WORKLOAD, "kernel": "relu", "measured_us": "a"}]}, "TypeError"),
    ],
)
def test_figures_that_cannot_be_fitted_to(
    wrong: dict[str, Any], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"workload": WORKLOAD, "kernel": "relu", "measured_us": 0.1}]
    file = tmp_path / "study.json"
    file.write_text(json.dumps({"machine": machine(on_cpu=True), "kernels": rows, **wrong}))
    with pytest.raises(SystemExit):
        main(["doctor", "--fit", str(file)])
    assert told in " ".join(capsys.readouterr().err.split())


def test_figures_of_another_commit_are_told() -> None:
    rows = [{"workload": WORKLOAD, "kernel": "relu", "measured_us": 0.1}]
    facts, told = {**machine(on_cpu=True), "commit": "abc"}, list[str]()
    text = json.dumps({"machine": facts, "kernels": rows})
    assert calibrate.times_in(text, told.append) == {WORKLOAD: {"relu": 0.1}}
    assert "commit abc" in told[0]
