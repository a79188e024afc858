"""`weft bench cpu --quantized`: every backend computes its row's layer, from memory of its own."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from weft.cli import lowbit_bench, lowbit_layer, lowbit_peers
from weft.cli.limits import Limits, read_and_dot
from weft.cli.llama import Llama, Sizes, matrices, random_blocks, write_gguf
from weft.cli.lowbit_bench import Cell, Results, Settings
from weft.cli.lowbit_layer import PHASES, ROWS
from weft.cli.main import app
from weft.core.errors import SourceError, WeftError

LIMITS = Limits(2, 1.0, 200.0, 0.0, 400.0, {1: 1.0})


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A layer of 128 columns instead of 2048."""
    for name, size in {"HIDDEN": 128, "INNER": 192, "HEADS": 4, "KEY_HEADS": 2, "HEAD": 32}.items():
        monkeypatch.setattr(lowbit_layer, name, size)
    importlib.import_module("torch._dynamo").reset()
    with torch.no_grad():
        yield


CASES = [
    *(("eager", row, phase) for row in ROWS for phase in PHASES),
    ("weft", "int8", "decode"),
    ("weft", "int4 g32", "decode"),
    ("openvino", "int4 g32", "prefill"),
    ("onnxruntime", "int4 g32, int8 activations", "prefill"),
    ("onnxruntime", "int8, int8 activations", "decode"),
]


@pytest.mark.parametrize(("backend", "row", "phase"), CASES)
def test_a_backend_computes_the_layer(backend: str, row: str, phase: str) -> None:
    if lowbit_peers.absent(backend, None):
        pytest.skip("it is not installed")
    (call,) = lowbit_peers.BUILD[backend](row, PHASES[phase], 1)
    found = lowbit_peers.first_output(call)
    assert found is not None
    error = lowbit_bench.apart(found, lowbit_bench.dense_output(phase))
    assert error < (0.13 if "int4" in row else 0.03)  # a wrong scale or order of codes is above 0.5


def test_rows_round_as_their_names_say() -> None:
    """A weight is its codes; only rows that say so round what they are applied to."""
    fine = torch.cat((torch.ones(1, 1), torch.full((1, 63), 1e-3)), 1)  # 1e-3 is under half a step
    for name, row in ROWS.items():
        layer: Any = row.linear(64, 8)
        codes = [t.nbytes for t in layer.buffers() if not t.is_floating_point()]
        assert sum(codes) == (0 if name == "bf16" else 64 * 8 if row.bits == 8 else 32 * 8)
        coarse = torch.where(fine == 1, fine, 0)
        apart = (layer(fine) - layer(coarse)).abs()[0]
        assert bool((apart == 0).all()) == (row.rounds and row.bits == 8), name


def test_a_layer_s_bytes_make_the_rotation() -> None:
    """More than caches hold, at the full size."""
    for row in ROWS.values():
        assert (row.layers - 1) * row.bytes < lowbit_layer.ROTATED <= row.layers * row.bytes


def test_what_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ratios are to the best peer, percent of what the same run measured; absent ones are named."""
    cells = {
        ("int8", "decode"): {"eager": Cell(8.0), "openvino": Cell(3.0), "weft": Cell(1.5)},
        ("int8, int8 activations", "prefill"): {"weft": Cell(failure="it cannot")},
    }
    results = Results(2, 46.0, 900.0, LIMITS, cells, {"llama.cpp": "gguf is not installed"})
    assert results.best_peer("int8", "decode") == "openvino"
    assert results.ratio("int8", "decode") == 2.0
    expected = ROWS["int8"].bytes / 1.5e-3 / 46e9 * 100
    assert results.percent("int8", "decode", 1.5) == pytest.approx(expected)
    assert results.ratio("int8, int8 activations", "prefill") is None
    told = [line for line in lowbit_bench.tables(results) if isinstance(line, str)]
    assert "llama.cpp is left out: gguf is not installed" in told
    assert "int8, int8 activations, prefill: weft failed: it cannot" in told
    assert len(lowbit_bench.as_json(results)["rows"]) == 2


def test_workers_take_turns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.undo()  # the workers have the full size
    monkeypatch.setattr(lowbit_bench, "measure", lambda _: LIMITS)
    monkeypatch.setattr(lowbit_bench, "read_and_dot", lambda _: (40.0, 900.0))
    settings = Settings(("eager", "llama.cpp"), "bf16: decode", 1, 0.01, rounds=2, layers=1)
    results = lowbit_bench.run(settings, lambda _: None)
    (cell,) = results.cells["bf16", "decode"].values()
    assert cell.ms is not None and len(cell.rounds_ms) == 2 and cell.error is not None
    assert cell.error < 0.02 and results.absent["llama.cpp"].startswith("--llama FOLDER")


def test_what_cannot_be_measured() -> None:
    for given, told in (
        (["cuda"], "takes no --dynamic and no --minutes"),
        (["cpu", "--only", "fp4"], "--only fp4 finds none of"),
        (["cpu", "--backends", "eager,tvm"], "unknown backend 'tvm'"),
    ):
        done = CliRunner().invoke(app, ["bench", *given, "--quantized"])
        assert done.exit_code != 0 and told in str(done.exception), done.exception


def test_the_machine_reads_and_multiplies() -> None:
    read, dots = read_and_dot(1)
    assert 0.5 < read < 2000 and dots >= 0


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
