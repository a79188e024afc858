"""permute_register_tile: spreads a thread's results over its tile, to avoid bank conflicts.

before  for c1 in b1..b1 + 128 by 8:  # thread  after  for c1 in b1..b1 + 64 by 4:  # thread
            for a1 in c1..c1 + 8:  # register              for s0 in c1..c1 + 128 by 64:  # register
                ...                                            for a1 in s0..s0 + 4:  # register

Every way to cut a thread's results into pieces, spread over the block's tile, is priced by the
wavefronts of its loads from shared memory; among equals the longest pieces win.
"""

from dataclasses import replace
from itertools import product

from weft.scalar.choices import Choices
from weft.scalar.index import simplify
from weft.scalar.nest import For, Kernel
from weft.scalar.ops import apply, constant
from weft.targets.gpu import GPU
from weft.tile.analysis.access import divisors, trips
from weft.tile.analysis.tiles import Tile, accesses_of, best_pad, on_tiles
from weft.tile.moves.loops import Labels, section


def permute_register_tile(kernel: Kernel, target: GPU, choices: Choices) -> Kernel:
    """Choose the pieces of every tile that has slabs and registers."""

    def best(tile: Tile, labels: Labels) -> Tile:
        pairs = list(zip(tile.threads, tile.registers, strict=False))
        fits = len(tile.registers) == len(tile.threads)
        if not fits or any(r.lo is not t.axis or trips(r) != t.step for t, r in pairs):
            return tile

        def price(pieces: tuple[int, ...]) -> tuple[float, int]:
            found = list(accesses_of(_cut(tile, pieces, Labels(kernel.body))))
            turns = sum(best_pad(b, found, target)[0] for b in {a.slab for a in found})
            return turns, -sum(pieces)

        every = product(*(divisors(trips(r)) for r in tile.registers))
        return _cut(tile, choices.pick("pieces", every, price), labels)

    return on_tiles(kernel, best)


def _cut(tile: Tile, pieces: tuple[int, ...], labels: Labels) -> Tile:
    """The tile with pieces of so many results along each of its sides."""
    threads: list[For] = []
    registers: list[For] = []
    for thread, register, size in zip(tile.threads, tile.registers, pieces, strict=True):
        count, apart = trips(register), trips(thread) * size
        last = simplify(apply("add", thread.lo, constant(apart)), {})
        threads.append(replace(thread, hi=last, step=size))
        start = thread.axis
        if size < count:
            start = labels.axis("s")
            length = count * trips(thread)
            registers.append(section(register, thread.axis, length, axis=start, step=apart))
        registers.append(section(register, start, size))
    return replace(tile, threads=tuple(threads), registers=tuple(registers))
