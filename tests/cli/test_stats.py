"""`weft compile --stats`: what kernels take, from NVRTC, and who is told why not."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from weft.cli.main import main
from weft.emit import sources
from weft.runtime import nvidia

PROGRAM = "torch.softmax(torch.randn(64, 500), 1)"


def stats(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
        main(["compile", "-c", PROGRAM, "--stats", *arguments])
    code = caught.value.code
    return (code if isinstance(code, int) else 0, *capsys.readouterr())


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_120"])
def test_stats(arch: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    code, out, _ = stats(capsys, "--target", f"cuda:{arch}")
    assert code == 0
    _, heads, _, row, *_ = (line.split() for line in out.splitlines() if line.strip())
    for name in ("grid", "block", "registers", "spilt", "shared", "occupancy"):
        assert name in heads
    assert "measured" not in heads
    assert row[:2] == ["0", "softmax"] and row[3] == "64"


def test_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    (kernel,) = json.loads(stats(capsys, "--target", "cuda:sm_80", "--json")[1])["kernels"]
    assert kernel["grid"] == 64 and kernel["block"] % 32 == 0
    assert 0 < kernel["registers"] < 256 and kernel["spill_bytes"] == 0
    assert kernel["shared_bytes"] >= 4 * kernel["block"] // 32 * 2  # a maximum and a sum per warp


@pytest.mark.parametrize("target", ["cpu:avx2", "auto"])
def test_cpus_have_none(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = stats(capsys, "--target", target)
    assert code == 2
    assert err.startswith(
        f"weft: --stats is for CUDA targets, such as --target cuda:sm_90a: for {target}"
    )


def test_without_nvrtc(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    nvidia.nvrtc.cache_clear()
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    code, _, err = stats(capsys, "--target", "cuda:sm_80")
    assert code == 2 and "pip install 'weft[cuda]'" in err


def test_what_nvrtc_refuses_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    emit: Any = sources.emit_gpu

    def wrong(*args: Any) -> Any:
        launch = emit(*args)
        return type(launch)(launch.source.replace("exp_f32", "nothing"), launch.grid, launch.block)

    monkeypatch.setattr(sources, "emit_gpu", wrong)
    code, _, err = stats(capsys, "--target", "cuda:sm_80")
    assert code == 2
    assert 'NVRTC refused kernel k_softmax for sm_80: identifier "nothing" is undefined' in err
    assert "at line" in err and "nothing(" in err
