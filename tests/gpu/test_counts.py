"""Kernels read well: no bank conflicts, whole sectors. The simulator counts both, line by line."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest
from torch.nn import functional as F

import weft
import weft.link.simulator
from tests.gpu.programs import Make, bf16, f32
from weft.sim import SimReport

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the simulator needs g++")

PROGRAMS: dict[str, tuple[Callable[..., Any], Make]] = {
    "add": (lambda x, y: x + y, f32((64, 256), (64, 256))),
    "bf16": (lambda x, y: x * y, bf16((64, 256), (64, 256))),
    "rms_norm": (lambda x, w: F.rms_norm(x, (2048,), w), f32((4, 2048), (2048,))),
    "softmax": (lambda x: x.softmax(-1), f32((4, 2048))),
    "short_rows": (lambda x: x.softmax(-1), f32((1104, 64))),
    "layer_norm": (lambda x, w: F.layer_norm(x, (1024,), w), f32((4, 1024), (1024,))),
    "sum": (lambda x: x.sum(1), f32((4, 4096))),
    "column_sum": (lambda x: x.sum(0), f32((64, 256))),
    "columns": (lambda x: x.logsumexp(0), f32((640, 64))),
    "transpose": (lambda x: x.t().contiguous(), f32((64, 96))),
    "transposed_matmul": (lambda x, y: x.t() @ y, f32((64, 64), (64, 128))),
}


def counts(name: str, monkeypatch: pytest.MonkeyPatch, function: Any, make: Make) -> SimReport:
    found: list[SimReport] = []
    run = weft.link.simulator.simulate

    def kept(*args: Any, **kwargs: Any) -> SimReport:
        found.append(run(*args, **kwargs))
        return found[-1]

    monkeypatch.setattr(weft.link.simulator, "simulate", kept)
    weft.compile(function, target="cuda:sm_90a", simulate=True)(*make())
    assert len(found) == 1, f"{name} is {len(found)} kernels"
    return found[0]


@pytest.mark.parametrize("name", PROGRAMS)
def test_at_best(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    report = counts(name, monkeypatch, *PROGRAMS[name])
    costly = [a for a in report.accesses if a.conflicts and a.requests > 1]
    assert not costly, str(SimReport((), tuple(costly)))


PRODUCTS: dict[str, tuple[Callable[..., Any], Make]] = {
    "matmul": (lambda x, y: x @ y, f32((1024, 32), (32, 1024))),
    "linear": (lambda x, w: F.linear(x, w), f32((1024, 32), (1024, 32))),
    "attention": (F.scaled_dot_product_attention, bf16(*[(1, 2, 128, 64)] * 3)),
    "bf16_linear": (lambda x, w: F.linear(x, w), bf16((1024, 64), (1024, 64))),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_what_is_dearer_in_products(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of the tensor cores, of which a row of 16 bytes lies in the threads of a quad."""
    for access in counts(name, monkeypatch, *PRODUCTS[name]).accesses:
        quads = "bf16x2{" in access.text and access.space == "global"
        assert access.conflicts <= (access.ideal_transactions if quads else 0), access


def test_odd_rows_are_read_by_single_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    report = counts("odd", monkeypatch, lambda x: x.softmax(-1), f32((3, 1001)))
    assert {a.bytes for a in report.accesses if a.space == "global"} == {4}
