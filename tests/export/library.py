"""Exported models, built and called from Python: what the tests compare with weft in-process.

library = exported(Source(fn, args, {}, "title"), folder)      # exported, built by make, opened
outputs = library.run(args)                                    # tensors, in the order of C
"""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from weft.cli.program import Source
from weft.export.folder import write_folder
from weft.export.targets import targets_of
from weft.export.traced import Traced, trace
from weft.options import Options
from weft.runtime.extern import torch_dtype

P, C, N = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
ROOM = 2048
OWN, INPUT, OUTPUT, WEIGHT = range(4)


class Tensor(ctypes.Structure):
    """weft_tensor."""

    _fields_ = [
        ("name", ctypes.c_char_p), ("dtype", ctypes.c_char_p), ("item_bytes", C), ("rank", C),
        ("shape", ctypes.POINTER(N)), ("strides", ctypes.POINTER(N)), ("extents", ctypes.c_char_p),
        ("written", C), ("memory", C), ("of", C), ("offset", N),
    ]  # fmt: skip


class Size(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p), ("low", N), ("high", N), ("divisor", N), ("input", C),
        ("dimension", C),
    ]  # fmt: skip


class Signature(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p), ("inputs", C), ("outputs", C), ("sizes", C),
        ("input", ctypes.POINTER(Tensor)), ("output", ctypes.POINTER(Tensor)),
        ("size", ctypes.POINTER(Size)), ("keeps_state", C), ("draws", C),
    ]  # fmt: skip


class Array(ctypes.Structure):
    _fields_ = [("data", P), ("shape", ctypes.POINTER(N)), ("strides", ctypes.POINTER(N))]


class Refused(Exception):
    """What the library says is wrong, and its number."""


def tensors_in(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def array(t: torch.Tensor) -> Array:
    shape, strides = ((N * max(1, t.dim()))(*n) for n in (t.shape, t.stride()))
    return Array(t.data_ptr(), shape, strides)


class Library:
    """A model's library, with one instance open."""

    def __init__(self, folder: Path, name: str = "m", weights: Path | None = None) -> None:
        self.name, self.c = name, ctypes.CDLL(str(folder / f"lib{name}.so"))
        self.error = ctypes.create_string_buffer(ROOM)
        for function in ("open", "signature_of", "isa"):
            getattr(self.c, f"{name}_{function}").restype = {
                "open": P, "signature_of": ctypes.POINTER(Signature), "isa": ctypes.c_char_p,
            }[function]  # fmt: skip
        path = str(weights or folder / "weights.safetensors").encode()
        opened = self.call("open", path, self.error, ctypes.c_size_t(ROOM))
        if not opened:
            raise Refused(self.error.value.decode())
        self.model = P(opened)

    def call(self, function: str, *args: Any) -> Any:
        return getattr(self.c, f"{self.name}_{function}")(*args)

    @property
    def isa(self) -> str:
        return self.call("isa", self.model).decode()

    def signature(self, number: int = 0) -> Signature:
        return self.call("signature_of", number).contents

    def close(self) -> None:
        self.call("close", self.model)

    def room(self) -> tuple[Any, ...]:
        return self.error, ctypes.c_size_t(ROOM)

    def checked(self, failed: int) -> None:
        if failed:
            raise Refused(failed, self.error.value.decode())

    def seed(self, seed: int) -> None:
        self.call("seed", self.model, ctypes.c_uint64(seed))

    def save(self, path: Path) -> None:
        self.checked(self.call("save", self.model, str(path).encode(), *self.room()))

    def shape(self, number: int, given: Any, output: int, rank: int) -> tuple[list[int], list[int]]:
        shape, strides = (N * max(1, rank))(), (N * max(1, rank))()
        self.checked(self.call("shape", number, given, output, shape, strides, *self.room()))
        return [*shape][:rank], [*strides][:rank]

    def run(
        self, args: Any, number: int = 0, threads: int | None = None
    ) -> list[tuple[str, torch.Tensor]]:
        """The outputs of a call with these arguments, whose tensors are the inputs."""
        s, tensors = self.signature(number), tensors_in(args)
        if len(tensors) != s.inputs:
            raise Refused(f"{len(tensors)} tensors for {s.inputs} inputs")
        given = (Array * max(1, s.inputs))(*map(array, tensors))
        made: list[Any] = [None] * s.outputs
        out = (Array * max(1, s.outputs))()
        for i in range(s.outputs):
            t = s.output[i]
            layout = self.shape(number, given, i, t.rank)
            made[i] = layout
            if t.memory == OWN:
                made[i] = torch.empty_strided(*layout, dtype=torch_dtype(t.dtype.decode()))
                out[i].data = made[i].data_ptr()
        count = torch.get_num_threads() if threads is None else threads
        self.checked(self.call("run", self.model, number, given, out, count, *self.room()))
        for i in range(s.outputs):
            if s.output[i].memory != OWN:
                made[i] = part(s.output[i], out[i].data, *made[i])
        names = [s.output[i].name.decode() for i in range(s.outputs)]
        return [*zip(names, made, strict=True)]


def part(t: Tensor, data: int, shape: list[int], strides: list[int]) -> torch.Tensor:
    """A copy of a tensor that lies in memory of something else."""
    dtype = torch_dtype(t.dtype.decode())
    if 0 in shape:
        return torch.empty_strided(shape, strides, dtype=dtype)
    span = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    raw = bytearray(ctypes.string_at(data, span * t.item_bytes))
    return torch.frombuffer(raw, dtype=dtype).as_strided(shape, strides)


def make(folder: Path, *arguments: str) -> None:
    """Build what was exported, with all warnings as errors."""
    command = ["make", "-s", "-C", str(folder), "CFLAGS=-Werror", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:2000]


def traced(sources: Sequence[Source], target: str, *, steps: bool, **options: Any) -> list[Traced]:
    chosen = Options(target="cpu", freeze=True, **options)
    return [trace(source, chosen, targets_of(target), steps=steps) for source in sources]


def export(
    sources: Sequence[Source],
    folder: Path,
    target: str = "cpu",
    name: str = "m",
    steps: bool = False,
    **options: Any,
) -> None:
    """Export calls of one program as signatures of a model."""
    write_folder(folder, name, traced(sources, target, steps=steps, **options))


def exported(
    source: Source, folder: Path, target: str = "cpu", *, name: str = "m", **more: Any
) -> Library:
    """A call exported, built and opened."""
    export([source], folder, target, name, **more)
    make(folder, f"lib{name}.so")
    return Library(folder, name)
