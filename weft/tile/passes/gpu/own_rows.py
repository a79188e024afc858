"""own_rows: lays out nests that pass on rows alike, so that a thread reads what it wrote itself.

before  for w0 in 0..64 by 32:  # thread      after  for g0 in 0..32:  # thread
            ... acc0 <- add(acc0, x * y)                 for q0 in 0..8 by 2:  # thread
            s[a0, a1] = acc0                                 ... rows g0 and g0 + 32
        for a2 in 0..64:  # thread                   for h0 in 0..64 by 32:  # unroll
            for c0 in 0..64 by 4:  # lane                for a2 in h0..h0 + 32:  # thread
                ... s[a2, ..]                                for c0 in 0..64 by 2:  # lane

An mma.sync fragment is pairs of columns of two rows, a row shared by four neighbouring lanes. All
nests use this layout, so intermediates stay in registers (kernel/own_elements.py). A nest without
columns runs in a loop over four lanes, which all store the same value.
"""

from dataclasses import replace
from typing import TypeGuard

from weft.scalar.blocks import substitute_block
from weft.scalar.nest import For, Kernel, Stmt, Store
from weft.scalar.ops import apply, constant
from weft.targets.gpu import GPU
from weft.tile.analysis.access import trips
from weft.tile.analysis.fragments import COLUMNS, PAIRS, ROWS
from weft.tile.analysis.tiles import is_frame, nests_of, on_nests, tile_of, tiles_of
from weft.tile.moves.bind import laid_out, whole_sides
from weft.tile.moves.loops import Labels, section
from weft.tile.moves.peel import simplify_block

PAIR = 2  # columns side by side
FAR = 32  # from one of the rows of a thread to the next, at most: four warps


def own_rows(kernel: Kernel, target: GPU) -> Kernel:
    """Lay out all nests of a kernel alike, if its products are all in the matrix units."""
    sides = [whole_sides(t) for t in tiles_of(kernel.body) if t.sum is not None]
    heights = {trips(s[0]) for s in sides if s is not None}
    if not target.exchanges or len(heights) != 1 or None in sides:
        return kernel
    if len(kernel.body) != 1 or not is_frame(kernel.body[0]):
        return kernel
    (rows,) = heights
    layout = _Layout(rows, Labels(kernel.body))
    if rows % ROWS or not all(map(layout.fits, nests_of(kernel.body))):
        return kernel
    return replace(kernel, body=on_nests(kernel.body, layout.laid))


class _Layout:
    """Of blocks of so many rows: a thread has some of them, `far` apart, with three neighbours."""

    def __init__(self, rows: int, labels: Labels) -> None:
        self.rows, self.labels = rows, labels
        self.far = min(rows // 2, FAR)

    def fits(self, nest: Stmt) -> bool:
        """Whether a nest can be laid out so."""
        if not isinstance(nest, For) or tile_of(nest) is not None:
            return True
        if nest.bind != "thread" or nest.lo is not constant(0):
            return False
        if self.is_start(nest):
            return True
        lanes = [s for s in nest.body if _is_lanes(s)]
        plain = all(_is_lanes(s) or not isinstance(s, For) for s in nest.body)
        even = all(f.lo is constant(0) and trips(f) * f.step % COLUMNS == 0 for f in lanes)
        return nest.extent == self.rows and nest.step == 1 and plain and even

    def is_start(self, nest: For) -> bool:
        """Whether a nest stores one value everywhere, in one loop over all elements."""
        inner = nest.body[0] if len(nest.body) == 1 else None
        store = inner.body[0] if isinstance(inner, For) and inner.bind == "register" else None
        if not isinstance(store, Store) or not store.buffer.type.shape:
            return False
        high, *wide = store.buffer.type.shape
        even = all(n % COLUMNS == 0 for n in wide)
        return high == self.rows and nest.extent == store.buffer.type.size and even

    def laid(self, nest: Stmt) -> Stmt:
        tile = tile_of(nest)
        if tile is not None and tile.sum is None:  # which only copies
            return nest
        if tile is not None:
            sides = whole_sides(tile)
            assert sides is not None
            # rows that far apart, and pairs of all columns
            return laid_out(tile, sides, ((), ()), self.labels, self.far).nest()
        if not isinstance(nest, For):
            return nest
        if self.is_start(nest):
            nest = self.by_rows(nest)
        body = tuple(_in_pairs(s) if _is_lanes(s) else s for s in nest.body)
        if not any(map(_is_lanes, nest.body)):
            lane = For(self.labels.axis("l"), constant(0), constant(PAIRS), body, 1, "free", "lane")
            body = (lane,)
        half, start = self.far, self.labels.axis("h")
        rows = section(nest, start, half, body=body)
        return For(start, constant(0), constant(self.rows), (rows,), half, "free", "unroll")

    def by_rows(self, nest: For) -> For:
        """A nest over all elements as one over rows, with one over columns inside."""
        inner = nest.body[0]
        assert isinstance(inner, For) and isinstance(inner.body[0], Store)
        _, *wide = inner.body[0].buffer.type.shape
        row, column = self.labels.axis("a"), inner.axis
        at = apply("add", apply("multiply", row, constant(wide[0])), column) if wide else row
        body = substitute_block(inner.body, {column: at})
        if wide:
            body = simplify_block(body, {row: (0, self.rows - 1), column: (0, wide[0] - 1)})
            start = nest.axis
            pair = section(inner, start, PAIR, body=body)
            body = (For(start, constant(0), constant(wide[0]), (pair,), PAIR, "free", "lane"),)
        return For(row, constant(0), constant(self.rows), body, 1, "free", "thread")


def _is_lanes(stmt: Stmt) -> TypeGuard[For]:
    return isinstance(stmt, For) and stmt.bind == "lane"


def _in_pairs(lanes: For) -> For:
    """A loop over lanes that take two elements side by side at a time."""
    inner = lanes.body[0]
    if not isinstance(inner, For) or inner.bind != "register":
        return lanes
    end = apply("add", lanes.axis, constant(PAIR))
    return replace(lanes, step=PAIR, body=(replace(inner, hi=end),))
