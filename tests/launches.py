"""A kernel on a GPU by the driver alone, with no program around it.

run(module, "softmax", (16, 1, 1), (128, 1, 1), [np.uint64(x.data_ptr()), np.int32(512)])
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from weft.runtime.cuda import Module, Size, current, launch


def run(
    module: Module,
    kernel: str,
    grid: Size,
    block: Size,
    args: Sequence[np.generic | bytes],
    shared_bytes: int = 0,
    stream: int = 0,
) -> None:
    """Enqueue a kernel. Arguments are as the kernel takes them: an address is an np.uint64."""
    function = module.function(kernel, shared_bytes)
    values = [a if isinstance(a, bytes) else a.tobytes() for a in args]
    buffers = [ctypes.create_string_buffer(value, len(value)) for value in values]
    pointers = (ctypes.c_void_p * len(buffers))(*map(ctypes.addressof, buffers))
    with current(module.device):
        launch(function, grid, block, shared_bytes, stream, ctypes.addressof(pointers))
