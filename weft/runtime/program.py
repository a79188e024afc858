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
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import torch

from weft.core.errors import CacheError
from weft.runtime.blocks import LARGE, block, large_empty
from weft.runtime.cache import digest
from weft.runtime.layout import Layout, Segment, item_bytes, lay_out
from weft.runtime.loaded import KEPT, Loaded
from weft.runtime.native import c_source, is_checked, native_segments
from weft.runtime.sizes import SIZES
from weft.runtime.spec import Call, ProgramSpec
from weft.runtime.threads import thread_table
from weft.runtime.toolchain import Toolchain

_kept: WeakValueDictionary[tuple[Any, ...], torch.Tensor] = WeakValueDictionary()


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
    texts = {**sources, "weft_main": c_source(lay_out(spec))}
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
    What once steps make is the same at all sizes: `kept` says what they ran with.
    """

    arena: torch.Tensor | None = None

    def __init__(self, addresses: ctypes.Array[ctypes.c_void_p]) -> None:
        super().__init__()
        self.addresses, self.kept = addresses, [None, ()]

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
        self.library.weft_bind(thread_table(tools, openmp), *tensor_data())
        if layout.spec.sizes:
            self.library.weft_arena.restype = ctypes.c_int64
            self.library.weft_arena.argtypes = [ctypes.c_void_p] * 3
        self.title = path.parent.name[:8]
        self.segments = [self.segment(*one) for one in enumerate(native_segments(layout))]
        self.run = self.function()

    def segment(self, number: int, native: Segment) -> Any:
        """The C function of some steps."""
        run = self.library[f"weft_segment{number}"]
        run.restype = ctypes.c_int if is_checked(self.layout, native) else None
        run.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]
        return run

    def place(self, number: int) -> Any:
        """The C function that takes the addresses of a segment's tensors, and runs nothing."""
        place = self.library[f"weft_place{number}"]
        place.restype, place.argtypes = None, [ctypes.c_void_p] * 3
        return place

    def names(self, views: list[str]) -> Mapping[str, Any]:
        return {
            "new_frame": lambda: self.new_frame(views),
            "at_sizes": lambda frame, sizes: self.at_sizes(frame, sizes, views),
            "keep_only": Placements.keep_only,
            "empty": empty_strided,
            "large_empty": large_empty,
            "threads": torch.get_num_threads,
            "bind": self.bind,
            "clock": time.perf_counter,
            "time": self.library.weft_time,
            "stamp": self.library.weft_stamp,
            "one": self.library.weft_one,
            "profiling": torch.autograd._profiler_enabled,
            "record": record,
            "recorded": self.recorded,
            **{f"place{number}": self.place(number) for number in range(len(self.segments))},
        }

    def new_frame(self, views: list[str]) -> tuple[Any, ...] | Placements:
        """The array of addresses, temporaries filled in, and an arena with views."""
        layout = self.layout
        addresses = (ctypes.c_void_p * max(1, len(layout.buffers)))()
        if layout.spec.sizes:
            return Placements(addresses)  # `at_sizes` finds the rest
        arena = allocate_arena(layout.plan.total)
        for name, offset in layout.plan.offsets.items():
            addresses[layout.index[name]] = arena.data_ptr() + offset
        tensors = [layout.arena_view(arena, name) for name in views]
        return (addresses, ctypes.addressof(addresses), arena, [None, ()], *tensors)

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

    def bind(self, addresses: ctypes.Array[ctypes.c_void_p]) -> list[torch.Tensor]:
        """Address what once steps make, in memory shared by all that make the same."""
        held: dict[str, torch.Tensor] = {}
        for step in self.spec.steps:
            if not isinstance(step, Call) or step.once is None:
                continue
            buffers = [self.layout.buffers[name] for name in step.args]
            made = [b for b in buffers if b.kind == "kept" and b.name not in held]
            read = [addresses[self.layout.index[b.name]] for b in buffers if b not in made]
            for number, b in enumerate(made):
                key = (step.once, *read, number)
                memory = _kept.get(key)
                if memory is None:
                    memory = _kept[key] = allocate_arena(b.span * item_bytes(b))
                held[b.name] = memory
                addresses[self.layout.index[b.name]] = memory.data_ptr()
        return list(held.values())


def allocate_arena(size: int) -> torch.Tensor:
    """Bytes at a 64-byte boundary, outside inference mode as in `block`."""
    if size >= LARGE:
        return block(size)
    with torch.inference_mode(False):
        return torch.empty(size, dtype=torch.uint8, device="cpu")


@cache
def tensor_data() -> tuple[Any, int]:
    """For weft_bind: a C function from a tensor to its elements, and where a tuple's items begin.

    Inductor's C++ wrappers call the same function. Without it Python is asked.
    """
    address = getattr(guards, "_torchinductor_pyobject_tensor_data_ptr", None)
    if not isinstance(address, int):
        callback = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)(torch.Tensor.data_ptr)
        _callbacks.append(callback)
        address = ctypes.cast(callback, ctypes.c_void_p)
    return address, tuple.__basicsize__


_callbacks: list[Any] = []  # which C may call as long as the process lives


def open_library(path: Path) -> ctypes.CDLL:
    """Load a program's shared object and declare the functions every program has."""
    try:
        library = ctypes.CDLL(str(path))
    except OSError as e:
        raise CacheError(f"cannot load a compiled program: {e}", str(path)) from e
    library.weft_bind.restype = None
    library.weft_bind.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    library.weft_stamp.restype = ctypes.c_uint64
    library.weft_stamp.argtypes = [ctypes.c_void_p]
    library.weft_one.restype = ctypes.c_int
    library.weft_one.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int]
    library.weft_time.restype = ctypes.c_double
    library.weft_time.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int]
    return library


def public_empty(
    shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype
) -> torch.Tensor:
    """An uninitialised CPU tensor, through torch's public interface."""
    return torch.empty_strided(shape, strides, dtype=dtype, device="cpu")


# a row of torch's profiler, by the cheapest way there is
record: Any = getattr(torch._C, "_profiler")._RecordFunctionFast  # noqa: B009
# torch's allocator for compiled code (Inductor's too), twice as fast as the public one
guards = sys.modules.get("torch._C._dynamo.guards")
empty_strided: Callable[..., torch.Tensor] = getattr(guards, "_empty_strided_cpu", public_empty)
