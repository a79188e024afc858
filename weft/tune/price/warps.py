"""What the accesses of warps cost: sectors and lines of global memory, wavefronts of shared memory.

blocks(address, active, 4, SECTOR)   # of each request: 4 where 32 lanes read 128 bytes in a row
wavefronts(address, active, 4)       # 1 where all lanes are in banks of their own

A request is one instruction of a warp: a row of byte addresses, one for each lane, and which lanes
take part. These are the rules of the simulator (sim/runtime/counts.h), over whole arrays.
"""

import numpy as np
from numpy.typing import NDArray

SECTOR, LINE, BANKS, WORD = 32, 128, 32, 4  # bytes, but for the banks

Addresses = NDArray[np.int64]  # requests x lanes
Active = NDArray[np.bool_]


def distinct(values: Addresses, active: Active) -> NDArray[np.int64]:
    """The number of different values in each row, of those that are active."""
    found = np.sort(np.where(active, values, -1), axis=1)
    new = (found[:, 1:] != found[:, :-1]).sum(1)
    return new + (found[:, 0] >= 0)


def blocks(address: Addresses, active: Active, size: int, unit: int) -> NDArray[np.int64]:
    """The blocks of `unit` bytes that each request of `size` bytes a lane touches."""
    touched = np.concatenate([address // unit, (address + size - 1) // unit], 1)
    return distinct(touched, np.concatenate([active, active], 1))


def wavefronts(
    address: Addresses, active: Active, size: int, loads: bool = True
) -> NDArray[np.int64]:
    """The most words that a bank serves, of 8 bytes by half warps and of 16 by quarters.

    Loads go by twice as many lanes where these come in pairs that read the same address.
    """
    part = min(32, 128 // size)
    if part == 32 or not loads:
        return _by_parts(address, active, size, part)
    paired = _in_pairs(address, active, 1) | _in_pairs(address, active, 2)
    wide, narrow = (_by_parts(address, active, size, n) for n in (2 * part, part))
    return np.where(paired, wide, narrow)


def _in_pairs(address: Addresses, active: Active, apart: int) -> Active:
    other = np.arange(address.shape[1]) ^ apart
    both = active & active[:, other]
    return ((address == address[:, other]) | ~both).all(1)


def _by_parts(address: Addresses, active: Active, size: int, part: int) -> NDArray[np.int64]:
    rows = address.shape[0]
    words = address[..., None] // WORD + np.arange(max(1, size // WORD))
    each = np.broadcast_to(active[..., None], words.shape)
    found = np.sort(np.where(each, words, -1).reshape(-1, part * words.shape[2]), axis=1)
    first = np.ones(found.shape, bool)
    first[:, 1:] = found[:, 1:] != found[:, :-1]
    kept = first & (found >= 0)
    at = np.arange(found.shape[0])[:, None] * BANKS + found % BANKS
    served = np.bincount(at[kept], minlength=found.shape[0] * BANKS).reshape(-1, BANKS)
    return served.max(1).reshape(rows, -1).sum(1)


def alike(
    address: Addresses, active: Active, often: NDArray[np.float64]
) -> tuple[Addresses, Active, NDArray[np.float64]]:
    """One of the requests that differ by whole lines alone, and how often there is one of them."""
    first = np.where(active, address, np.iinfo(np.int64).max).min(1, keepdims=True)
    moved = np.where(active, address - first // LINE * LINE, -1)
    kept, which = np.unique(moved, axis=0, return_inverse=True)
    return kept, kept >= 0, np.bincount(which.ravel(), often).astype(np.float64)
