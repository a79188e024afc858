"""Kernels on an OpenCL device, through pyopencl (extra weft[opencl]): the one file that imports it.

program = OpenCLProgram(lay_out(spec), {"k_relu": GPUKernel(text, 16, 256)}, "pocl")
(y,) = program.run([x])          # tensors of the CPU, copied to the device and back
It takes source text and a launch spec, like the rest of the runtime.
"""

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from threading import Lock
from typing import Any, cast

import numpy as np
import torch

from weft.core.arguments import with_operands
from weft.core.errors import FAULTS, CompilerError, WeftError
from weft.library.calls import operator, torch_object
from weft.library.collectives import starts, wait
from weft.runtime.extern import bind, storages, torch_dtype
from weft.runtime.gpu_program import GPUKernel
from weft.runtime.layout import Layout
from weft.runtime.loaded import Loaded, Tensors
from weft.runtime.python_call import Steps
from weft.runtime.sizes import by_value, value
from weft.runtime.spec import Call, Extern

HEADERS = Path(__file__).parent / "gpu"
INCLUDE = re.compile(r'^#include "(weft_\w+\.\w+)"\n', re.MULTILINE)
STANDARD = "-cl-std=CL1.2"
EXACT = "-cl-fp32-correctly-rounded-divide-sqrt"  # a device may have it
WORDS = {  # what NumPy knows them as
    torch.bfloat16: torch.int16,
    torch.float8_e4m3fn: torch.int8,
    torch.float8_e5m2: torch.int8,
}


@dataclass(frozen=True)
class Device:
    """A device, and the queue of what it is to do."""

    handle: Any
    context: Any
    queue: Any

    @property
    def name(self) -> str:
        return self.handle.name.strip()


@cache
def pyopencl() -> Any:
    # PoCL's default for CPUs, "loopvec", runs loops of one length wrongly inside loops that are
    # longer for some work-items (3.1: columns of attention were wrong); its plain loops do not.
    os.environ.setdefault("POCL_WORK_GROUP_METHOD", "loops")
    try:
        import pyopencl
    except ImportError as e:
        raise WeftError("running OpenCL needs pyopencl: pip install 'weft[opencl]'") from e
    return cast(Any, pyopencl)


@cache
def find_device(part: str | None) -> Device:
    """The first GPU of any driver, or else the first device; of those with `part` in their name."""
    cl = pyopencl()
    try:
        devices = [device for platform in cl.get_platforms() for device in platform.get_devices()]
    except cl.Error:  # a loader that finds no driver
        devices = []
    if not devices:
        how = "install its driver, or one for the CPU (Debian: apt install pocl-opencl-icd)"
        raise WeftError(f"there is no OpenCL device here: {how}")
    wanted = [d for d in devices if (part or "").lower() in f"{d.name} {d.platform.name}".lower()]
    if not wanted:
        known = "; ".join(f"{d.name.strip()} ({d.platform.name})" for d in devices)
        raise WeftError(f"no OpenCL device is called {part!r} (WEFT_OPENCL): there are {known}")
    handle = next((d for d in wanted if d.type & cl.device_type.GPU), wanted[0])
    context = cl.Context([handle])
    return Device(handle, context, cl.CommandQueue(context))


def whole(text: str, seen: set[str] | None = None) -> str:
    """The text with the preludes that it includes in it, once: a driver need not read our files."""
    seen = set() if seen is None else seen

    def header(found: re.Match[str]) -> str:
        if found[1] in seen:
            return ""
        seen.add(found[1])
        return whole((HEADERS / found[1]).read_text().replace("#pragma once\n", ""), seen)

    return INCLUDE.sub(header, text)


def load(kernels: Mapping[str, GPUKernel], device: Device) -> dict[str, Any]:
    """The kernels as the device's driver builds them; WeftError where it cannot run one."""
    cl, handle = pyopencl(), device.handle
    for symbol, kernel in kernels.items():
        if re.search(r"f64\b", kernel.source) and not handle.double_fp_config:
            raise WeftError(f"kernel {symbol} computes in f64, which {device.name} has not")
    exact = handle.single_fp_config & cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT
    options = [STANDARD, "-w", *([EXACT] if exact else [])]
    program = cl.Program(device.context, whole("\n".join(k.source for k in kernels.values())))
    try:
        program.build(options, cache_dir=False)  # drivers have caches of their own
        made = {symbol: cl.Kernel(program, symbol) for symbol in kernels}
    except cl.Error as e:
        said = re.search(r"error: .*", str(e))
        raise CompilerError(f"{device.name} refused a kernel: {said[0] if said else e}") from e
    for symbol, kernel in kernels.items():
        most = made[symbol].get_work_group_info(cl.kernel_work_group_info.WORK_GROUP_SIZE, handle)
        if kernel.block > most:
            told = f"has blocks of {kernel.block} threads; {device.name} runs {most} at most"
            raise WeftError(f"kernel {symbol} {told}")
    return made


