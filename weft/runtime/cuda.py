"""Kernels on an NVIDIA GPU: load a cubin, launch its kernels on a stream.

module = load_module(cubin.path)
args = [np.uint64(x.data_ptr()), np.uint64(y.data_ptr()), np.int32(512)]
stream = torch.cuda.current_stream()
module.launch("softmax", (16, 1, 1), (128, 1, 1), args, stream=stream.cuda_stream)
stream.synchronize()
module.check_faults()           # IndexOutOfRange, DivisionByZero
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from weft.core.errors import FAULTS, WeftError
from weft.runtime.nvidia import driver

Size = tuple[int, int, int]
PLAIN_SHARED = 48 * 1024  # a kernel must ask for more
DATA_TYPES = {
    "float32": "FLOAT32",
    "float16": "FLOAT16",
    "bfloat16": "BFLOAT16",
    "float64": "FLOAT64",
    "int32": "INT32",
    "uint32": "UINT32",
    "int64": "INT64",
    "uint64": "UINT64",
    "uint16": "UINT16",
    "uint8": "UINT8",
}


def check(result: tuple[Any, ...], what: str) -> Any:
    """The value of a driver call; its first part is the status."""
    status, *values = result
    if status.value != 0:
        raise WeftError(f"CUDA cannot {what}: {status.name}")
    return values[0] if values else None


def load_module(cubin: Path, device: int = 0) -> Module:
    """The kernels of a cubin, on a device's primary context, which is torch's as well."""
    cuda = driver()
    handle = check(cuda.cuDeviceGet(device), f"find device {device}")
    context = check(cuda.cuDevicePrimaryCtxRetain(handle), "make a context")
    check(cuda.cuCtxSetCurrent(context), "use the context")
    return Module(check(cuda.cuModuleLoadData(cubin.read_bytes()), f"load {cubin.name}"))


@dataclass(frozen=True)
class Module:
    """A loaded cubin."""

    handle: Any

    def function(self, name: str) -> Any:
        return check(driver().cuModuleGetFunction(self.handle, name.encode()), f"find {name}")

    def launch(
        self,
        kernel: str,
        grid: Size,
        block: Size,
        args: Sequence[np.generic | bytes],
        shared_bytes: int = 0,
        stream: int = 0,
    ) -> None:
        """Enqueue a kernel. Arguments are as the kernel takes them: an address is an np.uint64."""
        cuda, function = driver(), self.function(kernel)
        if shared_bytes > PLAIN_SHARED:
            limit = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            what = f"give {kernel} {shared_bytes} bytes of shared memory"
            check(cuda.cuFuncSetAttribute(function, limit, shared_bytes), what)
        values = [a if isinstance(a, bytes) else a.tobytes() for a in args]
        buffers = [ctypes.create_string_buffer(value, len(value)) for value in values]
        pointers = (ctypes.c_void_p * len(buffers))(*map(ctypes.addressof, buffers))
        at = ctypes.addressof(pointers)
        launched = cuda.cuLaunchKernel(function, *grid, *block, shared_bytes, stream, at, 0)
        check(launched, f"launch {kernel}")

    def check_faults(self) -> None:
        """Raise what a checked function of a finished kernel met, and forget it."""
        cuda = driver()
        status, address, _ = cuda.cuModuleGetGlobal(self.handle, b"weft_fault")
        if status == cuda.CUresult.CUDA_ERROR_NOT_FOUND:
            return  # no kernel has a check
        check((status,), "find weft_fault")
        found = ctypes.c_int32()
        check(cuda.cuMemcpyDtoH(ctypes.addressof(found), address, 4), "read weft_fault")
        if found.value:
            check(cuda.cuMemsetD32(address, 0, 1), "clear weft_fault")
            raise FAULTS[found.value]()


def tensor_map(
    address: int,
    dtype: np.dtype,
    shape: Sequence[int],
    strides: Sequence[int],
    box: Sequence[int],
    swizzle: int = 0,
) -> bytes:
    """A TensorMap argument; shape, byte strides and box outermost first, as NumPy gives them."""
    cuda = driver()
    small, large = cuda.cuuint32_t, cuda.cuuint64_t
    name = "NONE" if swizzle == 0 else f"{swizzle}B"
    encoded = cuda.cuTensorMapEncodeTiled(
        getattr(cuda.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{DATA_TYPES[dtype.name]}"),
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
