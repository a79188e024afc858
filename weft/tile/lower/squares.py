"""Squares of memory that registers cross: rows are loaded or stored, and transposed by shuffles.

for a0 in b0..b0 + 16:  # register      rows = load{16} x[b1 * 64 + b0], x[b1 * 64 + b0 + 64], ..
    for a1 in b1..b1 + 16:  # vector16  y{16}[b0 * 64 + b1] = transposed(rows)[0], and so on:
        y[a0, a1] = x[a1, a0]           not 16 loads of an element each
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from weft.core.node import Node, make, substitute
from weft.kernel.ops import Exchange, VectorLoad
from weft.scalar.blocks import Index, address
from weft.scalar.index import Interval, simplify
from weft.scalar.nest import Buffer
from weft.scalar.ops import Constant, apply, constant
from weft.tile.analysis.access import steps_by_size, stride_along
from weft.tile.lower.lanes import Vector, flat


@dataclass(frozen=True)
class Side:
    """A register axis: this copy is iteration `at` of `count`, the first is at `lo`."""

    axis: Node
    lo: Node
    at: int
    count: int


@dataclass
class Copy:
    """One unrolled iteration: what its axes and finished accumulators stand for, and its lanes."""

    values: dict[Node, Node]
    free: dict[Node, int] = field(default_factory=dict)  # register axis -> which iteration
    reduce: tuple[tuple[Node, int], ...] = ()  # the same of the reductions it is in, outer first
    vector: Vector | None = None
    sides: tuple[Side, ...] = ()  # its register axes whose iterations are side by side


@dataclass(frozen=True)
class Square:
    """Elements that lie side by side across the copies, and in another row for each lane."""

    buffer: Buffer
    bases: tuple[Node, ...]  # where the rows start
    lanes: int
    column: int  # of this copy
    columns: int

    @property
    def count(self) -> Node | None:
        return None if self.columns == self.lanes else constant(self.columns)

    def load(self) -> Node:
        """The lanes of this copy, from the rows of all copies."""
        counted = () if self.count is None else (self.count,)
        load = VectorLoad(self.buffer, self.lanes, 1, bool(counted))
        rows = [make(load, base, *counted) for base in self.bases]
        rows += rows[-1:] * (self.lanes - len(rows))  # lanes beyond the vector's count
        return transposed(tuple(rows))[self.column]


def square(
    buffer: Buffer, index: Index, copy: Copy, ranges: Mapping[Node, Interval], reads: bool = False
) -> Square | None:
    """The block an access of the vector and one of the register axes is a column of, if any.

    Where a size decides how many lanes count, those beyond read the last one's row. Where none
    does, that is the last row of the block before, or the first row of all.
    """
    vector = copy.vector
    if vector is None:
        return None
    rows = [apply("add", vector.base, constant(n)) for n in range(vector.lanes)]
    if vector.count is not None and isinstance(vector.count.op, Constant):
        del rows[int(vector.count.op.value) :]
    elif vector.count is not None:
        end = apply("add", vector.base, vector.count)
        last = apply("maximum", apply("subtract", end, constant(1)), constant(0))
        rows = [apply("minimum", row, last) for row in rows] if reads else []
    where = address(buffer, index, ranges)
    step = stride_along(where, vector.axis)
    uneven = step is None and (reads or steps_by_size(where, vector.axis))
    step = vector.lanes if uneven else step or 0
    for side in copy.sides:
        along = stride_along(where, side.axis)
        if not rows or along not in (1, -1) or not 4 <= side.count <= min(step, vector.lanes):
            continue
        first = 0 if along == 1 else side.count - 1
        left = apply("add", side.lo, constant(first))
        fixed = {**copy.values, side.axis: left}
        starts = (substitute((where,), fixed | {vector.axis: row})[0] for row in rows)
        bases = tuple(simplify(start, ranges) for start in starts)
        return Square(flat(buffer), bases, vector.lanes, abs(side.at - first), side.count)
    return None


@lru_cache(maxsize=256)
def transposed(rows: tuple[Node, ...]) -> tuple[Node, ...]:
    """Lane j of result i is lane i of row j, in log2(lanes) steps that exchange halves."""
    distance = len(rows) // 2
    while distance:
        halves = Exchange(distance, 0), Exchange(distance, 1)
        pairs = [(rows[i & ~distance], rows[i | distance]) for i in range(len(rows))]
        rows = tuple(make(halves[bool(i & distance)], *pair) for i, pair in enumerate(pairs))
        distance //= 2
    return rows
