"""A device whose kernels run in the simulator, on the CPU's memory: all of a launch but the driver.

with simulated() as device:
    weft.compile(f, target="cuda:sm_90a")(x)     # x and the result are on the CPU
    device.launched, device.recorded, device.replayed
"""

from __future__ import annotations

import ctypes
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from weft import driver
from weft.link import gpu, places
from weft.runtime.gpu_program import GPUKernel, GPUProgram, Replay
from weft.runtime.layout import item_bytes
from weft.runtime.nvrtc import Resources
from weft.runtime.sizes import value
from weft.runtime.spec import Buffer, Call
from weft.sim import TensorMap, simulate

STREAM = 7


@dataclass
class SimulatedDevice:
    """Launches by address, as a driver does; `recording` says that the stream is a graph's."""

    arch: str
    place: torch.device = torch.device("cpu")  # noqa: RUF009
    launched: list[str] = field(default_factory=list)
    streams: list[int] = field(default_factory=list)
    recorded: int = 0
    replayed: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    recording: bool = False
    operands: dict[str, list[Buffer]] = field(default_factory=dict)  # of each text
    tape: list[tuple[str, GPUKernel, list[int]]] | None = None

    def load(self, kernels: Mapping[str, GPUKernel]) -> Mapping[str, str]:
        return {symbol: symbol for symbol in kernels}

    def resources(self, kernels: Mapping[str, GPUKernel]) -> Mapping[str, Resources]:
        return {symbol: Resources(64, 8, 0, 1024) for symbol in kernels}

    def current(self) -> AbstractContextManager[None]:
        return nullcontext()

    def stream(self) -> int:
        return STREAM

    def is_recording(self) -> bool:
        return self.recording

    def tensor_map(self, address: int, *facts: Any) -> bytes:
        return address.to_bytes(128, "little")  # the rest the kernel tells

    def launch(self, function: str, kernel: GPUKernel, operands: int, stream: int) -> None:
        count = len(self.operands[kernel.source]) + len(kernel.maps)
        places = (ctypes.c_uint64 * count).from_address(operands)
        addresses = [ctypes.c_uint64.from_address(place).value for place in places]
        if self.tape is not None:
            self.tape.append((function, kernel, addresses))
        else:
            self.streams.append(stream)
            self.play(function, kernel, addresses)

    def play(self, function: str, kernel: GPUKernel, addresses: list[int]) -> None:
        """One launch over views of the memory at its addresses."""
        self.launched.append(function)
        operands = list(zip(self.operands[kernel.source], addresses, strict=False))
        known = {b.name.removeprefix("size "): n for b, n in operands if b.kind == "sizes"}
        args: list[Any] = []
        for b, address in operands:
            if b.kind == "sizes":
                args.append(np.int64(address))
                continue
            assert address % 16 == 0, (function, addresses)
            count = max(1, value(b.span, known) * item_bytes(b))
            args.append(np.ctypeslib.as_array((ctypes.c_uint8 * count).from_address(address)))
        for address, (number, dtype, sizes, strides, sides, swizzle) in zip(
            addresses[len(args) :], kernel.maps, strict=True
        ):
            assert address == addresses[number], "the map is of another call's operand"
            tensor = np.ndarray(sizes, np.dtype(dtype), args[number], 0, strides)
            args.append(TensorMap(tensor, tuple(sides), swizzle))
        where = (kernel.source, function, kernel.grid, kernel.block, args)
        report = simulate(*where, shared_bytes=kernel.shared, arch=self.arch)
        checks = [fault for fault in report.faults if fault.kind == "check"]
        assert len(checks) == len(report.faults), str(report)
        if checks:
            self.faults[function] = 2 if "zero" in str(checks[0]) else 1

    def record(self, play: Replay) -> Replay:
        self.tape, tape = [], []
        play(STREAM + 1)
        tape, self.tape = self.tape, None
        self.recorded += 1

        def replay(stream: int) -> None:
            self.replayed += 1
            self.streams.append(stream)
            for function, kernel, addresses in tape:
                self.play(function, kernel, addresses)

        return replay

    def wait(self, stream: int) -> None:
        assert stream == STREAM

    def fault(self, function: str) -> int:
        return self.faults.pop(function, 0)

    def microseconds(self, play: Replay, stream: int) -> float:
        play(stream)
        return 5.0


@contextmanager
def simulated(arch: str = "sm_90a") -> Generator[SimulatedDevice, None, None]:
    """What a device would run is simulated, and CPU tensors count as its own."""
    device = SimulatedDevice(arch)

    class Program(GPUProgram):
        def __init__(self, layout: Any, kernels: Any, given: Any) -> None:
            for step in layout.spec.steps:
                if isinstance(step, Call):
                    buffers = [layout.buffers[name] for name in step.args]
                    device.operands[kernels[step.symbol].source] = buffers
            super().__init__(layout, kernels, given)

    with (
        patch.object(gpu, "open_device", lambda place, arch: device),
        patch.object(gpu, "GPUProgram", Program),
        patch.object(gpu, "misplaced", lambda place, target: None),
        patch.object(places, "misplaced", lambda place, target: None),
        patch.object(driver, "misplaced", lambda place, target: None),
    ):
        yield device
