"""The kernel level: the program of one worker in hardware primitives.

Buffers are flat; a vector axis has become lanes:
v0 = load{16} x[b0 + 32]        # VectorLoad, contiguous
v1 = shuffle{xor 8}(v0)         # lanes exchanged; a horizontal fold is log2(lanes) of these
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.core.node import Node, Op, make, op, require
from weft.core.types import ScalarType, boolean, i64
from weft.scalar.nest import Buffer, Stmt


@op("lanes")
class Lanes(Op):
    """0, 1, ..., lanes - 1 as an i64 vector."""

    lanes: int

    def infer(self) -> ScalarType:
        return ScalarType(i64, self.lanes)

    def evaluate(self) -> Any:
        return np.arange(self.lanes, dtype=np.int64)


@op("vector_load")
class VectorLoad(Op):
    """Lanes of a flat buffer at base, base + stride, ...; `counted`: the first n lanes, else 0.

    Arguments: base (i64), and n (i64) when counted. Memory beyond the n-th lane is not touched.
    What is `ahead` elements on is fetched into the second-level cache meanwhile.
    """

    buffer: Buffer
    lanes: int
    stride: int = 1
    counted: bool = False
    ahead: int = 0

    def infer(self, *types: ScalarType) -> ScalarType:
        fits = len(types) == 1 + self.counted
        require(fits, f"vector load of {self.buffer.name}: base and count")
        return ScalarType(self.buffer.type.dtype, self.lanes)


@op("vector_gather")
class VectorGather(Op):
    """Lanes of a flat buffer at a vector of indices, where a bool vector holds; `fill` elsewhere.

    Arguments: index (i64 vector), and condition (bool vector), fill (scalar) when masked.
    """

    buffer: Buffer
    lanes: int
    masked: bool = False

    def infer(self, *types: ScalarType) -> ScalarType:
        require(len(types) == 1 + 2 * self.masked, f"vector gather of {self.buffer.name}")
        condition = not self.masked or types[1].dtype is boolean
        require(condition, f"vector gather of {self.buffer.name}: bool condition")
        return ScalarType(self.buffer.type.dtype, self.lanes)


@op("vector_masked_load")
class VectorMaskedLoad(Op):
    """Lanes at base, base + stride, ... where a bool vector holds, `fill` elsewhere.

    Arguments: base (i64), condition (bool vector), fill (scalar of the buffer's dtype). Memory
    of the other lanes is not touched.
    """

    buffer: Buffer
    lanes: int
    stride: int = 1

    def infer(self, *types: ScalarType) -> ScalarType:
        require(types[1].dtype is boolean, f"masked load of {self.buffer.name}: bool condition")
        return ScalarType(self.buffer.type.dtype, self.lanes)


@op("shuffle")
class Shuffle(Op):
    """Lane i of the result is lane i xor `distance` of the argument."""

    distance: int

    def infer(self, x: ScalarType) -> ScalarType:
        return x

    def evaluate(self, x: Any) -> Any:
        return x[..., np.arange(x.shape[-1]) ^ self.distance]


@op("exchange")
class Exchange(Op):
    """Lanes of two vectors whose `distance` bit is `half`: the first's where that bit of the lane
    is 0, the second's where it is 1. Of both halves, a step of a transpose.
    """

    distance: int
    half: int

    def infer(self, x: ScalarType, y: ScalarType) -> ScalarType:
        require(x == y, f"exchange of {x} and {y}")
        return x

    def source(self, lane: int) -> int:
        return lane & ~self.distance | self.half * self.distance

    def evaluate(self, x: Any, y: Any) -> Any:
        lane = np.arange(x.shape[-1])
        source = self.source(lane)
        return np.where(lane & self.distance, y[..., source], x[..., source])


@op("extract")
class Extract(Op):
    """One lane of a vector as a scalar."""

    lane: int

    def infer(self, x: ScalarType) -> ScalarType:
        return ScalarType(x.dtype)

    def evaluate(self, x: Any) -> Any:
        return x[..., self.lane : self.lane + 1]


@op("splat")
class Splat(Op):
    """A scalar in every lane."""

    lanes: int

    def infer(self, x: ScalarType) -> ScalarType:
        require(x.lanes == 1, "splat of a vector")
        return ScalarType(x.dtype, self.lanes)

    def evaluate(self, x: Any) -> Any:
        return x


@dataclass(frozen=True, eq=False)
class VectorStore(Stmt):
    """Lanes of `value` to a flat buffer at base, base + stride, ...

    count   only the first n lanes; mask (bool vector): only where it holds
    stream  past the caches (an output too large to be read back from them)
    """

    buffer: Buffer
    base: Node
    value: Node
    lanes: int
    stride: int = 1
    count: Node | None = None
    mask: Node | None = None
    stream: bool = False
    uses = ("base", "value", "count", "mask")


@dataclass(frozen=True, eq=False)
class VectorScatter(Stmt):
    """Lanes of `value` to a flat buffer at a vector of indices; only the first `count` lanes."""

    buffer: Buffer
    index: Node
    value: Node
    lanes: int
    count: Node | None = None
    uses = ("index", "value", "count")


def lanes_of(lanes: int) -> Node:
    return make(Lanes(lanes))
