"""stage_transposes: tiles a transposing nest in squares that registers transpose.

before  for a0 in 0..512:  # free      after  for b0 in .. by 64, b1 in .. by 256, b2 in .. by 16:
            for a1 in 0..512:  # free             for b3 in b1..min(b1 + 256, 512) by 16:
                y[a0, a1] = x[a1, a0]                 for a0 in b3..min(b3 + 16, ..):  # register
                                                          for a1 in b2..:  # free vector16
                                                              y[a0, a1] = x[a1, a0]

Where y's rows start with a line of the cache and are no shorter than half of x's, b2 and b3 change
places and b0 steps by 128; not so beyond the caches. Lowering reads and writes whole rows of
squares (tile/lower/squares.py). Where more than a copy is computed, a square goes to a local tile
first, and the computation reads its rows.
"""

from dataclasses import replace

from weft.core.node import Node
from weft.scalar.blocks import map_outermost, substitute_block
from weft.scalar.choices import Choices
from weft.scalar.nest import Block, For, Kernel, Stmt
from weft.scalar.sizes import hint
from weft.targets.machine import Machine
from weft.tile.analysis.access import Crossing, crossing, length, ranges_in, stride_of, trips
from weft.tile.moves.loops import Labels, nested, tiled
from weft.tile.moves.stage import staged
from weft.tile.price.traffic import touched


def stage_transposes(kernel: Kernel, target: Machine, choices: Choices) -> Kernel:
    """Tile every nest whose store is contiguous along one axis and a load along another."""
    labels, cached = Labels(kernel.body), hint(touched(kernel.body, target)) < target.l3

    def one(stmt: For) -> Stmt | None:
        if stmt.bind not in ("", "serial"):
            return stmt
        found = None if stmt.bind else crossing(stmt)
        if found is None:
            return None
        lanes = target.lanes(max((4, *(t.type.dtype.bytes for t in found.loads))))
        if min(length(f) or 0 for f in (found.along, found.across)) < lanes:
            return None
        store = found.stores[0]
        step = stride_of(store, found.across.axis, ranges_in((stmt,))) or 0
        line = step * store.buffer.type.dtype.bytes
        aligned = line % target.vector_bytes == 0
        whole = aligned and cached and trips(found.across) < 2 * trips(found.along)
        return _squares(found, lanes, choices.decide("whole_lines", whole), labels)[0]

    return replace(kernel, body=map_outermost(kernel.body, one))


def _squares(copied: Crossing, lanes: int, whole: bool, labels: Labels) -> Block:
    """A nest in squares of lanes, along the loop it stores along and across to the other.

    Squares are in blocks: whole pages are read before others are written. If `whole` it stores
    whole lines, and reads short pieces of many rows.
    """
    loops, along, across, loads, stores = copied

    def block(rows: For, columns: For) -> Block:
        """Fill a tile, as registers that a load crosses, then store from it; a copy needs none."""

        def crossed(bind: str) -> list[For]:
            return [replace(rows, bind=bind), replace(columns, bind=f"vector{lanes}")]

        if all(s.value in loads and s.mask is None for s in stores):
            return nested(crossed("register"), stores)
        before: list[Stmt] = []
        reads: dict[Node, Node] = {}
        for load in loads:
            tile = labels.buffer("tile", load.type.dtype, (lanes, lanes))
            fill, reads[load] = staged(tile, load, crossed("register"), labels)
            before += fill
        return (*before, *nested(crossed("serial"), substitute_block(stores, reads)))

    # a block writes to as many rows as a TLB holds: lines of them side by side, where rows
    # start with one, or parts of lines while it reads long pieces of few rows
    squares = ((1, lanes), (0, lanes))[:: -1 if whole else 1]
    steps = (1, (8 if whole else 4) * lanes), (0, 16 * lanes), *squares
    nest = tiled((across, along), steps, labels, block)
    return nested([f for f in loops if f not in (along, across)], nest, bind="serial")
