"""HIP: the same text over runtime/gpu/weft_hip.cuh, simulated with waves of 64, and compiled."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import weft
from tests.sim.kernels import normal, text
from weft.sim import simulate

HEADERS = Path(weft.__file__).parent / "runtime" / "gpu"
HIP = text("portable").replace("weft_cuda.cuh", "weft_hip.cuh")


@pytest.mark.parametrize(("source", "warp"), [(text("portable"), 32), (HIP, 64)])
def test_row_sums(source: str, warp: int) -> None:
    x, scale, y = normal(5, 200), normal(200).astype(ml_dtypes.bfloat16), normal(5)
    report = simulate(source, "row_sums", 5, warp, [x, scale, y, 200], warp=warp)
    assert not report.faults, str(report)
    expected = np.maximum((x * scale.astype(np.float32)).sum(1), 0)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-4)
    (load,) = [
        a for a in report.accesses if a.bytes == 4 and (a.space, a.kind) == ("global", "load")
    ]
    assert load.requests == 5 * -(-200 // warp)


@pytest.mark.skipif(shutil.which("hipcc") is None, reason="hipcc is not installed")
def test_compiles(tmp_path: Path) -> None:
    (tmp_path / "portable.hip").write_text(HIP)
    flags = ["--offload-arch=gfx90a", "--cuda-device-only", "-O3", "-std=c++17", f"-I{HEADERS}"]
    done = subprocess.run(
        ["hipcc", *flags, "-S", "-o", "portable.s", "portable.hip"],
        cwd=tmp_path, env={**os.environ, "HIP_PLATFORM": "amd"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert ".vgpr_spill_count: 0" in (tmp_path / "portable.s").read_text()
