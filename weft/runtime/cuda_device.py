"""One CUDA device as programs see it: cubins loaded, launches, graphs, the time of a kernel.

device = CUDADevice(0, "sm_90a", Cache(config.cache))
functions = device.load({"k_relu": GPUKernel(text, 16, 256)})
"""

# torch's public way to the current stream makes an object each time; compiled code uses this one.
# pyright: reportPrivateUsage=false

import weakref
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache, cached_property
from statistics import median
from threading import Lock
from typing import Any

import torch

from weft.runtime.cache import Cache
from weft.runtime.cuda import Module, check, current, launch, load_module, tensor_map
from weft.runtime.cuda_timing import flush_of, times
from weft.runtime.gpu_program import GPUKernel, Replay
from weft.runtime.nvidia import driver
from weft.runtime.nvrtc import Cubin, Resources, compile_all
from weft.targets.nvidia import runs_on

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
