"""A compiled program: the launch spec, its shared object, and the Python call.

program, extra = build(spec, {"relu": c_text}, tools, key="the graph and its options")
(y,) = program.run([x])                     # the lean call: no checks, the front end made them
program.profile([x])                        # [("relu", 1.7)] in microseconds
"""

# This file reaches into torch: profilers and fast calls have no public names.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import ctypes
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from weft.core.errors import CacheError, refuse
from weft.library.calls import WROTE, operator
from weft.runtime.blocks import LARGE, block, large_empty
from weft.runtime.cache import digest
from weft.runtime.extern import torch_dtype
from weft.runtime.kept import PACKED, Kept, Packed, State, held, settle, sources_of, stale
from weft.runtime.kept import moved as moved_since
from weft.runtime.layout import Layout, item_bytes, lay_out
from weft.runtime.loaded import KEPT, Loaded
from weft.runtime.native import c_sources, fresh_buffers, native_segments, once_inputs
from weft.runtime.python_call import empty_of
from weft.runtime.sizes import NUMBERS, SIZES
from weft.runtime.spec import Call, Extern, ProgramSpec, names_in
from weft.runtime.spill import spill
from weft.runtime.threads import builtin, thread_table
from weft.runtime.toolchain import Toolchain

# From what tells whether inputs overlap, and what is called where they do, to a builtin.
Writing = Callable[[Callable[..., bool], Callable[..., Any]], Callable[..., Any]]
BRIEF = 1024  # elements of a program that keeps Python's lock, where one thread runs all of it


def build(
    spec: ProgramSpec,
    sources: Mapping[str, str],
    tools: Toolchain,
    key: str | None = None,
    extra: dict[str, Any] | None = None,
) -> tuple[Program, dict[str, Any]]:
    """Compile and link `sources` (any name -> C text) and keep the program in the cache.

    `key` is what a later process can know before it compiles anything; `extra` is JSON it gets
    back. The program that another process has kept under that key meanwhile is taken instead.
    Without a key the content is the key, and an identical program is not built again.
    """
    tree = spec.to_json()
    texts = {**sources, **c_sources(lay_out(spec))}
    made = tools.build if key else tools.shared
    content = digest(json.dumps([tree, texts, extra]))
    return _opened(*made(key or content, texts, {"spec": tree, "extra": extra}), tools)


def load(key: str, tools: Toolchain) -> tuple[Program, dict[str, Any]] | None:
    """The program that `build` kept under `key`, with its `extra`; None when there is none."""
    found = tools.cache.load(key)
    try:
        return None if found is None else _opened(*found, tools)
    except CacheError:  # another process has just removed it
        return None


def _opened(
    path: Path, manifest: dict[str, Any], tools: Toolchain
) -> tuple[Program, dict[str, Any]]:
    layout = lay_out(ProgramSpec.from_json(manifest["spec"]))
    return Program(layout, path, tools), manifest["extra"] or {}


class Placements(dict[tuple[int, ...], tuple[Any, ...]]):
    """A frame of a program for any size: one arena, and by sizes what lies where in it.

    Calls that alternate between a few sizes find what they need; the oldest of many is forgotten.
    What once steps make is the same at all sizes: `kept` says what they ran with, what they made,
    and which storages they read.
    """

    arena: torch.Tensor | None = None

    def __init__(self, addresses: ctypes.Array[ctypes.c_void_p]) -> None:
        super().__init__()
        self.addresses, self.kept = addresses, nothing()

    def keep_only(self, sizes: tuple[int, ...]) -> None:
        """Once steps are bound to other memory, in the addresses for these sizes alone."""
        placement = self[sizes]
        self.addresses = placement[0]
        self.clear()
        self[sizes] = placement


