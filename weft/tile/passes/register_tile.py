"""register_tile: each thread computes a block of a tile's results, held in registers.

before  for a0 in b0..b0 + 64:  # thread    after  for c0 in b0..b0 + 64 by 4:  # thread
            for a1 in b1..b1 + 64:  # thread           for c1 in b1..b1 + 64 by 4:  # thread
                ...                                        for a0 in c0..c0 + 4:  # register
                                                               for a1 in c1..c1 + 4:  # register
                                                                   ...

Elsewhere a thread takes neighbours as long as their accesses become wide.
"""

from __future__ import annotations

from dataclasses import replace

from weft.scalar.nest import For, Kernel
from weft.scalar.ops import apply, constant
from weft.targets.gpu import GPU
from weft.tile.access import trips
from weft.tile.moves import Labels
from weft.tile.tiles import Tile, on_tiles, register_split


def register_tile(kernel: Kernel, target: GPU) -> Kernel:
    """Give the threads of tiles their blocks of results."""
    labels = Labels(kernel.body)

    def split(tile: Tile) -> Tile:
        if len(tile.threads) != 2 or tile.registers:
            return tile
        sizes = register_split(*map(trips, tile.threads))
        pairs = list(zip(tile.threads, sizes, strict=True))
        if any(trips(loop) % size for loop, size in pairs):
            return tile
        threads: list[For] = []
        registers: list[For] = []
        for loop, size in pairs:
            start = labels.axis("c")
            threads.append(replace(loop, axis=start, step=size))
            end = apply("add", start, constant(size))
            registers.append(replace(loop, lo=start, hi=end, bind="register"))
        return replace(tile, threads=tuple(threads), registers=tuple(registers))

    return on_tiles(kernel, split)
