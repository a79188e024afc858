"""Exported CUDA without a GPU: the fake driver, and launches that the simulator runs.

with FakeDevice(tmp_path) as device:
    library = device.exported(source(fn, x), tmp_path / "m")     # launches run in the simulator
    library.run((x,))
    device.launched                                              # kernels by name, in order
"""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from tests.export.library import Library, make, traced
from tests.export.same import compared, in_process, own
from tests.gpu.simulated_device import SimulatedDevice
from weft.cli.program import Source
from weft.export.folder import write_folder
from weft.runtime.gpu_program import GPUKernel
from weft.runtime.spec import Call

HERE = Path(__file__).parent
P = ctypes.c_void_p
RUN = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_char_p, P, *[ctypes.c_uint] * 3, ctypes.POINTER(ctypes.c_void_p)
)
WARNINGS = "-std=gnu11 -g -Wall -Wextra -Werror -Wno-unused-parameter -shared -fPIC -pthread"


def fake_driver(folder: Path, *flags: str, cc: str = "gcc") -> Path:
    """The fake driver, built as libcuda.so.1."""
    path = folder / "libcuda.so.1"
    command = [cc, *WARNINGS.split(), *flags, str(HERE / "fake_cuda.c"), "-o", str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return path


class FakeDevice:
    """A device of an architecture, such as 9.0, whose kernels are known from what was exported."""

    def __init__(self, folder: Path, arch: str = "sm_90a") -> None:
        self.driver = fake_driver(folder)
        self.c = ctypes.CDLL(str(self.driver))
        self.simulated = SimulatedDevice(arch)
        self.number("major").value = int(arch.removeprefix("sm_").rstrip("a")) // 10
        self.kernels: dict[tuple[str, bytes], GPUKernel] = {}  # by name and cubin
        self.run = RUN(self.play)
        self.error: BaseException | None = None
        P.in_dll(self.c, "fake_run").value = ctypes.cast(self.run, P).value

    @property
    def launched(self) -> list[str]:
        return self.simulated.launched

    def number(self, name: str) -> Any:
        return ctypes.c_int.in_dll(self.c, f"fake_{name}")

    @property
    def live(self) -> int:
        return ctypes.c_longlong.in_dll(self.c, "fake_live").value

    def play(self, name: bytes, image: int, grid: int, block: int, shared: int, params: Any) -> int:
        """One launch, in the simulator; its fault."""
        symbol = name.decode()
        try:
            own = (k for k in self.kernels if k[0] == symbol)
            key = next(k for k in own if k[1] == ctypes.string_at(image, len(k[1])))
            kernel = self.kernels[key]
            assert (block, shared) == (kernel.block, kernel.shared)
            count = len(self.simulated.operands[kernel.source]) + len(kernel.maps)
            addresses = [ctypes.c_uint64.from_address(params[i]).value for i in range(count)]
            self.simulated.play(symbol, replace(kernel, grid=grid), addresses)
        except BaseException as error:
            self.error = error
            return 0
        return self.simulated.faults.pop(symbol, 0)

    def exported(
        self,
        source: Source | Sequence[Source],
        folder: Path,
        target: str = "sm_90a",
        *,
        steps: bool = False,
        **options: Any,
    ) -> Library:
        """A model exported, built for the fake driver, and opened."""
        sources = [source] if isinstance(source, Source) else source
        calls = traced(sources, target, steps=steps, **options)
        write_folder(folder, "m", calls)
        for call in calls:
            (code,) = (c for c in call.codes if c.isa.name == self.simulated.arch)
            for step in code.layout.spec.steps:
                assert isinstance(step, Call)
                if step.symbol in code.kernels:
                    kernel = code.kernels[step.symbol]
                    self.kernels[step.symbol, code.cubins[step.symbol]] = kernel
                    buffers = [code.layout.buffers[name] for name in step.args]
                    self.simulated.operands[kernel.source] = buffers
        make(folder, "libm.so", f"CFLAGS=-Werror -DWEFT_LIBCUDA='\"{self.driver}\"'")
        return Library(folder)

    def differs(self, fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any], folder: Path) -> str:
        """Export, build and run a program: "" where it gives what the simulator does in-process."""
        target = f"cuda:{self.simulated.arch}"
        expected, after = in_process(fn, args, kwargs, target, simulate=True)
        given, named = own(args, kwargs)
        library = self.exported(Source(fn, tuple(given), named, "program"), folder, target)
        told = compared(library, (given, named), expected, after)
        if self.error is not None:
            raise self.error
        return told or (f"{self.live} things are left on the device" if self.live else "")

    def outputs(self, library: Library, args: Sequence[Any], number: int = 0) -> list[torch.Tensor]:
        """A run from memory of the CPU; what the simulator refused is raised."""
        found = library.run(args, number)
        if self.error is not None:
            raise self.error
        return [t for name, t in found if not name.startswith("memory.")]
