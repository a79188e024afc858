"""Memory of tensors that lies in a file until something reads it: `drop=True`."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import weft
from weft.core.errors import WeftError
from weft.runtime.spill import spill

BYTES = 8 << 20


def resident(t: torch.Tensor) -> int:
    """Bytes of the tensor's pages that are in the process's memory, by the kernel's page table."""
    first, last = t.data_ptr() // mmap.PAGESIZE, (t.data_ptr() + t.nbytes - 1) // mmap.PAGESIZE
    with Path("/proc/self/pagemap").open("rb") as table:
        table.seek(8 * first)
        pages = memoryview(table.read(8 * (last + 1 - first))).cast("Q")
    return sum(page >> 63 for page in pages) * mmap.PAGESIZE


def test_values_come_back_from_the_file_and_writes_stay(tmp_path: Path) -> None:
    t = torch.randn(BYTES // 4)
    wanted, at = t.clone(), t.data_ptr()
    assert resident(t) >= BYTES
    spill([t, t[8:]], tmp_path)
    assert resident(t) <= 64 << 10
    assert t.data_ptr() == at and torch.equal(t, wanted) and not [*tmp_path.iterdir()]
    t[5] = wanted[5] = 9
    spill([t], tmp_path)  # another version: another file
    assert torch.equal(t, wanted)
    spill([t], tmp_path)
    assert torch.equal(t, wanted)


def test_memory_that_others_see_stays(tmp_path: Path) -> None:
    path = tmp_path / "shared"
    path.write_bytes(bytes(BYTES))
    with path.open("r+b") as file:
        shared = torch.frombuffer(mmap.mmap(file.fileno(), 0), dtype=torch.uint8)
        spill([shared], tmp_path)
        shared.fill_(7)
        assert path.read_bytes()[:4] == b"\7\7\7\7"


def test_a_folder_without_room_is_told() -> None:
    with pytest.raises(WeftError, match="drop=True keeps parameters in files in /nowhere"):
        spill([torch.zeros(BYTES)], Path("/nowhere"))


CHANGES: dict[str, Callable[[nn.Linear], object]] = {
    "in place": lambda m: m.weight.mul_(2),
    "loaded": lambda m: m.load_state_dict(nn.Linear(1024, 1024).state_dict()),
    "replaced": lambda m: setattr(m, "weight", nn.Parameter(torch.randn(1024, 1024))),
    "moved": lambda m: setattr(m.weight, "data", m.weight.data * 2),
}


@torch.no_grad()
@pytest.mark.parametrize("change", CHANGES)
def test_a_dropped_parameter_is_as_before(change: str) -> None:
    torch.manual_seed(0)
    m, x = nn.Linear(1024, 1024), torch.randn(9, 1024)
    wanted, state = m(x), {name: t.clone() for name, t in m.state_dict().items()}
    f = weft.compile(m, freeze=True, drop=True)
    assert torch.allclose(f(x), wanted, atol=1e-4)
    assert resident(m.weight) <= 64 << 10
    assert not m.weight[1, 1].isnan() and f.report.kept_bytes == m.weight.nbytes
    assert all(torch.equal(t, state[name]) for name, t in m.state_dict().items())
    CHANGES[change](m)
    for _ in range(2):
        assert torch.allclose(f(x), m(x), atol=1e-3)
        assert not torch.allclose(f(x), wanted, atol=1e-3)


def test_it_is_for_what_is_frozen() -> None:
    with pytest.raises(WeftError, match="drop=True is for freeze=True on CPUs"):
        weft.compile(nn.Linear(2, 2), drop=True)
