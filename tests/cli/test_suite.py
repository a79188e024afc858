"""`weft bench cpu`: its table and figures from made-up measurements, and one tiny real run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from weft.cli import hot_calls, peers, suite, suite_text
from weft.cli.bench import Bench, Measurement
from weft.cli.check import Verdict
from weft.cli.habits import Habits
from weft.cli.hot_calls import HotCalls
from weft.cli.limits import Limits, Work
from weft.cli.main import main
from weft.cli.output import show
from weft.cli.program import Source
from weft.cli.suite import BEST, Results, Row, Settings, chosen, ranks, run, spearman, trouble
from weft.cli.suite_text import suite_json, suite_table, summary_lines
from weft.cli.workloads import WORKLOADS, Workload
from weft.core.errors import SourceError

LIMITS = Limits(2, 60.0, 100.0, 0.0, 0.0, {1 << 20: 10.0})
GOOD = Verdict(1e-7, 1e-6)
ALL = ("eager", "inductor", "openvino", "weft", "weft-dynamo")


def row(name: str, predicted: float = 1.0, **ms: float | None) -> Row:
    """Times by backend; None is a backend that failed."""
    found = {
        b: Measurement(b, t, 0.5, GOOD, predicted_us=predicted)
        if t is not None
        else Measurement(b, failure="it cannot")
        for b, t in ((b.replace("_", "-"), t) for b, t in ms.items())
    }
    return Row(name, Workload("group", "torch.ones(1)"), Work(10**8, 8), found)


ROWS = [
    row("first", 5.0, eager=4.0, inductor=2.0, openvino=1.0, weft=2.0, weft_dynamo=4.0),
    row("second", 6.0, eager=8.0, inductor=4.0, openvino=None, weft=2.0, weft_dynamo=4.0),
    row("third", 1.0, eager=8.0, inductor=4.0, openvino=None, weft=1.0, weft_dynamo=4.0),
]
RESULTS = Results(Settings("cpu", ALL), 2, {}, LIMITS, ROWS)


def test_figures_of_a_row() -> None:
    first, second, _ = ROWS
    assert (first.best_peer, first.ms(BEST), first.ratio("weft", BEST)) == ("openvino", 1.0, 0.5)
    assert (second.best_peer, second.ratio("weft", BEST)) == ("inductor", 2.0)
    assert second.ratio("weft", "openvino") is None
    assert RESULTS.percent(first, "weft") == pytest.approx(50.0)  # 1 ms at 100 GFLOP/s


def test_figures_of_the_suite() -> None:
    assert RESULTS.geomean("weft", BEST) == pytest.approx((0.5 * 2 * 4) ** (1 / 3))
    assert RESULTS.geomean("weft", "eager") == pytest.approx((2 * 4 * 8) ** (1 / 3))
    assert RESULTS.behind("weft", BEST, 0.9) == ["first"]
    assert RESULTS.behind("weft", "inductor", 1.0) == []
    assert RESULTS.rank_correlation == pytest.approx(ranks_of(5, 6, 1, to=(2, 2, 1)))


def ranks_of(*left: float, to: tuple[float, ...]) -> float | None:
    return spearman(left, to)


def test_ranks_and_their_correlation() -> None:
    assert list(ranks([3.0, 1.0, 2.0, 2.0])) == [4.0, 1.0, 2.5, 2.5]
    assert spearman([1, 2, 3], [10, 20, 500]) == pytest.approx(1.0)
    assert spearman([1, 2, 3], [3, 2, 1]) == pytest.approx(-1.0)
    assert spearman([1, 2], [1, 2]) is None and spearman([1, 2, 3], [5, 5, 5]) is None


def test_what_computes_in_less_than_float32_does_not_count() -> None:
    near, far = Verdict(5e-5, 1e-6), Verdict(5e-3, 1e-6)
    assert trouble(Measurement("openvino", 1.0, verdict=near)) is None
    assert trouble(Measurement("weft", 1.0, verdict=near)) is not None
    bad = Measurement("openvino", 0.1, verdict=far)
    assert trouble(bad) == "its relative error is 5.0e-03, the limit 1.0e-06"
    assert replace(ROWS[0], measurements={**ROWS[0].measurements, "openvino": bad}).ms(BEST) == 2.0


def test_table_and_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    show(suite_table(RESULTS), *summary_lines(RESULTS))
    out = capsys.readouterr().out
    (line,) = [line for line in out.splitlines() if line.split()[:1] == ["second"]]
    assert line.split() == [
        "second", "8.00", "4.00", "-", "2.00", "4.00",
        "inductor", "2.00", "4.00", "2.00", "50", "1.0e-07", "ok",
    ]  # fmt: skip
    for part in (
        "times as fast (geometric mean): 4 eager, 2 inductor, 0.5 openvino, 1.59 best peer",
        "below 0.9 of best peer on 1: first",
        "second: openvino: it cannot",
        "60 GFLOP/s on one thread, 100 on 2",
    ):
        assert part in out


def test_json_holds_every_figure() -> None:
    facts = suite_json(RESULTS)
    assert facts["machine"]["versions"]["torch"] and facts["threads"] == 2
    assert facts["geomean"]["weft"]["openvino"] == pytest.approx(0.5)
    second = facts["workloads"]["second"]
    assert second["backends"]["openvino"]["failure"] == "it cannot"
    assert second["backends"]["weft"]["predicted_us"] == 6.0
    assert second["limit_ms"] == pytest.approx(1.0)
    assert second["ratios"]["weft-dynamo"][BEST] == 1.0


def test_disturbed_rounds_and_slow_compiles_are_said() -> None:
    def timed(name: str, seconds: float, *rounds: float) -> Row:
        found = {
            "weft": Measurement("weft", 1.0, seconds, GOOD, rounds_ms=rounds),
            "inductor": Measurement("inductor", 1.0, 1.0, GOOD, rounds_ms=(1.0, 1.0, 1.0)),
        }
        return Row(name, Workload("group", ""), Work(1, 1), found)

    rows = [timed("calm", 0.3, 1.0, 1.1, 9.0), timed("noisy", 0.7, 1.0, 1.3, 1.3)]
    results = replace(RESULTS, rows=rows)
    assert results.disturbed == ["noisy"]
    assert results.slow_to_compile("weft", "inductor", 0.5) == ["noisy"]
    lines = summary_lines(results)
    assert "not a quiet machine: rounds of 1 workloads of 2 differ by more than 20%" in lines
    assert "  weft above 0.5 of inductor on 1: noisy" in lines
    assert suite_json(results)["median_compile_seconds"]["weft"] == 0.5


def test_calls_threads_and_memory_are_said() -> None:
    def needs(name: str, mine: int | None) -> Row:
        found = {b: Measurement(b, 1.0, 1.0, GOOD, peak_bytes=n)
                 for b, n in (("weft", mine), ("eager", 2 << 20))}  # fmt: skip
        return Row(name, Workload("group", ""), Work(1, 1), found)

    rows = [needs("lean", 1 << 20), needs("fat", 4 << 20), needs("unknown", None)]
    results = replace(RESULTS, rows=rows, habits=Habits(0.1, 2.0, 8.0, 4.0, 1.0, 1.1))
    lines = summary_lines(results)
    assert "a call needs more memory than eager's on 1: fat" in lines
    assert "a call of 16x16: 2.00 us, an empty one of C 0.10" in lines
    assert any("8.00 ms on one thread, 4.00 on 2" in line for line in lines)
    facts = suite_json(results)
    assert facts["habits"]["call_us"] == 2.0 and facts["more_memory_than_eager"] == ["fat"]


def test_hot_calls_are_said_beside_the_others() -> None:
    calls = {
        "eager": HotCalls(1.0, 200.0, 1.0, 1.0),
        "inductor": HotCalls(10.0, 50.0, 30.0, 10.0),
        "weft": HotCalls(3.0, 5.0, 4.4, 4.0),
    }
    results = replace(RESULTS, hot_calls=calls)
    lines = summary_lines(results)
    said = "a function of two tensors, us a call: 1.00 eager, 10.00 inductor, 3.00 weft (goal 4)"
    assert said in lines and "  weft takes 3.00 of eager, 0.30 of inductor" in lines
    assert "  in turn, of each by itself: 1.00 eager, 3.00 inductor, 1.10 weft" in lines
    facts = suite_json(results)["hot_calls"]
    assert facts["weft"]["module_us"] == 5.0 and facts["eager"]["ratios"] == {}
    assert facts["weft"]["ratios"]["inductor"]["module_us"] == pytest.approx(0.1)
    assert facts["weft"]["alternating_share"] == pytest.approx(1.1)


def test_hot_calls_of_eager() -> None:
    compiled: list[str] = []

    def compile_none(source: Source) -> Any:
        compiled.append(source.title)
        return source.callable

    calls = hot_calls.measure(compile_none)
    assert compiled == ["function", "module", "alternating"]
    assert calls.module_us > 10 * calls.function_us  # it makes 80 calls


def test_only_chooses_by_name_or_group() -> None:
    assert set(chosen("^softmax 28")) == {"softmax 28x512x512"}
    assert {w.group for w in chosen("pooling").values()} == {"pooling"}
    assert chosen(None) == WORKLOADS
    with pytest.raises(SourceError, match="finds none of: RMSNorm"):
        chosen("no such thing")
    with pytest.raises(SourceError, match="no regular expression"):
        chosen("(")


def test_a_missing_peer_is_said_aloud(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(peers.NEEDS, "openvino", ("no_such_module",))
    monkeypatch.setattr(suite, "measure", lambda threads: LIMITS)
    monkeypatch.setattr(suite, "chosen", lambda only, device: {})
    monkeypatch.setattr(suite, "hot_calls_of", lambda *_: {})  # a process more
    said: list[str] = []
    results = run(Settings("cpu", ("eager", "openvino")), said.append)
    why = "no_such_module not installed (pip install 'weft[bench]')"
    assert f"openvino is left out: {why}" in said
    assert f"openvino is left out: {why}" in summary_lines(results)
    assert results.backends == ["eager"] and suite_json(results)["left_out"] == {"openvino": why}
    with pytest.raises(SourceError, match="no backend is left"):
        run(Settings("cpu", ("openvino",)))


def test_a_workload_that_does_not_load_is_a_row() -> None:
    bench = Bench(["eager"])
    workload = Workload("group", "import no_such_module\ntorch.ones(1)")
    found = suite.measured(bench, "name", workload, Settings("cpu", ("eager",)))
    assert found.work is None and found.ms("eager") is None
    assert "no_such_module" in (found.measurements["eager"].failure or "")
    assert RESULTS.percent(found, "eager") is None


def test_a_real_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "result.json"
    arguments = ["--only", "call overhead", "--backends", "eager,weft,weft-dynamo"]
    arguments += ["--threads", "1", "--seconds", "0.01", "--rounds", "1", "--json", str(path)]
    with pytest.raises(SystemExit) as caught:
        main(["bench", "cpu", *arguments])
    assert caught.value.code == 0
    printed = capsys.readouterr()
    assert "1/1 call overhead 16x16" in printed.err and "best peer" in printed.out
    facts = json.loads(path.read_text())
    (row,) = facts["workloads"].values()
    assert facts["threads"] == 1 and facts["passed"]
    assert all(found["ms"] > 0 for found in row["backends"].values())
    assert row["backends"]["weft"]["kernels"] == 1 and row["backends"]["weft"]["predicted_us"] > 0
    assert facts["hot_calls"].keys() == row["backends"].keys()
    assert all(calls["module_us"] > 0 for calls in facts["hot_calls"].values())


def test_a_device_in_the_place_of_the_cpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    backends = ("eager", "inductor", "inductor-max-autotune", "weft")
    ours = [Measurement("weft", 2.0, 0.5, GOOD), Measurement("weft", 1.0, 0.5, GOOD)]
    rows = [
        Row(
            f"row {i}",
            Workload("group", ""),
            Work(10**8, 8, bf16=i == 1),
            {
                "eager": Measurement("eager", 3.0, 0.1, GOOD),
                "inductor": Measurement("inductor", 2.0, 0.1, GOOD),
                "inductor-max-autotune": Measurement("inductor-max-autotune", 1.5, 9.0, GOOD),
                "weft": mine,
            },
        )
        for i, mine in enumerate(ours)
    ]
    limits = Limits(1, 100.0, 100.0, 400.0, 400.0, {1 << 20: 10.0})
    results = Results(Settings("cuda", backends), 16, {}, limits, rows, not_begun=["later"])
    assert results.geomean("weft", BEST) == pytest.approx((1.5 / 2 * 1.5) ** 0.5)
    assert [results.percent(row, "weft") for row in rows] == pytest.approx([50.0, 25.0])
    monkeypatch.setattr(suite_text, "gpu", lambda: {"gpu": "a board", "driver": 13000})
    facts = suite_json(results)
    assert facts["device"] == "cuda" and facts["machine"]["gpu"] == "a board"
    assert facts["machine"]["commit"] and facts["not_begun"] == ["later"]
    assert facts["below_0.8_of_best_peer"] == {"weft": ["row 0"]}
    ratios = facts["workloads"]["row 1"]["ratios"]["weft"]
    assert ratios == {"eager": 3.0, "inductor": 2.0, "inductor-max-autotune": 1.5, BEST: 1.5}
    show(suite_table(results), *summary_lines(results))
    printed = capsys.readouterr().out
    assert "caches cold" in printed and "threads" not in printed
    assert "cuBLAS 100 GFLOP/s in f32, 400 in bf16" in printed
    assert "no time was left for 1: later" in printed


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_device_the_bench_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["bench", "cuda"])
    assert caught.value.code == 2
    told = "weft: weft bench cuda needs a CUDA device, and PyTorch finds none here\n"
    assert capsys.readouterr().err == told


def test_minutes_end_the_bench(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "measure", lambda threads: LIMITS)
    monkeypatch.setattr(suite, "hot_calls_of", lambda *_: {})  # a process more
    results = run(Settings("cpu", ("eager",), "relu|tanh", minutes=0.0))
    assert not results.rows and len(results.not_begun) > 1
