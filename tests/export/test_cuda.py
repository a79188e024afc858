"""Exported CUDA gives what the simulator gives of the same program: by a driver that checks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import weft
from tests.export.fake_device import FakeDevice
from tests.export.programs import source
from tests.export.same import bits

pytest.importorskip("cuda.bindings.nvrtc")


def layers(x: torch.Tensor, w: torch.Tensor) -> Any:
    return F.layer_norm((x @ w).relu(), (24,)), x.sum(0)


def simulated(fn: Any, *args: Any) -> list[bytes]:
    out = weft.compile(fn, target="cuda:sm_90a", simulate=True, fallback="error")(*args)
    return [bits(t) for t in (out if isinstance(out, tuple) else (out,))]


def test_a_run(tmp_path: Path) -> None:
    device = FakeDevice(tmp_path)
    args = torch.randn(20, 40), torch.randn(40, 24)
    library = device.exported(source(layers, *args), tmp_path / "m")
    assert library.isa == "sm_90a"
    for _ in range(2):
        args = torch.randn(20, 40), torch.randn(40, 24)
        assert [bits(t) for t in device.outputs(library, args)] == simulated(layers, *args)
    library.close()
    assert device.live == 0
