"""Steps of a program that run several times, over slices of its buffers: recurrences over time.

repeat rnn 24(x: f32[24,8,64], h0: f32[8,64], w: f32[64,64]) -> hs: f32[24,8,64]
    slice x_t: f32[8,64] = x from 0
    slice h: f32[8,64] = hs from -1 first h0      # what the iteration before wrote
    slice next: f32[8,64] = hs from 0

    kernel next(h: f32[8,64], w: f32[64,64], x_t: f32[8,64]) -> next: f32[8,64]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from weft.core.node import Node, require
from weft.core.types import TensorType

if TYPE_CHECKING:
    from weft.scalar.nest import Buffer, Kernel


@dataclass(frozen=True, eq=False)
class Slice:
    """What a buffer of repeated kernels is in each iteration: a slice of `whole` along axis 0.

    In iteration t it is slice at + step * t, modulo their number. `first` stands in for it in the
    first iteration, and `last` in the last one.
    """

    buffer: Buffer
    whole: Buffer
    at: int = 0
    step: int = 1
    first: Buffer | None = None
    last: Buffer | None = None

    def place(self, t: int, count: int) -> tuple[Buffer, int]:
        """The buffer that it is in iteration t of `count`, and from which element of that on."""
        if t == 0 and self.first is not None:
            return self.first, 0
        if t == count - 1 and self.last is not None:
            return self.last, 0
        row = (self.at + self.step * t) % self.whole.type.shape[0]
        return self.whole, row * self.whole.type.layout[0]


@dataclass(frozen=True, eq=False)
class Repeat:
    """Kernels that run `count` times in order. Buffers that are no slices are the same each time.

    inputs, outputs    whole buffers, of which its slices are, and what it reads as a whole
    """

    name: str
    count: int
    slices: tuple[Slice, ...]
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    steps: tuple[Kernel, ...]

    def places(self, t: int) -> dict[str, tuple[Buffer, int]]:
        """What each buffer that is a slice is in iteration t."""
        return {s.buffer.name: s.place(t, self.count) for s in self.slices}

    def buffers(self) -> Iterator[Buffer]:
        yield from (*self.inputs, *self.outputs)
        for s in self.slices:
            yield from (b for b in (s.buffer, s.whole, s.first, s.last) if b is not None)


@dataclass(frozen=True)
class Row:
    """What a kernel's inputs, its outputs and the sizes of `Rows` stand for in one of its rows."""

    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Rows:
    """One launch of a kernel over several rows of operands, one after the other or at once.

    No row reads or writes what another writes. The kernel's own buffers stand for those of a row,
    which are of the same dtypes and spans, as `sizes` do, symbols that only this kernel has.
    `grain` is for how many rows to wake a thread; 0 where they run in order on a CPU.
    """

    kernel: Kernel
    rows: tuple[Row, ...]
    sizes: tuple[Node, ...] = ()
    grain: int = 0

    @property
    def name(self) -> str:
        return self.kernel.name

    @property
    def inputs(self) -> tuple[Buffer, ...]:
        """Of all rows, each once."""
        return tuple(dict.fromkeys(b for row in self.rows for b in row.inputs))

    @property
    def outputs(self) -> tuple[Buffer, ...]:
        return tuple(b for row in self.rows for b in row.outputs)

    @property
    def operands(self) -> tuple[Buffer, ...]:
        """Each row's inputs and outputs, behind those of the row before."""
        return tuple(b for row in self.rows for b in (*row.inputs, *row.outputs))


def verify(repeat: Repeat) -> None:
    """VerifyError unless slices are slices, are read after they are written, and all written.

    Each iteration writes what it reads, or reads an input, or what one before wrote.
    """
    name = f"repeat {repeat.name}"
    require(repeat.count > 0, f"{name} runs {repeat.count} times")
    for s in repeat.slices:
        t = s.whole.type
        part = TensorType(t.dtype, t.shape[1:], t.layout[1:])
        found = [b.type for b in (s.buffer, s.first, s.last) if b is not None]
        fits = t.rank > 0 and all(str(part) == str(x) for x in found)
        require(fits, f"{name}: {s.buffer.name} is no slice of {s.whole.name}: {t}")
    written: dict[tuple[str, int], None] = {}  # a buffer, from an element on
    for t in range(repeat.count):
        _verify_iteration(repeat, t, written)
    for b in repeat.outputs:
        rows = b.type.shape[0] if any(s.whole == b for s in repeat.slices) else 1
        stored = sum(known == b.name for known, _ in written)
        require(stored == rows, f"{name} writes {stored} of {rows} slices of {b.name}")


def _verify_iteration(repeat: Repeat, t: int, written: dict[tuple[str, int], None]) -> None:
    given, kept = {b.name for b in repeat.inputs}, {b.name for b in repeat.outputs}
    places, here = repeat.places(t), set[str]()
    for kernel in repeat.steps:
        label = f"repeat {repeat.name}, iteration {t}, kernel {kernel.name}"
        for b in kernel.inputs:
            whole, at = places.get(b.name, (b, 0))
            known = whole.name in given or b.name in here
            known = known or (b.name in places and (whole.name, at) in written)
            require(known, f"{label} reads {b.name} before it is written")
        for b in kernel.outputs:
            whole, at = places.get(b.name, (b, 0))
            again = whole.name in given or (whole.name in kept and (whole.name, at) in written)
            require(not again, f"{label} writes over {whole.name}")
            written[whole.name, at] = None
            here.add(b.name)
