"""Kernels on an NVIDIA GPU: load a cubin, launch its kernels, time them; a whole device.

module = load_module(cubin.path)
launch(module.function("softmax"), (16, 1, 1), (128, 1, 1), 0, stream, operands)
module.fault()                  # once the stream has come so far: a number of FAULTS, or 0
device = CUDADevice(0, "sm_90a", Cache(config.cache))
functions = device.load({"k_relu": GPUKernel(text, 16, 256)})
"""

# torch's public way to the current stream makes an object each time; compiled code uses this one.
# pyright: reportPrivateUsage=false

import ctypes
import weakref
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from statistics import median
from threading import Lock
from typing import Any

import torch

from weft.core.errors import WeftError
from weft.runtime.cache import Cache
from weft.runtime.cuda_timing import flush_of, times
from weft.runtime.gpu_program import GPUKernel, Replay
from weft.runtime.nvidia import driver
from weft.runtime.nvrtc import Cubin, Resources, compile_all
from weft.targets.nvidia import runs_on

Size = tuple[int, int, int]
Sides = Sequence[int]
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


def load_module(cubin: Path, device: int = 0) -> Module:
    """The kernels of a cubin, on a device."""
    with current(device):
        handle = check(driver().cuModuleLoadData(cubin.read_bytes()), f"load {cubin.name}")
    return Module(handle, device)


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
    address: int, dtype: str, shape: Sides, strides: Sides, box: Sides, swizzle: int = 0
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


# --- a device -------------------------------------------------------------------------------------

SAMPLES = 3
_load = cache(load_module)  # a process loads a cubin once


@dataclass(frozen=True)
class Function:
    """A loaded kernel, and the module that knows of its faults."""

    handle: Any
    module: Module


class CUDADevice:
    """Kernels of one architecture on one device, by the driver; memory and streams are torch's."""

    def __init__(self, index: int, arch: str, store: Cache) -> None:
        self.index, self.arch, self.store = index, arch, store
        self.place = torch.device("cuda", index)
        self.lock = Lock()

    def load(self, kernels: Mapping[str, GPUKernel]) -> dict[str, Function]:
        loaded: dict[str, Function] = {}
        for symbol, cubin in self.cubins(kernels).items():
            module = _load(cubin.path, self.index)
            loaded[symbol] = Function(module.function(symbol, kernels[symbol].shared), module)
        return loaded

    def resources(self, kernels: Mapping[str, GPUKernel]) -> dict[str, Resources]:
        return {name: cubin.kernels[name] for name, cubin in self.cubins(kernels).items()}

    def cubins(self, kernels: Mapping[str, GPUKernel]) -> dict[str, Cubin]:
        found = compile_all((k.source for k in kernels.values()), self.arch, self.store)
        return {symbol: found[kernel.source] for symbol, kernel in kernels.items()}

    def stream(self) -> int:
        return torch._C._cuda_getCurrentRawStream(self.index)

    def is_recording(self) -> bool:
        return torch.cuda.is_current_stream_capturing()

    def tensor_map(self, address: int, *facts: Any) -> bytes:
        return tensor_map(address, *facts)

    def launch(self, function: Function, kernel: GPUKernel, operands: int, stream: int) -> None:
        grid, block = (kernel.grid, 1, 1), (kernel.block, 1, 1)
        launch(function.handle, grid, block, kernel.shared, stream, operands)

    def current(self) -> AbstractContextManager[None]:
        return current(self.index)

    @cached_property
    def side_stream(self) -> Any:
        """Where launches are recorded: nothing ever runs on it."""
        flag = driver().CUstream_flags.CU_STREAM_NON_BLOCKING
        return check(driver().cuStreamCreate(flag.value), "make a stream")

    def record(self, play: Replay) -> Replay:
        """What `play` launches as a graph, which the driver launches at once."""
        cuda = driver()
        mode = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        with self.lock, current(self.index):
            stream = self.side_stream
            check(cuda.cuStreamBeginCapture(stream, mode), "record launches")
            try:
                play(int(stream))
            finally:
                graph = check(cuda.cuStreamEndCapture(stream), "end a recording")
            runnable = check(cuda.cuGraphInstantiate(graph, 0), "make a graph")
            check(cuda.cuGraphDestroy(graph), "let a recording go")

        def replay(on: int) -> None:
            with current(self.index):
                check(cuda.cuGraphLaunch(runnable, on), "launch a graph")

        weakref.finalize(replay, cuda.cuGraphExecDestroy, runnable).atexit = False
        return replay

    def wait(self, stream: int) -> None:
        with current(self.index):
            check(driver().cuStreamSynchronize(stream), "finish the kernels of a call")

    def fault(self, function: Function) -> int:
        return function.module.fault()

    def microseconds(self, play: Replay, stream: int) -> float:
        """The median of some launches, each with cold caches."""
        return median(times(lambda: play(stream), flush_of(self.place), SAMPLES))


def refusal(index: int, arch: str) -> str | None:
    """Why kernels for that architecture do not run on a device; None where they do."""
    found = torch.cuda.get_device_capability(index)
    if runs_on(arch, found):
        return None
    name, number = torch.cuda.get_device_name(index), "{}.{}".format(*found)
    return f"kernels for {arch} do not run on cuda:{index}: {name}, of compute capability {number}"
