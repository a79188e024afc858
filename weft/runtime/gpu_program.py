"""A compiled program on a GPU: kernels on torch's stream, over memory of torch's allocator.

program = GPUProgram(lay_out(spec), {"k_relu": GPUKernel(text, 16, 256)}, device)
(y,) = program.run([x])                 # enqueued: y is what eager's would be, a fresh tensor
program.profile([x])                    # [("k_relu", 3.1)] in microseconds
"""

import ctypes
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from operator import itemgetter
from threading import Lock
from typing import Any, NamedTuple, Protocol

import torch

from weft.runtime.layout import Layout
from weft.runtime.layout import Segment as Steps
from weft.runtime.loaded import KEPT, Loaded
from weft.runtime.native import native_segments
from weft.runtime.nvrtc import Resources
from weft.runtime.sizes import by_value, value
from weft.runtime.spec import Call, Extent

ALIGNMENT = 16  # bytes: kernels read and write 16 at once
LEAST_RECORDED = 3  # kernels in a row: a graph of fewer costs as much as they do
KEPT_GRAPHS = 16  # of a segment, each for one set of addresses

Replay = Callable[[int], None]  # on a stream


@dataclass(frozen=True)
class GPUKernel:
    """A kernel's text and its launch: grid, block, and dynamic shared memory per block.

    A grid that sizes of the call decide is text, as in a launch spec. `maps` are operands behind
    its buffers, tensor maps for the copy engine: each (number of a buffer's operand, NumPy's name
    of its element type, sizes, strides in bytes, sides of a box, swizzle in bytes), outermost
    dimension first.
    """

    source: str
    grid: Extent
    block: int
    shared: int = 0
    maps: Sequence[Sequence[Any]] = ()


class Device(Protocol):
    """What a program needs of the GPU it runs on. Streams are the driver's handles."""

    place: torch.device

    def load(self, kernels: Mapping[str, GPUKernel]) -> Mapping[str, Any]: ...
    def resources(self, kernels: Mapping[str, GPUKernel]) -> Mapping[str, Resources]: ...
    def stream(self) -> int: ...
    def is_recording(self) -> bool: ...
    def current(self) -> AbstractContextManager[None]: ...
    def tensor_map(self, address: int, *facts: Any) -> bytes: ...
    def launch(self, function: Any, kernel: GPUKernel, operands: int, stream: int) -> None: ...
    def record(self, play: Replay) -> Replay: ...
    def wait(self, stream: int) -> None: ...
    def fault(self, function: Any) -> int: ...
    def microseconds(self, play: Replay, stream: int) -> float: ...


class GPUProgram(Loaded):
    """A program on a GPU. Calls may come from several threads, and run on the stream torch is on.

    Temporaries are one arena, allocated for the call and freed with it as eager's are: torch's
    allocator keeps memory to the stream it was freed on, so calls on several streams never share.
    """

    title, on_gpu = "on a GPU", True

    def __init__(self, layout: Layout, kernels: Mapping[str, GPUKernel], device: Device) -> None:
        self.layout, self.kernels, self.device = layout, kernels, device
        functions = device.load(kernels)
        self.segments = [
            Segment(layout, steps, kernels, functions, device) for steps in native_segments(layout)
        ]
        self.run = self.function()

    def names(self, views: list[str]) -> Mapping[str, Any]:
        return {
            "new_frame": self.new_frame,
            "new_arena": self.new_arena,
            "layout_at": self.layout_at,
            "layout": self.layout,
            "aligned": self.aligned,
            "empty": self.empty,
            "large_empty": self.empty,
            "threads": self.device.stream,
            "clock": self.clock,
            "time": self.time,
        }

    # ---- what that text calls

    def new_frame(self) -> tuple[Any, ...]:
        """The array of addresses, which one call at a time uses."""
        addresses = (ctypes.c_uint64 * max(1, len(self.layout.buffers)))()
        return addresses, ctypes.addressof(addresses)

    def new_arena(self, addresses: Any, layout: Layout) -> torch.Tensor:
        """Memory for the temporaries of a call, and their addresses."""
        arena = torch.empty(layout.plan.total, dtype=torch.uint8, device=self.device.place)
        base = arena.data_ptr()
        for index, offset in layout.places:
            addresses[index] = base + offset
        return arena

    def aligned(self, tensor: torch.Tensor, held: list[torch.Tensor]) -> int:
        """The address of a tensor's elements, or of a copy that lies as kernels need it.

        `held` keeps the copy until the call's work is enqueued; so does torch's allocator after.
        """
        if tensor.device != self.device.place:  # eager takes a number from the CPU
            tensor = tensor.to(self.device.place)
            held.append(tensor)
        address = tensor.data_ptr()
        if address % ALIGNMENT == 0:
            return address
        span = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
        copy = tensor.detach().as_strided((span,), (1,), tensor.storage_offset()).clone()
        held.append(copy)
        return copy.data_ptr()

    def empty(
        self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype
    ) -> torch.Tensor:
        return torch.empty_strided(shape, strides, dtype=dtype, device=self.device.place)

    def clock(self) -> float:
        """Seconds, when all that was enqueued is done: what an operator is timed by."""
        self.device.wait(self.device.stream())
        return time.perf_counter()

    def time(self, step: int, at: int, stream: int) -> float:
        """Microseconds of one kernel."""
        (segment,) = (s for s in self.segments if s.steps.first <= step < s.steps.stop)
        one = segment.launches_at(at)[step - segment.steps.first]
        return self.device.microseconds(lambda on: segment.play([one], on), stream)


