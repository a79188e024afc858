"""Gives memory of tensors back to the system: their bytes lie in a file until something reads them.

spill([weight], folder)     # the same tensor, address and values; its pages come back on demand

The pages of its storage are mapped anew over a file of their contents, which has no name, so that
it goes with the memory. What is written later is in memory, as before, and never in the file.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

from weft.core.errors import WeftError

LEAST = 1 << 20  # bytes of a storage below which it stays
MAP_FIXED = 0x10

# Of tensors that were spilled: where their pages begin, the version, and the file.
_files: Any = WeakIdKeyDictionary()


def spill(tensors: Sequence[torch.Tensor], folder: Path) -> None:
    """Give the memory of the tensors' storages back; WeftError where the folder has no room.

    Storages of less than a MiB, and those whose memory others may see (shared, mapped from a file
    for writing, pinned), stay.
    """
    if sys.platform != "linux":
        raise WeftError("drop=True gives memory back by mmap as Linux has it: leave it out here")
    spans = private()
    for tensor in tensors:
        storage = tensor.untyped_storage()
        begin, end = storage.data_ptr(), storage.data_ptr() + storage.nbytes()
        start = -(-begin // mmap.PAGESIZE) * mmap.PAGESIZE
        size = (end - start) // mmap.PAGESIZE * mmap.PAGESIZE
        if size < LEAST or not covered(start, start + size, spans) or pinned(tensor):
            continue
        known = _files.get(tensor)
        if known is None or known[:2] != (start, tensor._version):
            known = _files[tensor] = (start, tensor._version, written(start, size, folder))
        over(start, size, known[2].fileno())


def private() -> list[tuple[int, int]]:
    """The parts of memory that are this process's own, to read and to write, in order."""
    found: list[tuple[int, int]] = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, how, *_ = line.split(maxsplit=2)
        if how.startswith("rw-p"):
            begin, end = (int(at, 16) for at in span.split("-"))
            if found and found[-1][1] == begin:
                begin = found.pop()[0]
            found.append((begin, end))
    return found


def covered(begin: int, end: int, spans: Sequence[tuple[int, int]]) -> bool:
    return any(first <= begin and end <= last for first, last in spans)


def pinned(tensor: torch.Tensor) -> bool:
    return torch.cuda.is_available() and tensor.is_pinned()


def written(start: int, size: int, folder: Path) -> Any:
    """A file without a name, of the bytes that lie there."""
    try:
        file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        file.write((ctypes.c_char * size).from_address(start))
        file.flush()
    except OSError as error:
        raise WeftError(f"drop=True keeps parameters in files in {folder}: {error}") from None
    return file


def over(start: int, size: int, file: int) -> None:
    """Map a file over memory that has the same bytes."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    how = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | MAP_FIXED, file, 0
    if libc.mmap(start, size, *how) != start:
        raise WeftError(f"mmap over a parameter failed: errno {ctypes.get_errno()}")
