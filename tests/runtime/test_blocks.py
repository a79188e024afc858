"""Memory of large tensors: used again, but never while a tensor or a view of it lives."""

from __future__ import annotations

import ctypes
import os

import pytest
import torch

import weft
from weft.runtime import blocks


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_storages", [])


def matrix() -> torch.Tensor:
    return blocks.large_empty((1024, 1500), (1, 1024), torch.float32)


def test_a_block_is_used_again_when_its_last_view_is_gone() -> None:
    first = matrix()
    assert first.stride() == (1, 1024) and first.storage_offset() == 0
    view = first[3]
    start = first.data_ptr()
    del first
    other = matrix()
    assert other.data_ptr() != start
    del view
    assert matrix().data_ptr() == start


def test_only_so_much_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "KEPT", 10 << 20)
    several = [matrix() for _ in range(3)]  # 6 MiB each
    assert len(blocks._storages) == 3
    del several
    blocks.large_empty((3 << 20,), (1,), torch.float32)
    assert [s.nbytes() for s in blocks._storages] == [1024 * 1500 * 4, 12 << 20]
    weft.empty_cache()
    assert not blocks._storages


def test_a_storage_may_be_resized() -> None:
    first = matrix()
    first.untyped_storage().resize_(0)
    del first
    second = matrix()
    assert second.untyped_storage().nbytes() == 1024 * 1500 * 4
    second.resize_(2048, 1500).fill_(1)
    third = matrix().fill_(0)
    assert second.sum() == 2048 * 1500 and third.sum() == 0


def test_a_child_writes_its_own_copy() -> None:
    x = matrix().fill_(1)
    memory = (ctypes.c_float * 1).from_address(x.data_ptr())
    child = os.fork()
    if child == 0:
        memory[0] = 2  # no torch here: its threads are not in the child
        os._exit(0)
    os.waitpid(child, 0)
    assert x[0, 0] == 1


def test_large_results_of_a_program() -> None:
    x = torch.randn(1200, 1100)
    f = weft.compile(lambda x: x + 1)
    with torch.inference_mode():
        first = f(x)
    start = first.data_ptr()
    second = f(x)
    assert second.data_ptr() != start and torch.equal(first, x + 1)
    del first
    third = f(second)
    assert third.data_ptr() == start and torch.equal(third, second + 1)
