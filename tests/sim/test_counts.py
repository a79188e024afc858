"""Sectors and wavefronts per request, for accesses whose cost is known."""

from __future__ import annotations

import pytest

from tests.sim import kernels
from tests.sim.kernels import Launch, copy
from weft.sim import Access, SimReport


def the(report: SimReport, space: str, kind: str) -> Access:
    assert not report.faults, str(report)
    (found,) = [a for a in report.accesses if (a.space, a.kind) == (space, kind)]
    return found


@pytest.mark.parametrize(
    ("launch", "sectors", "ideal"),
    [
        (copy("coalesced"), 4, 4),
        (copy("strided", step=32), 32, 4),
        (kernels.by_four(), 16, 16),
    ],
    ids=lambda value: value.kernel if isinstance(value, Launch) else str(value),
)
def test_sectors(launch: Launch, sectors: int, ideal: int) -> None:
    load = the(launch.run(), "global", "load")
    assert (load.per_request, load.ideal) == (sectors, ideal)
    assert load.requests == 1024 * 4 // load.bytes // 32


def test_a_shifted_row_takes_a_fifth_sector() -> None:
    launch = copy("from_byte_four", step=2)
    launch.grid, launch.block = 1, 256
    assert the(launch.run(), "global", "load").per_request == 5


def test_transpose_conflicts() -> None:
    padded = kernels.transpose().run()
    assert the(padded, "shared", "load").per_request == 1
    assert the(padded, "shared", "store").per_request == 1
    square = kernels.transpose().run("tile[32][33]", "tile[32][32]")
    load = the(square, "shared", "load")
    assert (load.per_request, load.ideal, load.requests) == (32, 1, 6 * 32)
    assert load.conflicts == 31 * 6 * 32
    assert the(square, "shared", "store").per_request == 1


def test_boxes_of_the_copy_engine() -> None:
    report = kernels.tma_scale().run()  # 2 rows of 5 boxes of 32 rows of 128 bytes, cut at 60x156
    store = the(report, "global", "store")
    loads = [a for a in report.accesses if (a.space, a.kind) == ("global", "load")]
    assert store.requests == sum(load.requests for load in loads) == 10
    # A row is 19.5 sectors, so every other row begins in the middle of one, as do its boxes.
    sectors = 30 * (4 * 4 + 4) + 30 * (4 * 5 + 4)
    assert store.transactions == sum(load.transactions for load in loads) == sectors


def test_table() -> None:
    lines = str(kernels.transpose().run("tile[32][33]", "tile[32][32]")).splitlines()
    assert lines[0] == "no faults"
    (row,) = [line for line in lines if "shared load" in line]
    assert row.split()[:7] == ["11", "shared", "load", "4", "192", "32", "wavefronts"]
