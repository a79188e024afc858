"""stage_transposes: tiles a transposing nest in squares that registers transpose.

before  for a0 in 0..512:  # free      after  for b0 in .. by 64, b1 in .. by 256, b2 in .. by 16:
            for a1 in 0..512:  # free             for b3 in b1..min(b1 + 256, 512) by 16:
                y[a0, a1] = x[a1, a0]                 for a0 in b3..min(b3 + 16, ..):  # register
                                                          for a1 in b2..:  # free vector16
                                                              y[a0, a1] = x[a1, a0]

Where y has many rows, each starting with a line of the cache, b2 and b3 change places and b0 steps
by 128. Lowering reads and writes whole rows of squares (tile/lower/squares.py). Where more than a
copy is computed, a square goes to a local tile first, and the computation reads its rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from weft.core.node import Node, make, substitute
from weft.scalar.blocks import map_outermost, substitute_block
from weft.scalar.nest import Block, For, Kernel, Load, Local, Stmt, Store
from weft.scalar.ops import apply, subtract
from weft.targets.machine import Machine
from weft.tile.analysis.access import Crossing, crossing, length, ranges_in, stride_of
from weft.tile.moves.loops import Labels, around, blocked


def stage_transposes(kernel: Kernel, target: Machine) -> Kernel:
    """Tile every nest whose store is contiguous along one axis and a load along another."""
    labels = Labels(kernel.body)

    def one(stmt: For) -> For | None:
        if stmt.bind not in ("", "serial"):
            return stmt
        return None if stmt.bind else _tile(stmt, target, labels)

    return replace(kernel, body=map_outermost(kernel.body, one))


Span = tuple[Node, Node]


def _tile(stmt: For, target: Machine, labels: Labels) -> For | None:
    found = crossing(stmt)
    if found is None:
        return None
    lanes = target.lanes(max((4, *(t.type.dtype.bytes for t in found.loads))))
    if min(length(f) or 0 for f in (found.along, found.across)) < lanes:
        return None
    store = found.stores[0]
    step = stride_of(store, found.across.axis, ranges_in((stmt,))) or 0
    line = step * store.buffer.type.dtype.bytes
    whole = line % target.vector_bytes == 0 and (length(found.across) or 0) >= 16 * lanes
    return _Squares(found, lanes, whole, labels).nest()


@dataclass
class _Squares:
    """A nest in squares of lanes, along the loop it stores along and across to the other."""

    copied: Crossing
    lanes: int
    whole: bool  # it stores whole lines, of more rows than a block has
    labels: Labels

    def nest(self) -> For:
        """Squares in blocks: whole pages are read before others are written."""
        loops, along, across, *_ = self.copied
        lanes = self.lanes
        # a block writes to as many rows as a TLB holds: lines of them side by side, where rows
        # start with one, or parts of lines while it reads long pieces of few rows
        squares = ((along, lanes), (across, lanes))[:: -1 if self.whole else 1]
        steps = (along, (8 if self.whole else 4) * lanes), (across, 16 * lanes), *squares

        def tiles(depth: int, rows: Span, columns: Span) -> For:
            loop, width = steps[depth]
            lo, hi = columns if loop is along else rows

            def inner(start: Node, end: Node) -> Block:
                part = (rows, (start, end)) if loop is along else ((start, end), columns)
                return (tiles(depth + 1, *part),) if depth + 1 < len(steps) else self.block(*part)

            return blocked(replace(loop, lo=lo, hi=hi), self.labels.axis("b"), width, inner)

        others = [f for f in loops if f not in (along, across)]
        return around(others, tiles(0, (across.lo, across.hi), (along.lo, along.hi)), bind="serial")

    def block(self, rows: Span, columns: Span) -> Block:
        """Fill a tile, as registers that a load crosses, then store from it; a copy needs none."""
        loads, stores, labels = self.copied.loads, self.copied.stores, self.labels
        across, along = self.copied.across.axis, self.copied.along.axis

        def crossed(bind: str, body: Block, m: Node = across, n: Node = along) -> For:
            lane = For(n, *columns, body, 1, "free", f"vector{self.lanes}")
            return For(m, *rows, (lane,), 1, "free", bind)

        if all(s.value in loads and s.mask is None for s in stores):
            return (crossed("register", stores),)
        before: list[Stmt] = []
        reads: dict[Node, Node] = {}
        for load in loads:
            buffer = labels.buffer("tile", load.type.dtype, (self.lanes, self.lanes))
            at = apply(subtract, across, rows[0]), apply(subtract, along, columns[0])
            m, n = labels.axis("m"), labels.axis("n")
            value, *index = substitute((load, *at), {across: m, along: n})
            fill = crossed("register", (Store(buffer, tuple(index), value),), m, n)
            before += [Local(buffer), fill]
            reads[load] = make(Load(buffer), *at)
        return (*before, crossed("serial", substitute_block(stores, reads)))
