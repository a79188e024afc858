"""`weft bench cpu --quantized`: every backend computes its row's layer, from memory of its own."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from weft.cli import lowbit_bench, lowbit_layer, lowbit_peers
from weft.cli.limits import Peaks
from weft.cli.limits import peaks as measure_peaks
from weft.cli.llama import Llama, Sizes, matrices, random_blocks, write_gguf
from weft.cli.lowbit_bench import Cell, Results, Settings, copies_of, judged
from weft.cli.lowbit_layer import PHASES, ROWS, operations
from weft.cli.lowbit_peers import INT4, INT8
from weft.cli.lowbit_text import lowbit_json, lowbit_tables
from weft.cli.main import app
from weft.core.errors import SourceError, WeftError


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A layer of 128 columns instead of 2048."""
    for name, size in {"HIDDEN": 128, "INNER": 192, "HEADS": 4, "KEY_HEADS": 2, "HEAD": 32}.items():
        monkeypatch.setattr(lowbit_layer, name, size)
    importlib.import_module("torch._dynamo").reset()
    lowbit_bench.expected.cache_clear()
    with torch.no_grad():
        yield
    lowbit_bench.expected.cache_clear()


CASES = [
    ("weft", "int4", "decode"),
    ("openvino", "int4", "prefill"),
    ("onnxruntime", INT4, "prefill"),
    ("onnxruntime", INT8, "decode"),
    ("torchao", INT8, "decode"),
]


@pytest.mark.parametrize(("backend", "row", "phase"), CASES)
def test_a_backend_computes_the_layer(backend: str, row: str, phase: str) -> None:
    """Two copies of it, each with its own weights; and what it gives is judged."""
    if lowbit_peers.absent(backend, None):
        pytest.skip("it is not installed")
    calls = lowbit_peers.BUILD[backend](row)(PHASES[phase], 2)
    found, again = map(lowbit_peers.first_output, calls)
    assert found is not None and again is not None and torch.equal(found, again)
    assert judged(backend, row, phase, found).failure is None


def test_what_is_judged_wrong() -> None:
    """A peer off f32, not a number, or not rounded at all; and weft off eager on the same codes."""
    dense, eager = lowbit_bench.expected("int4")["decode"]
    for backend, found, told in (
        ("openvino", dense * 2, "wrong: its error is 1.0e\\+00, the limit"),
        ("openvino", dense * float("nan"), "wrong: its error is nan"),
        ("openvino", dense, "so its weights are not of few bits"),
        ("weft", dense, "wrong: it is .* off eager, the limit 2.0e-02"),
    ):
        failure = judged(backend, "int4", "decode", found).failure
        assert failure is not None and re.search(told, failure)
    good = judged("weft", "int4", "decode", eager)
    assert good.failure is None and good.off == 0 and (good.error or 0) > 0.01