class Program(Loaded):
    """A program on the CPU. `run(inputs)` is a plain function: hold on to it for the fastest call.

    Calls may come from several threads at once and may nest; each has an arena of its own, and
    arenas are kept for later calls.
    """

    def __init__(self, layout: Layout, path: Path, tools: Toolchain, openmp: bool = True) -> None:
        self.layout = layout
        self.path = path
        self.library = open_library(path)
        self.library.weft_bind(thread_table(tools, openmp), tensor_data)
        if layout.spec.sizes:
            self.library.weft_arena.restype = ctypes.c_int64
            self.library.weft_arena.argtypes = [ctypes.c_void_p] * 3
        self.title = path.parent.name[:8]
        self.of = sources_of(layout)
        numbers = layout.spec.numbers
        self.numbers = (ctypes.c_int64 * len(numbers))(*numbers)
        natives = enumerate(native_segments(layout))
        self.segments = [self.segment(f"weft_segment{number}") for number, _ in natives]
        self.run: Any = self.function()
        self.run.direct, self.run.writing = self.direct(), self.writing()

    def segment(self, name: str) -> Any:
        """The C function `name` of some steps: one that runs them, or one that takes addresses."""
        address = ctypes.cast(self.library[name], ctypes.c_void_p).value
        return builtin("weft_runtime_segment", address)

    def direct(self) -> Callable[..., Any] | None:
        """run(inputs) as a builtin of the inputs, in a third of the time; None where it is more.

        A call is that simple where it is one segment for one size, and all new tensors are outputs.
        """
        simple = not self.spec.sizes and fresh_buffers(self.layout) == [[*self.spec.outputs]]
        return self._builtin(self.spec.steps, self.run) if simple else None

    def writing(self) -> Writing | None:
        """Makes such a builtin of a program that writes to its inputs; None where it is more."""
        *steps, last = self.spec.steps or (None,)
        if not isinstance(last, Extern) or last.target != WROTE or self.spec.sizes:
            return None
        known = {b.name: b.index for b in self.spec.buffers if b.kind == "input"}
        simple = fresh_buffers(self.layout) == [[*self.spec.outputs]]
        if not simple or not known.keys() >= {*last.reads}:
            return None
        written = tuple(known[name] for name in last.reads)

        def make(apart: Callable[..., bool], otherwise: Callable[..., Any]) -> Any:
            def general(given: Any) -> Any:
                return self.run(given) if apart(*given) else otherwise(*given)

            place = ctypes.cast(self.library.weft_place0, ctypes.c_void_p).value
            return self._builtin(steps, general, place, apart, written, operator(WROTE))

        return make

    def _builtin(self, steps: Sequence[Any], general: Callable[..., Any], *writes: Any) -> Any:
        """A builtin of the inputs, of one segment with these steps; None where it is more."""
        if not steps or not all(isinstance(step, Call) and step.once is None for step in steps):
            return None
        spec, known, frames = self.spec, self.run.__globals__, list[Any]()
        name = "weft_placed0" if writes else "weft_segment0"
        segment = ctypes.cast(self.library[name], ctypes.c_void_p).value
        count = max((b.index + 1 for b in spec.buffers if b.kind == "input"), default=0)
        own = [general, count, known["profiling"], frames.pop, frames, lambda: self.new_frame([])]
        elements = sum(b.span for b in spec.buffers if isinstance(b.span, int))
        brief = elements <= BRIEF and not any(step.shared or step.grain for step in steps)
        own += [None if brief else known["threads"], segment]
        own += [lambda fault: refuse(self.error(fault))]
        outputs = [self.layout.buffers[name] for name in spec.outputs]
        new = [(known[empty_of(b)], (b.shape, b.strides, torch_dtype(b.dtype))) for b in outputs]
        return builtin("weft_runtime_program", (*own, tuple(new), *writes))

    def names(self, views: list[str]) -> Mapping[str, Any]:
        return {
            "new_frame": lambda: self.new_frame(views),
            "at_sizes": lambda frame, sizes: self.at_sizes(frame, sizes, views),
            "keep_only": Placements.keep_only,
            "empty": empty_strided,
            "large_empty": large_empty,
            "threads": torch.get_num_threads,
            "bind": self.bind,
            "stale": stale,
            "settle": self.settle,
            "moved": moved_since,
            "clock": time.perf_counter,
            "time": self.library.weft_time,
            "stamp": self.library.weft_stamp,
            "one": self.library.weft_one,
            "profiling": torch.autograd._profiler_enabled,
            "record": record,
            "recorded": self.recorded,
            **{f"place{n}": self.segment(f"weft_place{n}") for n in range(len(self.segments))},
        }

    def new_frame(self, views: list[str]) -> tuple[Any, ...] | Placements:
        """The array of addresses, temporaries filled in, and an arena with views."""
        layout = self.layout
        addresses = (ctypes.c_void_p * max(1, len(layout.buffers)))()
        if self.spec.numbers:
            addresses[layout.index[NUMBERS]] = ctypes.addressof(self.numbers)
        if layout.spec.sizes:
            return Placements(addresses)  # `at_sizes` finds the rest
        arena = allocate_arena(layout.plan.total)
        for name, offset in layout.plan.offsets.items():
            addresses[layout.index[name]] = arena.data_ptr() + offset
        tensors = [layout.arena_view(arena, name) for name in views]
        return (addresses, ctypes.addressof(addresses), arena, nothing(), *tensors)

    def at_sizes(
        self, frame: Placements, sizes: tuple[int, ...], views: list[str]
    ) -> tuple[Any, ...]:
        """Place the arena for sizes that `frame` doesn't know, and note where everything is."""
        addresses = type(frame.addresses).from_buffer_copy(frame.addresses)
        at, array = ctypes.addressof(addresses), (ctypes.c_int64 * len(sizes))(*sizes)
        total = self.library.weft_arena(at, None, array)
        if frame.arena is None or frame.arena.numel() < total:
            frame.arena = allocate_arena(total)
            frame.clear()
        self.library.weft_arena(at, frame.arena.data_ptr(), array)
        if SIZES in self.layout.index:
            addresses[self.layout.index[SIZES]] = ctypes.addressof(array)
        layout = self.layout_at(sizes) if views else self.layout
        tensors = [layout.arena_view(frame.arena, name) for name in views]
        if len(frame) >= KEPT:
            del frame[next(iter(frame))]
        frame[sizes] = (addresses, at, array, frame.kept, *tensors)
        return frame[sizes]

    def bind(self, addresses: ctypes.Array[ctypes.c_void_p], now: tuple[int, ...]) -> Kept:
        """Address what once steps make, in memory shared by all that make the same.

        `now` begins with the versions of what they read.
        """
        found: dict[str, tuple[Packed, State]] = {}
        constants = [self.layout.index[name] for name in once_inputs(self.layout)]
        for step in self.spec.steps:
            if not isinstance(step, Call) or step.once is None:
                continue
            buffers = [self.layout.buffers[name] for name in step.args]
            made = [b for b in buffers if b.kind == "kept" and b.name not in found]
            read = [addresses[self.layout.index[b.name]] for b in buffers if b not in made]
            for number, b in enumerate(made):
                key = (step.once, *read, number)
                own = PACKED.get(key)
                if own is None:
                    own = PACKED[key] = Packed(allocate_arena(b.span * item_bytes(b)))
                state = tuple((addresses[constants[i]] or 0, now[i]) for i in self.of[b.name])
                found[b.name] = own, state
                addresses[self.layout.index[b.name]] = own.memory.data_ptr()
        return list(found.values())

    def settle(self, kept: Kept, sources: Sequence[torch.Tensor]) -> Sequence[Any]:
        """Notes that it is made of those constants, and drops those that nothing else reads."""
        if self.drops_to is not None:
            others = (s for s in self.spec.steps if isinstance(s, Extern) or s.once is None)
            read = {name for step in others for name in names_in(step)} | {*self.spec.outputs}
            pairs = zip(once_inputs(self.layout), sources, strict=True)
            spill([s for name, s in pairs if name not in read], self.drops_to)
        return settle(kept, sources)

    @property
    def kept(self) -> dict[int, int]:
        """Bytes that its calls keep of constants, by address; those of other programs are too."""
        found: dict[int, int] = {}
        for frame in [*self.run.__globals__["frames"]]:
            state = frame.kept if isinstance(frame, Placements) else frame[3]
            found |= held(state[1])
        return found


