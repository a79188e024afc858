"""Reads GGUF: the metadata, and each tensor as a storage of its blocks.

file = read("model.gguf")
file.metadata["general.architecture"], file.storage("blk.0.attn_q.weight")

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import math
import os
import struct
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from typing import Any

import numpy as np
import torch
from torch import Tensor

from weft.lowbit.blocks import BLOCKS, Block
from weft.lowbit.storage import LowBitError, Storage

MAGIC = b"GGUF"
NUMBERS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
STRING, ARRAY = 8, 9


@dataclass(frozen=True)
class Entry:
    """A tensor of the file: its shape in torch's order, its type, and where its bytes are."""

    shape: tuple[int, ...]
    block: Block
    start: int

    @property
    def size(self) -> int:
        return math.prod(self.shape) // self.block.elements * self.block.size


class Gguf:
    """A file that was read: its metadata by key, its tensors by name."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self.metadata: dict[str, Any] = {}
        self.entries: dict[str, Entry] = {}
        try:
            with open(self.path, "rb") as file:
                self.bytes = mmap(file.fileno(), 0, access=ACCESS_READ)
        except (OSError, ValueError) as error:  # no such file; an empty one
            raise self.error(str(error)) from None
        self.at = 0

    def error(self, what: str) -> LowBitError:
        return LowBitError(f"{self.path}: {what}")

    def take(self, size: int) -> bytes:
        if size > len(self.bytes) - self.at:
            raise self.error(f"cut off: {size} bytes are missing at byte {self.at}")
        self.at += size
        return self.bytes[self.at - size : self.at]

    def number(self, kind: str) -> Any:
        return struct.unpack("<" + kind, self.take(struct.calcsize("<" + kind)))[0]

    def string(self) -> str:
        return self.take(self.number("Q")).decode("utf-8", "replace")

    def value(self, kind: int) -> Any:
        if kind in NUMBERS:
            return self.number(NUMBERS[kind])
        if kind == STRING:
            return self.string()
        if kind != ARRAY:
            raise self.error(f"metadata of the unknown type {kind}")
        kind, count = self.number("I"), self.number("Q")
        if kind in NUMBERS:
            size = struct.calcsize("<" + NUMBERS[kind])
            return np.frombuffer(self.take(count * size), "<" + NUMBERS[kind])
        if kind != STRING:
            raise self.error(f"an array of the type {kind}, not of numbers or strings")
        return [self.string() for _ in range(count)]

    def header(self) -> None:
        """Reads all but the tensors' bytes, and checks that these are in the file."""
        if self.take(4) != MAGIC:
            raise self.error("not a GGUF file: it does not begin with GGUF")
        version = self.number("I")
        if version not in (2, 3):
            raise self.error(
                f"version {version} of GGUF; 2 and 3, of little-endian files, are read"
            )
        tensors, keys = self.number("Q"), self.number("Q")
        for _ in range(keys):
            key = self.string()
            self.metadata[key] = self.value(self.number("I"))
        for _ in range(tensors):
            self.entry()
        unit = self.metadata.get("general.alignment", 32)
        if not isinstance(unit, int) or unit < 1:
            raise self.error(f"general.alignment is {unit}")
        base = -(-self.at // unit) * unit
        for name, entry in self.entries.items():
            start = base + entry.start
            if start + entry.size > len(self.bytes):
                raise self.error(
                    f"cut off: the tensor {name} ends at byte {start + entry.size} of "
                    f"{len(self.bytes)}"
                )
            self.entries[name] = Entry(entry.shape, entry.block, start)

    def entry(self) -> None:
        name, rank = self.string(), self.number("I")
        if not 1 <= rank <= 4:
            raise self.error(f"the tensor {name} has {rank} dimensions")
        shape = tuple(self.number("Q") for _ in range(rank))[::-1]
        kind, start = self.number("I"), self.number("Q")
        if kind not in BLOCKS:
            known = ", ".join(block.name for block in BLOCKS.values())
            raise self.error(
                f"the tensor {name} has blocks of the unknown type {kind}, not {known}"
            )
        block = BLOCKS[kind]
        if shape[-1] % block.elements or min(shape) < 1 or name in self.entries:
            what = "comes twice" if name in self.entries else f"is of shape {[*shape]}"
            raise self.error(f"the tensor {name} of {block.name} {what}")
        self.entries[name] = Entry(shape, block, start)

    def storage(self, name: str) -> Storage:
        """The storage of a tensor [..., K], as N rows of K; its bytes are copied.

        LowBitError if the file has no such tensor, or one with a scale that is not finite.
        """
        if name not in self.entries:
            raise self.error(f"there is no tensor {name}")
        entry = self.entries[name]
        raw = torch.frombuffer(
            bytearray(self.bytes[entry.start : entry.start + entry.size]), dtype=torch.uint8
        )
        shape = -1, entry.shape[-1] // entry.block.elements, entry.block.size
        storage = entry.block.read(raw.reshape(shape))
        check_scales(storage, f"{self.path}: the tensor {name} of {entry.block.name}")
        return storage

    def floats(self, name: str) -> Tensor:
        """A tensor of any type, in f32 and its own shape."""
        return self.storage(name).weight(torch.float32).reshape(self.entries[name].shape)


def check_scales(storage: Storage, what: str) -> None:
    """LowBitError if floats of a storage are not finite, or a scale of E8M0 is no number."""
    for path, part in storage.named_buffers():
        name = path.rpartition(".")[2]
        exponent = name == "scale" and part.dtype == torch.uint8
        part = part[:255] if name == "powers" else part  # its last is no number, for 255
        finite = part != 255 if exponent else torch.isfinite(part)
        if not bool(finite.all()):
            raise LowBitError(f"{what} has an element of its {name} that is not finite")


def read(path: str | os.PathLike[str]) -> Gguf:
    """Reads and checks a GGUF file; LowBitError in a sentence if it is damaged or unknown."""
    file = Gguf(path)
    file.header()
    return file