def test_layers_in_turn_exceed_the_last_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or are as many as half of the memory holds, in all processes."""
    size = ROWS["int4"].bytes
    monkeypatch.setattr(lowbit_bench, "available_bytes", lambda: int(1000 * size))
    assert copies_of(["int4"], int(8 * size), 2, {}) == {"int4": 10}
    assert copies_of(["int4"], int(8 * size), 20, {}) == {"int4": 8}
    assert copies_of(["int4"], int(8 * size), 2, {"int4": 3}) == {"int4": 3}


def results_of(cells: dict[tuple[str, str], dict[str, Cell]], **more: Any) -> Results:
    peaks = Peaks(read=46.0, f32=200.0, bf16=400.0, int8=900.0, int8_one_thread=450.0)
    return Results(Settings(), 2, 1 << 25, peaks, {"int8": 9}, cells, **more)


def test_figures_and_goals() -> None:
    """The best peer has the same semantics and is right; percent are of what was measured."""
    wrong = Cell(failure="wrong: its error is nan, the limit 1e-2")
    decode = {
        "torchao": Cell(3.0),
        "openvino": wrong,
        "llama.cpp": Cell(1.0),
        "weft bf16": Cell(2.4),
    }
    cells = {
        ("int8", "decode"): {**decode, "weft": Cell(1.5, (1.5, 1.5, 1.0))},
        (INT8, "decode"): {"weft bf16": Cell(3.0), "weft": Cell(1.5)},
        (INT4, "decode"): {"weft bf16": Cell(4.0), "weft": Cell(1.0)},
        (INT8, "prefill"): {"weft": Cell(20.0), "weft 1 thread": Cell(30.0)},
    }
    results = results_of(cells, absent={"nnn": "not installed"})
    assert results.best_peer("int8", "decode") == "torchao"
    assert results.ratio("int8", "decode", "best peer") == 2.0
    assert results.ratio("int8", "decode", "openvino") is None
    assert results.percent("int8", "decode") == pytest.approx(
        ROWS["int8"].bytes / 1.5e-3 / 46e9 * 100
    )
    by_one = results.percent(INT8, "prefill", "weft 1 thread")
    assert by_one == pytest.approx(operations(PHASES["prefill"]) / 30e-3 / 450e9 * 100)
    lines = [line for line in lowbit_tables(results) if isinstance(line, str)]
    for told in (
        r"met +decode, int8: 2\.00 times as fast as best peer, goal 1\.50",
        r"missed +decode, int8: 0\.67 times as fast as llama\.cpp, goal 1\.00",
        r"met +decode, int4, int8 activations: 2\.00 times as fast as int8, int8 activations",
        r"not measured +decode, int4, int8 activations: - times as fast as best peer",
        r"int8, decode: openvino: wrong: its error is nan",
        r"nnn is left out: not installed",
        r"not a quiet machine.* 1: int8, decode: weft",
    ):
        assert sum(bool(re.match(told, line)) for line in lines) == 1, told
    found = lowbit_json(results)
    assert found["passed"] and found["machine"]["versions"]["torch"]
    assert found["rows"][0]["times_as_fast_as"]["best peer"] == 2.0
    failed = results_of({("int8", "decode"): {"weft": wrong}}, absent={})
    assert not failed.passed and not lowbit_json(failed)["passed"]


def test_workers_take_turns_and_hanging_ones_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """One process is of the full size, one is left out, one hangs."""
    monkeypatch.undo()
    monkeypatch.setattr(lowbit_bench, "measure", lambda *_: results_of({}, absent={}).peaks)
    settings = Settings(("eager", "llama.cpp"), "bf16: decode", 1, seconds=0.01, rounds=2, copies=1)
    results = lowbit_bench.run(settings, lambda _: None)
    (cell,) = results.cells["bf16", "decode"].values()
    assert cell.ms is not None and len(cell.rounds_ms) == 2 and cell.failure is None
    assert results.absent["llama.cpp"].startswith("--llama FOLDER")
    monkeypatch.setattr(lowbit_bench, "LOAD_SECONDS", 0.01)
    (cell,) = lowbit_bench.run(settings, lambda _: None).cells["bf16", "decode"].values()
    assert cell.failure == "its worker: no reply within 0.01 s" and cell.ms is None


def test_what_cannot_be_measured() -> None:
    for given, told in (
        (["cuda"], "is of CPUs, and takes no --dynamic"),
        (["cpu", "--only", "fp4"], "--only 'fp4' finds none of"),
        (["cpu", "--only", "("], "is no regular expression"),
        (["cpu", "--backends", "eager,tvm"], "unknown backend 'tvm'"),
    ):
        done = CliRunner().invoke(app, ["bench", *given, "--quantized"])
        assert done.exit_code != 0 and told in str(done.exception), done.exception


def test_the_machine_reads_and_multiplies() -> None:
    found = measure_peaks(1, 1 << 20)
    assert 0.5 < found.read < 2000 and found.f32 > 0 and found.int8 >= 0
    assert found.best_of(Peaks(1e9, 0, 0, 0, 0)).read == 1e9


def test_files_of_llama_cpp(tmp_path: Path) -> None:
    gguf: Any = pytest.importorskip("gguf")
    sizes = Sizes(64, 96, 4, 2, layers=1, words=32)
    for kind, of_block in (("Q4_0", 18), ("Q8_0", 34)):
        write_gguf(tmp_path / "m.gguf", sizes, kind)
        found = {t.name: t for t in gguf.GGUFReader(tmp_path / "m.gguf").tensors}
        assert found["blk.0.ffn_down.weight"].data.shape == (64, 96 // 32 * of_block)
        assert {name for name, _, _ in matrices(sizes)} < set(found)
        values = gguf.dequantize(found["output.weight"].data, found["output.weight"].tensor_type)
        assert values.shape == (32, 64) and 0.02 < float(np.std(values)) < 0.5
    with pytest.raises(SourceError, match="F16, Q8_0 or Q4_0, not in Q2_K"):
        random_blocks(np.random.default_rng(0), 1, 32, "Q2_K")
    with pytest.raises(SourceError, match="blocks of 32 weights, which rows of 40 are not"):
        random_blocks(np.random.default_rng(0), 1, 40, "Q4_0")


def test_a_folder_without_llama_cpp(tmp_path: Path) -> None:
    with pytest.raises(WeftError, match=r"has no libggml\.so of llama\.cpp"):
        Llama(str(tmp_path), tmp_path / "m.gguf", 1)
