"""Memory of large tensors: blocks on huge pages, used again when the tensor that held one is gone.

large_empty((4096, 4096), (4096, 1), torch.float32)    # an uninitialised CPU tensor

Memory fresh from the system is a page fault for every 4 KiB, and 64 MiB of those take longer than
most kernels that fill them; malloc gives blocks from 32 MiB back to the system at once.
"""

from __future__ import annotations

import ctypes
import mmap
import weakref
from contextlib import suppress

import torch

PAGE = 2 << 20  # a huge page; blocks are multiples of it
LARGE = 2 * PAGE  # bytes from which on a tensor gets a block of its own
KEPT = 1 << 30  # bytes that free blocks may hold between calls

_free: dict[int, list[mmap.mmap]] = {}  # by size
_kept = 0


def large_empty(
    shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype
) -> torch.Tensor:
    """An uninitialised tensor; its storage cannot be resized."""
    span = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    return block(span * dtype.itemsize).view(dtype).as_strided(shape, strides)


def block(size: int) -> torch.Tensor:
    """At least `size` bytes at a huge page's boundary, undefined.

    Made outside inference mode: tensors made inside it cannot be written outside.
    """
    size = -(-size // PAGE) * PAGE
    memory = _take(size)
    whole = (ctypes.c_char * (size + PAGE)).from_buffer(memory)
    start = -ctypes.addressof(whole) % PAGE
    weakref.finalize(whole, _give, memory, size).atexit = False
    with torch.inference_mode(False):
        return torch.frombuffer(whole, dtype=torch.uint8, count=size, offset=start)


def _take(size: int) -> mmap.mmap:
    global _kept
    with suppress(KeyError, IndexError):
        memory = _free[size].pop()
        _kept -= size
        return memory
    # private: a forked child must not write its parent's tensors
    memory = mmap.mmap(-1, size + PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without transparent huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def _give(memory: mmap.mmap, size: int) -> None:
    """Keep a block for the next tensor of its size, unless enough is kept already."""
    global _kept
    if _kept + size <= KEPT:
        _free.setdefault(size, []).append(memory)
        _kept += size
