"""Kernels on an NVIDIA GPU: load a cubin, launch its kernels on a stream.

module = load_module(cubin.path)
launch(module.function("softmax"), (16, 1, 1), (128, 1, 1), 0, stream, operands)
module.fault()                  # once the stream has come so far: a number of FAULTS, or 0
"""

from __future__ import annotations

import ctypes
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from weft.core.errors import WeftError
from weft.runtime.nvidia import driver

Size = tuple[int, int, int]
PLAIN_SHARED = 48 * 1024  # a kernel must ask for more


def check(result: tuple[Any, ...], what: str) -> Any:
    """The value of a driver call; its first part is the status."""
    status, *values = result
    if status.value != 0:
        raise WeftError(f"CUDA cannot {what}: {status.name}")
    return values[0] if values else None


@cache
def primary_context(device: int) -> Any:
    """A device's primary context, which is torch's as well."""
    cuda = driver()
    handle = check(cuda.cuDeviceGet(device), f"find device {device}")
    return check(cuda.cuDevicePrimaryCtxRetain(handle), "make a context")


@contextmanager
def current(device: int) -> Generator[None, None, None]:
    """With the device's context as the thread's, and afterwards the one that was: it is torch's."""
    cuda, context = driver(), primary_context(device)
    if int(check(cuda.cuCtxGetCurrent(), "tell the context")) == int(context):
        yield
        return
    check(cuda.cuCtxPushCurrent(context), "use the context")
    try:
        yield
    finally:
        check(cuda.cuCtxPopCurrent(), "go back to the context before")


def load_module(cubin: Path, device: int = 0) -> Module:
    """The kernels of a cubin, on a device."""
    with current(device):
        handle = check(driver().cuModuleLoadData(cubin.read_bytes()), f"load {cubin.name}")
    return Module(handle, device)


@dataclass(frozen=True)
class Module:
    """A loaded cubin."""

    handle: Any
    device: int = 0

    def function(self, name: str, shared_bytes: int = 0) -> Any:
        """A kernel, to be launched with that much dynamic shared memory."""
        cuda = driver()
        with current(self.device):
            found = check(cuda.cuModuleGetFunction(self.handle, name.encode()), f"find {name}")
            if shared_bytes > PLAIN_SHARED:
                limit = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                what = f"give {name} {shared_bytes} bytes of shared memory"
                check(cuda.cuFuncSetAttribute(found, limit, shared_bytes), what)
        return found

    def fault(self) -> int:
        """The number of what a checked function of a finished kernel met, or 0; it is forgotten."""
        cuda = driver()
        with current(self.device):
            status, address, _ = cuda.cuModuleGetGlobal(self.handle, b"weft_fault")
            if status == cuda.CUresult.CUDA_ERROR_NOT_FOUND:
                return 0  # no kernel has a check
            check((status,), "find weft_fault")
            found = ctypes.c_int32()
            check(cuda.cuMemcpyDtoH(ctypes.addressof(found), address, 4), "read weft_fault")
            if found.value:
                check(cuda.cuMemsetD32(address, 0, 1), "clear weft_fault")
        return found.value


def launch(
    function: Any, grid: Size, block: Size, shared_bytes: int, stream: int, operands: int
) -> None:
    """Enqueue a kernel; `operands` is the address of an array of addresses, one per argument."""
    result = driver().cuLaunchKernel(function, *grid, *block, shared_bytes, stream, operands, 0)
    if result[0].value != 0:
        name = check(driver().cuFuncGetName(function), "name a kernel").decode()
        threads, size = block[0] * block[1] * block[2], grid[0] * grid[1] * grid[2]
        check(result, f"launch {name}: {size} blocks of {threads} threads, with {shared_bytes} "
                      "bytes of dynamic shared memory")  # fmt: skip


def tensor_map(
    address: int,
    dtype: str,
    shape: Sequence[int],
    strides: Sequence[int],
    box: Sequence[int],
    swizzle: int = 0,
) -> bytes:
    """A TensorMap argument: dtype, shape, byte strides and box as NumPy gives and names them."""
    cuda = driver()
    small, large = cuda.cuuint32_t, cuda.cuuint64_t
    name = "NONE" if swizzle == 0 else f"{swizzle}B"
    encoded = cuda.cuTensorMapEncodeTiled(
        getattr(cuda.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{dtype.upper()}"),
        len(shape),
        address,
        [large(n) for n in reversed(shape)],
        [large(n) for n in reversed(strides[:-1])],
        [small(n) for n in reversed(box)],
        [small(1)] * len(shape),
        cuda.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        getattr(cuda.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{name}"),
        cuda.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        cuda.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    found = check(encoded, f"describe a box of {tuple(box)} of {tuple(shape)}")
    return ctypes.string_at(found.getPtr(), 128)