def nothing() -> list[Any]:
    """The state of what a frame keeps before its first call."""
    return [None, (), ()]


def allocate_arena(size: int) -> torch.Tensor:
    """Bytes at a 64-byte boundary, outside inference mode as in `block`."""
    if size >= LARGE:
        return block(size)
    with torch.inference_mode(False):
        return torch.empty(size, dtype=torch.uint8, device="cpu")


def open_library(path: Path) -> ctypes.CDLL:
    """Load a program's shared object and declare the functions every program has."""
    try:
        library = ctypes.CDLL(str(path))
    except OSError as e:
        raise CacheError(f"cannot load a compiled program: {e}", str(path)) from e
    library.weft_bind.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    library.weft_stamp.restype = ctypes.c_uint64
    library.weft_stamp.argtypes = [ctypes.c_void_p]
    library.weft_one.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int]
    library.weft_time.restype = ctypes.c_double
    library.weft_time.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int]
    return library


# a row of torch's profiler, by the cheapest way there is
record: Any = getattr(torch._C, "_profiler")._RecordFunctionFast  # noqa: B009
# What Inductor's wrappers call: torch's allocator for compiled code, twice as fast as the public
# one, and a C function from a tensor to its elements.
guards: Any = sys.modules["torch._C._dynamo.guards"]
empty_strided: Callable[..., torch.Tensor] = guards._empty_strided_cpu
tensor_data: int = guards._torchinductor_pyobject_tensor_data_ptr