@dataclass(frozen=True)
class Launch:
    """One kernel of a segment; `operands` are the numbers of its buffers."""

    function: Any
    kernel: GPUKernel
    operands: tuple[int, ...]
    checked: bool


class Encoded:
    """A tensor map operand, encoded again when its buffer's address in the frame changes.

    The driver wants 128 bytes at a multiple of 64; `place` is the buffer's index in the frame.
    """

    SIZE, ALIGNMENT = 128, 64

    def __init__(self, place: int, facts: Sequence[Any]) -> None:
        self.place, self.facts, self.address = place, facts, 0
        self.memory = (ctypes.c_char * (self.SIZE + self.ALIGNMENT))()
        self.at = -(-ctypes.addressof(self.memory) // self.ALIGNMENT) * self.ALIGNMENT

    def renew(self, device: Device) -> None:
        address = ctypes.c_uint64.from_address(self.place).value
        if address != self.address:
            ctypes.memmove(self.at, device.tensor_map(address, *self.facts), self.SIZE)
            self.address = address


class Ready(NamedTuple):
    """A kernel bound to one frame, ready to launch: `operands` are the addresses of its values."""

    function: Any
    kernel: GPUKernel
    at: int
    operands: Any
    maps: Sequence[Encoded]


class Segment:
    """Consecutive kernels: launched one by one, or replayed as a CUDA graph recorded before.

    A graph holds the addresses of the call it was recorded from, so it serves only calls with
    these very addresses. Addresses that come a second time are recorded: where tensors are made
    and freed in a steady rhythm torch's allocator soon gives the same ones again, and where they
    are not, nothing is recorded that would not be used. Nothing is ever copied for a graph's sake.
    """

    def __init__(
        self,
        layout: Layout,
        steps: Steps,
        kernels: Mapping[str, GPUKernel],
        functions: Mapping[str, Any],
        device: Device,
    ) -> None:
        self.steps, self.device = steps, device
        self.launches: list[Launch] = []
        for call in layout.spec.steps[steps.first : steps.stop]:
            assert isinstance(call, Call)
            operands = tuple(layout.index[name] for name in call.args)
            function, kernel = functions[call.symbol], kernels[call.symbol]
            self.launches.append(Launch(function, kernel, operands, call.checks is not None))
        self.checked = any(launch.checked for launch in self.launches)
        used = sorted({i for launch in self.launches for i in launch.operands})
        self.addresses = itemgetter(*used) if used else None
        self.table = ctypes.c_uint64 * max(1, len(layout.buffers))
        self.ready: dict[Any, list[Ready]] = {}  # by the place of the frame, and sizes in it
        labels = [label for label, _ in layout.spec.sizes]
        self.sizes = [(label, layout.index[by_value(label)]) for label in labels]
        self.graphs: dict[Any, Replay | None] = {}  # the least recently used first
        self.lock = Lock()

    def __call__(self, at: int, stream: int) -> int:
        """Enqueue all; 0, or 4 * the first step with a fault + the fault."""
        if self.device.is_recording():  # into a graph of the user's: no faults are read
            self.play(self.launches_at(at), stream)
            return 0
        replay = self.recorded(at) if len(self.launches) >= LEAST_RECORDED else None
        if replay is None:
            self.play(self.launches_at(at), stream)
        else:
            replay(stream)
        return self.fault(stream) if self.checked else 0

    def launches_at(self, at: int) -> list[Ready]:
        """Every launch with its operands, each of which is the place of an address in the frame."""
        frame = self.table.from_address(at) if self.sizes else ()
        known = {label: frame[index] for label, index in self.sizes}
        key = at, *known.values()
        found = self.ready.get(key)
        if found is None:
            found = []
            for one in self.launches:
                kernel = replace(one.kernel, grid=value(one.kernel.grid, known))
                places = [at + 8 * i for i in one.operands]
                maps = [Encoded(places[number], facts) for number, *facts in one.kernel.maps]
                places += [m.at for m in maps]
                operands = (ctypes.c_uint64 * len(places))(*places)
                start = ctypes.addressof(operands)
                found.append(Ready(one.function, kernel, start, operands, maps))
            self.ready[key] = found
            for oldest in [*self.ready][:-KEPT] if known else ():
                self.ready.pop(oldest, None)  # another thread may have let it go
        return found

    def play(self, launches: Sequence[Ready], stream: int) -> None:
        with self.device.current():
            for one in launches:
                for operand in one.maps:
                    operand.renew(self.device)
                self.device.launch(one.function, one.kernel, one.at, stream)

    def recorded(self, at: int) -> Replay | None:
        """The graph of these addresses, recorded when they come a second time."""
        assert self.addresses is not None
        key = self.addresses(self.table.from_address(at))
        with self.lock:
            known = key in self.graphs
            graph = self.graphs.pop(key, None)
            if known and graph is None:
                launches = self.launches_at(at)
                graph = self.device.record(lambda on: self.play(launches, on))
            self.graphs[key] = graph
            if len(self.graphs) > KEPT_GRAPHS:
                del self.graphs[next(iter(self.graphs))]
        return graph

    def fault(self, stream: int) -> int:
        """What a checked kernel met: known only when the stream has come so far."""
        self.device.wait(stream)
        for number, launch in enumerate(self.launches, self.steps.first):
            fault = self.device.fault(launch.function) if launch.checked else 0
            if fault:
                return 4 * number + fault
        return 0