class OpenCLProgram(Loaded):
    """A program for a device that is looked for by the first call, by a part of its name.

    One call runs at a time, and every step of it has ended when it returns.
    """

    def __init__(self, layout: Layout, kernels: Mapping[str, GPUKernel], part: str | None) -> None:
        self.layout, self.kernels, self.part = layout, kernels, part
        self.lock = Lock()
        self.run = self.function()

    @cached_property
    def device(self) -> Device:
        return find_device(self.part)

    @cached_property
    def made(self) -> dict[str, Any]:
        return load(self.kernels, self.device) if self.kernels else {}

    def function(self, steps: Steps = "together") -> Callable[[Tensors], Any]:
        """A plain function, as other programs' is."""

        def run(inputs: Tensors) -> Any:
            with self.lock, torch.no_grad():
                results, times = self.call(inputs)
            return times if steps == "timed" else results

        return run

    def call(self, inputs: Tensors) -> tuple[tuple[Any, ...], list[tuple[str, float]]]:
        """The results of all steps in order, and the microseconds of each."""
        labels, spent = [label for label, _ in self.spec.sizes], list[tuple[str, float]]()
        sizes = tuple(inputs[len(inputs) - len(labels) :])
        layout = self.layout_at(sizes) if sizes else self.layout
        memory, known = Memory(layout, inputs, self.device), dict(zip(labels, sizes, strict=True))
        memory.there.update((by_value(label), np.int64(n)) for label, n in known.items())
        for number, step in enumerate(layout.spec.steps):
            if isinstance(step, Call):
                arguments = [memory.on_device(name) for name in step.args]
                begin = time.perf_counter()
                self.launch(step, arguments, known)
            else:
                for name in step.reads:
                    memory.on_host(name)
                begin = time.perf_counter()
                memory.extern(step)
            name = step.symbol if isinstance(step, Call) else step.target
            spent.append((name, (time.perf_counter() - begin) * 1e6))
            memory.release(number)
        return tuple(map(memory.result, self.spec.outputs)), spent

    def launch(self, call: Call, arguments: Sequence[Any], known: Mapping[str, int]) -> None:
        """Run a kernel to its end; what a check of it has found is raised."""
        cl, queue, kernel = pyopencl(), self.device.queue, self.kernels[call.symbol]
        fault = np.zeros(1, np.int32)
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        told = [] if call.checks is None else [cl.Buffer(self.device.context, flags, hostbuf=fault)]
        try:
            sizes = (value(kernel.grid, known) * kernel.block,), (kernel.block,)
            self.made[call.symbol](queue, *sizes, *arguments, *told)
            queue.finish()
        except cl.Error as e:
            raise WeftError(f"{self.device.name} cannot run kernel {call.symbol}: {e}") from e
        for buffer in told:
            cl.enqueue_copy(queue, fault, buffer)
        if fault[0]:
            raise FAULTS[int(fault[0])](call.checks)


@dataclass
class Memory:
    """The buffers of one call: tensors of the CPU and memory of the device, made when needed."""

    layout: Layout
    inputs: Sequence[torch.Tensor]
    device: Device
    host: dict[str, torch.Tensor] = field(default_factory=dict[str, torch.Tensor])
    there: dict[str, Any] = field(default_factory=dict[str, Any])

    def elements(self, name: str, tensor: torch.Tensor) -> np.ndarray:
        """The tensor's memory, from its first element to its last."""
        flat = tensor.as_strided((self.layout.buffers[name].span,), (1,))
        return flat.view(WORDS.get(flat.dtype, flat.dtype)).numpy()

    def on_device(self, name: str) -> Any:
        """Its memory there; what neither has yet is about to be written."""
        if name not in self.there:
            cl, b = pyopencl(), self.layout.buffers[name]
            size = max(b.span, 1) * torch_dtype(b.dtype).itemsize
            self.there[name] = cl.Buffer(self.device.context, cl.mem_flags.READ_WRITE, size)
            if b.span and (b.kind == "input" or name in self.host):
                values = self.elements(name, self.on_host(name))
                cl.enqueue_copy(self.device.queue, self.there[name], values)
        return self.there[name]

    def on_host(self, name: str) -> torch.Tensor:
        if name not in self.host:
            b = self.layout.buffers[name]
            if b.kind == "input":
                self.host[name] = self.inputs[b.index].detach()
                return self.host[name]
            tensor = torch.empty_strided(b.shape, b.strides, dtype=torch_dtype(b.dtype))
            if b.span and name in self.there:
                values = self.elements(name, tensor)
                pyopencl().enqueue_copy(self.device.queue, values, self.there[name])
            self.host[name] = tensor
        return self.host[name]

    def result(self, name: str) -> torch.Tensor:
        b = self.layout.buffers[name]
        return self.inputs[b.index] if b.kind == "input" else self.on_host(name)

    def extern(self, step: Extern) -> None:
        """Call an operator of torch on tensors of the CPU, and keep its results."""
        args = [with_operands(arg, self.host, torch_object) for arg in step.args]
        keywords = {
            key: with_operands(value, self.host, torch_object) for key, value in step.kwargs.items()
        }
        found = operator(step.target)(*args, **keywords)
        results = found if len(step.outputs) != 1 else (found,)
        own = storages(self.host[name] for name in step.reads)
        settled = wait if starts(step.target) else None
        for name, result in zip(step.outputs, results, strict=True):
            if name is not None:
                b = self.layout.buffers[name]
                dtype = torch_dtype(b.dtype)
                self.host[name] = bind(result, b.shape, b.strides, dtype, own, settled)

    def release(self, number: int) -> None:
        """Let go of what no step after this one touches."""
        for name in self.layout.ends.get(number, ()):
            self.host.pop(name, None)
            self.there.pop(name, None)
