"""Reuses the memory of large tensors once nothing holds them.

large_empty((4096, 4096), (4096, 1), torch.float32)    # an uninitialised CPU tensor

Memory fresh from the system is a page fault for every 4 KiB, and 64 MiB of those take longer than
most kernels that fill them; malloc gives blocks from 32 MiB back to the system at once. So a
storage is remembered, and taken again once nobody else holds it. It is torch's own: it may be
resized, shared and saved as any other.
"""

# This file reaches into torch: who holds a storage has no public name.
# pyright: reportPrivateUsage=false

import ctypes
import mmap
from threading import Lock

import torch

PAGE = 2 << 20  # a huge page
LARGE = 2 * PAGE  # bytes from which on a tensor's memory is used again
KEPT = 1 << 30  # bytes of memory that nobody holds; beyond, what was used least recently goes
ALONE = 1  # holders of a storage that only this list knows

_storages: list[torch.UntypedStorage] = []  # the least recently used first
_lock = Lock()


def large_empty(
    shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype
) -> torch.Tensor:
    """An uninitialised tensor of those strides, in elements."""
    span = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    with _lock:  # until the tensor holds the storage, another thread could take it
        storage = _take(span * dtype.itemsize)
        return torch.empty(0, dtype=dtype, device="cpu").set_(storage, 0, shape, strides)


def block(size: int) -> torch.Tensor:
    """Uninitialised memory of that many bytes.

    Made outside inference mode: tensors made inside it cannot be written outside.
    """
    with torch.inference_mode(False):
        return large_empty((size,), (1,), torch.uint8)


def empty_cache() -> None:
    """Give memory that no tensor holds back to the system."""
    with _lock:
        _storages[:] = [s for s in _storages if not _is_free(s)]


def _take(size: int) -> torch.UntypedStorage:
    found = next((s for s in _storages if s.nbytes() == size and _is_free(s)), None)
    if found is None:
        found = torch.UntypedStorage(size, device="cpu")
        _advise(found)
        left = KEPT
        for s in reversed(_storages[:]):
            left -= s.nbytes() if _is_free(s) else 0
            if left < 0 and _is_free(s):
                _storages.remove(s)
    else:
        _storages.remove(found)
    _storages.append(found)
    return found


def _is_free(storage: torch.UntypedStorage) -> bool:
    return torch._C._storage_Use_Count(storage._cdata) == ALONE


def _advise(storage: torch.UntypedStorage) -> None:
    """Ask for huge pages; the kernel may have none."""
    start = -(-storage.data_ptr() // PAGE) * PAGE
    length = (storage.data_ptr() + storage.nbytes() - start) // PAGE * PAGE
    if hasattr(mmap, "MADV_HUGEPAGE") and length > 0:
        libc = ctypes.CDLL(None)
        libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), mmap.MADV_HUGEPAGE)
