"""The kernel level: the program of one worker in hardware primitives.

Buffers are flat; a vector axis has become lanes:
v0 = load{16} x[b0 + 32]        # VectorLoad, contiguous
v1 = shuffle{xor 8}(v0)         # lanes exchanged; a horizontal fold is log2(lanes) of these
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.core.node import Node, Op, make, op, require
from weft.core.types import ScalarType, boolean, i32, i64
from weft.scalar.nest import Buffer, Fold, Stmt

ROW = 8  # elements of a row of LoadMatrices


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
    """Lanes of a flat buffer: lane i is at index + i * stride.

    The index is one i64; or, with stride 0, a vector that has a place for each lane (a gather).
    counted  one more argument n (i64): only the first n lanes, 0 elsewhere
    masked   two more, a bool vector and a scalar: only where that holds, the scalar elsewhere
    ahead    prefetches the element so far ahead into the second-level cache; 0 for none
    Memory of the lanes left out is not touched.
    """

    buffer: Buffer
    lanes: int
    stride: int = 1
    counted: bool = False
    masked: bool = False
    ahead: int = 0

    def infer(self, *types: ScalarType) -> ScalarType:
        fits = len(types) == 1 + self.counted + 2 * self.masked
        require(fits, f"vector load of {self.buffer.name} with {len(types)} arguments")
        condition = not self.masked or types[-2].dtype is boolean
        require(condition, f"vector load of {self.buffer.name}: bool condition")
        return ScalarType(self.buffer.type.dtype, self.lanes)


@op("box")
class Box(Op):
    """A box of a tensor in global memory, starting at the given coordinates, as lanes.

    Sizes and strides (in elements) of the tensor and sides of the box: outermost dimension first.
    Elements outside the tensor are 0. It is only ever stored to shared memory, by TMA.
    """

    buffer: Buffer
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    sides: tuple[int, ...]

    def infer(self, *types: ScalarType) -> ScalarType:
        same = len(self.sizes) == len(self.strides) == len(self.sides) == len(types)
        require(same, f"box of {self.buffer.name} with {len(types)} coordinates")
        require(all(t == ScalarType(i64) for t in types), f"box of {self.buffer.name}: i64")
        return ScalarType(self.buffer.type.dtype, math.prod(self.sides))


@op("matrix")
class Matrix(Op):
    """An operand of wgmma: a matrix of `rows` by `depth` in shared memory, from an index on.

    Its lines are a swizzle long. They go along the depth, or `by_rows` along the rows: then the
    next line of rows is `leading` elements on.
    """

    buffer: Buffer
    rows: int
    depth: int
    by_rows: bool = False
    leading: int = 0

    def infer(self, index: ScalarType) -> ScalarType:
        require(index == ScalarType(i64), f"matrix in {self.buffer.name}: i64")
        require(self.buffer.swizzle > 0, f"matrix in {self.buffer.name}, which has no swizzle")
        return ScalarType(self.buffer.type.dtype)

    @property
    def span(self) -> int:
        """Elements from the first one to beyond the last."""
        line = self.buffer.swizzle // self.buffer.type.dtype.bytes  # elements
        lines = (-(-self.rows // line) - 1) * self.leading + self.depth * line
        return lines if self.by_rows else self.rows * line


@op("load_matrices")
class LoadMatrices(Op):
    """A pair of each 8 by 8 matrix of 16-bit elements in shared memory, by a warp (ldmatrix).

    The index is where a row of 8 elements starts: lane t gives row t % 8 of matrix t // 8, where
    there are so many. It gets elements t % 4 * 2 and the next of row t // 4 of each matrix; with
    `across` it gets those rows of column t // 4. lanes: twice as many as matrices.
    """

    buffer: Buffer
    lanes: int
    across: bool = False

    def infer(self, index: ScalarType) -> ScalarType:
        require(self.lanes in (4, 8), f"{self.lanes} elements of matrices: 4 or 8")
        return ScalarType(self.buffer.type.dtype, self.lanes)


@op("shuffle")
class Shuffle(Op):
    """Lane i of the result is lane i xor `distance` of the argument."""

    distance: int

    def infer(self, x: ScalarType) -> ScalarType:
        return x

    def source(self, lane: int) -> int:
        return lane ^ self.distance

    def evaluate(self, x: Any) -> Any:
        return x[..., self.source(np.arange(x.shape[-1]))]


@op("permute")
class Permute(Op):
    """Lane i of the result is that lane of the first argument which lane i of the second (i32)
    names, modulo their number, a power of two.
    """

    def infer(self, x: ScalarType, at: ScalarType) -> ScalarType:
        fits = at == ScalarType(i32, x.lanes) and x.lanes & (x.lanes - 1) == 0
        require(fits, f"permute of {x} by {at}")
        return x

    def evaluate(self, x: Any, at: Any) -> Any:
        lane = np.mod(at, x.shape[-1])
        shape = np.broadcast_shapes(x.shape[:-1], lane.shape[:-1])
        wide = (np.broadcast_to(a, (*shape, a.shape[-1])) for a in (x, lane))
        return np.take_along_axis(*wide, axis=-1)


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


@op("pack")
class Pack(Op):
    """A vector of scalars, one for each lane."""

    def infer(self, *types: ScalarType) -> ScalarType:
        require(all(t == ScalarType(types[0].dtype) for t in types), "pack of unlike values")
        return ScalarType(types[0].dtype, len(types))

    def evaluate(self, *values: Any) -> Any:
        return np.concatenate(np.broadcast_arrays(*values), axis=-1)


@op("thread_xor")
class ThreadXor(Op):
    """The argument's value in thread `number xor distance` of the same warp (a shuffle)."""

    distance: int

    def infer(self, x: ScalarType) -> ScalarType:
        require(x.lanes == 1, "threads exchange scalars")
        return x


@dataclass(frozen=True, eq=False)
class Barrier(Stmt):
    """A barrier of the block: no thread goes on before all arrive; all writes are visible."""


@dataclass(frozen=True, eq=False)
class Mma(Stmt):
    """mma.sync or wgmma: adds a product of matrices to accumulators (tile/analysis/fragments.py).

    sums        this thread's four accumulators; of wgmma one vector of all it has
    left        its fragment of the left operand: four pairs, or one vector; of wgmma a Matrix
    right       its fragment of the right operand: two pairs, or one vector; of wgmma a Matrix
    """

    sums: tuple[Fold, ...]
    left: tuple[Node, ...]
    right: tuple[Node, ...]
    uses = ("left", "right")


@dataclass(frozen=True, eq=False)
class AsyncWait(Stmt):
    """Waits until the asynchronous copies of this thread, and of TMA for its block, are done.

    pending     how many of the newest groups of copies may still be under way
    """

    pending: int = 0


@dataclass(frozen=True, eq=False)
class VectorStore(Stmt):
    """Lanes of `value` to a flat buffer: lane i goes to index + i * stride, as in a VectorLoad.

    With stride 0 the index is a vector that has a place for each lane (a scatter).
    count   only the first n lanes; mask (bool vector): only where it holds
    how     "stream" or "async", and `when`, as of a Store
    """

    buffer: Buffer
    index: Node
    value: Node
    lanes: int
    stride: int = 1
    count: Node | None = None
    mask: Node | None = None
    how: str = ""
    when: Node | None = None
    uses = ("index", "value", "count", "mask", "when")


def lanes_of(lanes: int) -> Node:
    return make(Lanes(lanes))
