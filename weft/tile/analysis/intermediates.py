"""Accesses of a block's intermediates: what one nest stores in shared memory and another loads.

for access in accesses_of_block(kernel): access.slab, access.index, access.count
"""

from collections.abc import Iterator
from dataclasses import replace

from weft.scalar.blocks import accesses, loops_in
from weft.scalar.nest import Buffer, For, Kernel, Local, walk
from weft.scalar.ops import apply, constant
from weft.tile.analysis.access import trips
from weft.tile.analysis.slabs import Access, accesses_of, strip
from weft.tile.analysis.tiles import Tile, is_frame, nests_of, tile_of, tiles_of


def intermediates(kernel: Kernel) -> set[Buffer]:
    """The buffers of shared memory that several nests of a block use."""
    frames = (s for s in walk(kernel.body) if is_frame(s))
    inner = (s.buffer for frame in frames for s in frame.body if isinstance(s, Local))
    return {b for b in inner if b.type.rank > 1}


def accesses_of_block(kernel: Kernel) -> Iterator[Access]:
    """The accesses of slabs and intermediates in one chunk."""
    tiles = list(tiles_of(kernel.body))
    threads = max((trips(*t.threads) for t in tiles), default=0)
    for tile in tiles:
        yield from accesses_of(tile)
        yield from _results(tile)
    for nest in nests_of(kernel.body):
        if isinstance(nest, For) and nest.bind == "thread" and tile_of(nest) is None:
            for loop in loops_in(nest.body, "lane"):
                yield from _of_lanes(nest, loop, threads)


def _results(tile: Tile) -> Iterator[Access]:
    """The stores of a tile's results."""
    warps = trips(*tile.threads) / 32
    for buffer, index in accesses(tuple(s for s in tile.body if not isinstance(s, For))):
        if buffer.space == "shared":
            width, index, count = strip(buffer, index, tile.registers)
            yield Access(buffer, index, tile.threads, width, warps * count)


def _of_lanes(rows: For, loop: For, threads: int) -> Iterator[Access]:
    """The accesses of a nest whose rows go to groups of lanes."""
    lanes = max(1, threads // trips(rows))
    lane = replace(loop, hi=apply("add", loop.lo, constant(lanes * loop.step)))
    inside = tuple(loops_in(loop.body, "register"))
    for buffer, index in accesses(loop.body):
        if buffer.space == "shared":
            width, index, count = strip(buffer, index, inside)
            turns = trips(rows) * trips(loop) / 32
            yield Access(buffer, index, (rows, lane), width, turns * count)
