"""sweep_rows: folds columns row by row, so that memory is read in order; the sums lie in a cache.

before  for a0 in 0..1000:  # free        after  local row0: f32[1000]
            for a1 in 0..512:  # reduce          for m0 in 0..1000: row0[m0] = 0.0
                acc0 <- add(acc0, x[a1, a0])     for b0 in 0..512 by 8:
            y[a0] = acc0                             for m1 in 0..1000:  # free
                                                         for a1 in b0..b0 + 8:  # reduce register
                                                             acc0_r <- add(acc0_r, x[a1, m1])
                                                         row0[m1] = add(row0[m1], acc0_r)
                                                 for m2 in 0..1000: y[m2] = row0[m2]

A strip of columns at a time would go to another page with each row, where no prefetcher follows,
and pass over all pages for every strip. Columns are in blocks whose sums fit the first cache. Many
rows are summed in blocks with sums of their own, which keeps rounding errors small.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from weft.core.node import Node, make
from weft.scalar.blocks import accesses, address, map_outermost, substitute_block
from weft.scalar.choices import Choices
from weft.scalar.monoid import PRODUCT
from weft.scalar.nest import Block, Fold, For, Kernel, Load, Local, Stmt, Store
from weft.scalar.reach import longest
from weft.targets.machine import Machine
from weft.tile.analysis.access import Folded, folded, ranges_in, stride_along, trips
from weft.tile.moves.loops import Labels, blocked, nested, past
from weft.tile.moves.parts import own_part
from weft.tile.price.axes import best_axis_alone, lanes_for
from weft.tile.price.traffic import memory_ns

ROWS = 8  # that are summed in registers
BLOCK = 128  # times that many are summed in one row
CACHED = 16 << 10  # bytes of sums
SHORT = 16  # vectors: as many columns are read side by side anyway


def sweep_rows(kernel: Kernel, target: Machine, choices: Choices) -> Kernel:
    """Sweep every nest that folds columns beyond the second-level cache, and waits for memory."""
    labels = Labels(kernel.body)

    def one(stmt: For) -> Stmt | None:
        sweep = None if stmt.bind else _sweep(stmt, target, labels)
        if sweep is None:
            return None
        work = best_axis_alone(stmt, target)[0] + sweep.more
        waits = memory_ns((stmt,), target) > work / target.vector_ops_per_ns
        return sweep.nest(target)[0] if choices.decide("sweep", waits and sweep.far) else None

    return replace(kernel, body=map_outermost(kernel.body, one))


def _sweep(stmt: For, target: Machine, labels: Labels) -> _Sweep | None:
    found = folded(stmt)
    if found is None:
        return None
    free, (rows, *others), updates, _, contiguous = found
    columns = free[-1]
    if others or contiguous is not columns:
        return None
    lanes = lanes_for(columns, target)
    # one value a column; products are left to `widen_folds`, which accumulates them in f64
    simple = all(f.monoid.function and f.monoid is not PRODUCT for f in rows.folds)
    if not simple or trips(rows) < 2 * ROWS or trips(columns) <= SHORT * lanes:
        return None
    ranges, size = ranges_in((stmt,)), 0
    for buffer, index in accesses(tuple(updates)):
        where = address(buffer, index, ranges)
        along, down = (stride_along(where, f.axis) for f in (columns, rows))
        if along not in (0, 1) or down is None:
            return None
        size += buffer.type.dtype.bytes if along and abs(down) > SHORT * lanes else 0
    more = (1 + 2 / ROWS) * trips(*free, rows) / lanes
    return _Sweep(found, lanes, size * trips(rows, columns) > target.l2, more, labels)


@dataclass
class _Sweep:
    """A nest that folds the rows of columns.

    far     whether they are more than the second-level cache holds
    more    vector instructions that it takes beyond those of strips
    """

    found: Folded
    lanes: int
    far: bool
    more: float
    labels: Labels

    def nest(self, target: Machine) -> Block:
        """The columns in blocks that fit the cache, as many as there are cores."""
        free, (rows,), _, stores, _ = self.found
        *around, columns = free
        most = CACHED // sum(f.dtypes[0].bytes for f in rows.folds)
        each = -(-trips(columns) // (1 if trips(*around) > 1 else target.cores))
        width = min(most, -(-each // (SHORT * self.lanes)) * SHORT * self.lanes)

        def block(lo: Node, hi: Node) -> Block:
            part = replace(columns, lo=lo, hi=hi)
            sums, read = self.sums(part, width, rows)
            return (*sums, self.over(part, substitute_block(tuple(stores), read)))

        swept = blocked(columns, self.labels.axis("b"), width, block)
        return nested(around, (swept,), bind="serial")

    def sums(self, columns: For, width: int, rows: For) -> tuple[Block, dict[Node, Node]]:
        """What folds rows of a block of columns into buffers, and the loads of these."""
        at = past(columns.axis, columns.lo)
        held = {f: self.labels.buffer("row", f.dtypes[0], (width,)) for f in rows.folds}
        read = {f: make(Load(buffer), at) for f, buffer in held.items()}
        most = longest(rows.lo, rows.hi)
        long = most is None or most > 2 * BLOCK * ROWS

        def stored(values: Mapping[Fold, Node]) -> Block:
            return tuple(Store(held[f], (at,), value) for f, value in values.items())

        def joint(fold: Fold, value: Node) -> Node:
            return fold.monoid.combine((read[fold],), (value,))[0]

        def step(lo: Node, hi: Node) -> Block:
            some = replace(rows, lo=lo, hi=hi)
            if long:
                before, part = self.sums(columns, width, some)
                each = stored({f: joint(f, part[f.accs[0]]) for f in rows.folds})
            else:
                own, _ = own_part(replace(some, bind="register"), rows.folds, "r")
                parts = zip(rows.folds, own.folds, strict=True)
                before, each = (), (own, *stored({f: joint(f, part.accs[0]) for f, part in parts}))
            return (*before, self.over(columns, each))

        empty = stored({f: f.monoid.identity(f.dtypes)[0] for f in rows.folds})
        swept = blocked(rows, self.labels.axis("b"), BLOCK * ROWS if long else ROWS, step)
        start = (*map(Local, held.values()), self.over(columns, empty))
        return (*start, replace(swept, folds=())), {f.accs[0]: read[f] for f in rows.folds}

    def over(self, columns: For, body: Block) -> For:
        """The body over vectors of the columns."""
        own = self.labels.axis("m")
        loop = replace(columns, axis=own, body=substitute_block(body, {columns.axis: own}))
        vector = replace(loop, bind=f"vector{self.lanes}")
        return blocked(vector, self.labels.axis("b"), self.lanes)
