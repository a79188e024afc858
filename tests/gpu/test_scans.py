"""Scans of long rows: in parts over the grid, with the values of one thread's."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from functools import partial

import pytest
import torch

import weft

Scan = Callable[[torch.Tensor], torch.Tensor]
SCANS: dict[str, Scan] = {
    "rows": lambda x: x.cumsum(1),
    "columns": lambda x: x.cumsum(0),
    "flat": lambda x: x.flatten().cumsum(0),
    "halves": lambda x: x.half().cumsum(1),
    "integers": lambda x: (x * 9).long().cumsum(1),
    "products": lambda x: (x * 0.01 + 1).cumprod(1),
    "from the end": lambda x: x.flip(1).cumsum(1).flip(1),
    "with what is around": lambda x: x.exp().cumsum(1).relu() * 2 + x,
    "after a reduction": lambda x: x.softmax(1).cumsum(1),
    "in place": lambda x: x.clone().cumsum_(1),
    "greatest": lambda x: x.cummax(1).values,
    "least": lambda x: (x * 2).round().cummin(1).indices,
    "both": lambda x: torch.cat([r.float() for r in (x * 2).round().cummax(1)]),
    "logarithms": lambda x: (x * 9).logcumsumexp(1),
    "of a NaN": lambda x: x.masked_fill(x > 2.5, float("nan")).cummax(1).indices,
}
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="the simulator needs g++")


@needs_compiler
@pytest.mark.parametrize("shape", [(3, 129), (2, 1000), (261, 2)])
@pytest.mark.parametrize("name", SCANS)
def test_simulated_as_eager(name: str, shape: tuple[int, ...]) -> None:
    x, scan = torch.randn(shape), SCANS[name]
    f = weft.compile(scan, target="cuda:sm_90a", simulate=True, fallback="error")
    exact = scan(x) if name in ("integers", "halves") else scan(x.double()).float()
    exact = exact.to(scan(x).dtype)
    torch.testing.assert_close(f(x), exact, rtol=1e-5, atol=1e-5 if name != "halves" else 0.02)
    length = {"columns": shape[0], "flat": x.numel()}.get(name, shape[1])
    assert length <= 256 or "_part" in f.ir("loop") or "local part0" in f.ir("loop")


@needs_compiler
@pytest.mark.parametrize("target", ["cuda:sm_90a", "metal"])
def test_truths_that_are_read_several_at_once(target: str) -> None:
    x, y = torch.randn(2, 1056) > 0, torch.randn(2, 1056) > 1
    facts = {"target": target, "simulate": True, "fallback": "error"}
    for better in ("cummax", "cummin"):
        scan = partial(getattr(torch, better), dim=1)
        torch.testing.assert_close(tuple(weft.compile(scan, **facts)(x)), tuple(scan(x)))
    x, y = (t.repeat(64, 1).flatten() for t in (x, y))  # as many as make a thread read several
    for compare in (torch.gt, torch.ge, torch.lt, torch.le, torch.eq, torch.ne, torch.logical_xor):
        torch.testing.assert_close(weft.compile(compare, **facts)(x, y), compare(x, y))


def test_over_the_grid() -> None:
    """One thread scanned a row of a million before, 32 a multiprocessor one of 4096 each."""
    for shape, axis in ((1 << 20,), 0), ((1_000_003,), 0), ((128, 1 << 16), 1), ((4096, 256), 0):
        f = weft.compile(lambda x, axis: x.cumsum(axis), target="cuda:sm_90a", fallback="error")
        f.prepare(torch.empty(shape), axis)
        launches = [*f.programs[0].artifact.levels().launches.values()]
        threads = [one.grid * one.block for one in launches]
        assert min(threads[0], threads[-1]) >= 4096  # of the parts' totals, and of what scans them
        found = re.findall(r"in 0\.\.(?:min\()?(\d+).*# scan", f.ir("loop"))
        assert len(found) >= 2 and max(map(int, found)) <= 128


def test_scans_that_stay_whole() -> None:
    """Rows enough for the device, and short ones."""
    for shape in ((200_000, 256), (16, 128)):
        f = weft.compile(lambda x: x.cumsum(1), target="cuda:sm_90a", fallback="error")
        f.prepare(torch.empty(shape))
        assert f.ir("loop").count("\nkernel") == 1


@needs_compiler
@pytest.mark.parametrize("length", [4500, 8192])
def test_longer_than_a_block(length: int) -> None:
    """The last part of a row is shorter, or as long as the others."""
    x = (torch.randn(2, length).double() * 50).round()
    f = weft.compile(lambda x: x.cummax(1), target="cuda:sm_90a", simulate=True, fallback="error")
    torch.testing.assert_close(tuple(f(x)), tuple(x.cummax(1)))


@needs_compiler
@pytest.mark.parametrize("rows, length", [(3, 1024), (2, 1001)])
def test_strips_of_a_thread(rows: int, length: int) -> None:
    """A thread reads and writes 16 bytes at a time where its part is aligned."""
    x = torch.randn(rows, length)
    f = weft.compile(lambda x: x.cumsum(1), target="cuda:sm_90a", simulate=True, fallback="error")
    torch.testing.assert_close(f(x), x.double().cumsum(1).float(), rtol=1e-5, atol=1e-5)
    last = f.ir("kernel").rpartition("\nkernel ")[2]
    assert ("load{4} x[" in last and "cumsum{4}[" in last) is (length % 4 == 0)
