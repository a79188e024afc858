"""blockify_launch: binds the free loops around threads to the grid; blocks long thread loops.

before  for a0 in 0..4096:  # free thread   after  for b0 in 0..4096 by 256:  # free grid
            y[a0] = ...                                for a0 in b0..b0 + 256:  # free thread
                                                           y[a0] = ...

A block has as many threads as the target prefers, fewer where there would be fewer blocks than
multiprocessors; a short loop of threads is joined with the loop around it. Where one row is short,
a block takes several rows, each computed by some lanes of a warp:

before  for a0 in 0..65536:  # free             after  for b0 in 0..65536 by 16:  # free grid
            for a1 in 0..64:  # reduce thread              for a0 in b0..b0 + 16:  # free thread
                acc0 <- add(acc0, x[a0, a1])                   for a1 in 0..64:  # reduce lane

Where there are too few columns to fill the device, several warps split the work of each column:

before  for a0 in 0..4096:  # free thread       after  for b0 in 0..4096 by 32:  # free grid
            for a1 in 0..8192:  # reduce                   for a0 in b0..b0 + 32:  # free thread
                acc0 <- add(acc0, x[a1, a0])                   for a1 in 0..8192:  # reduce warp

The sides of a tile are cut into blocks of the lowest price; loads and stores beyond its end are
masked. A kernel of several nests is one block, since one nest may need another's results.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from weft.scalar.blocks import loops_in, only_loop, reads_again, rebound
from weft.scalar.choices import Choices
from weft.scalar.nest import For, Kernel
from weft.scalar.ops import constant
from weft.targets.gpu import GPU
from weft.tile.analysis.access import trips
from weft.tile.analysis.fragments import GROUP_RATE, unit_rate
from weft.tile.analysis.tiles import Tile, is_frame, tile_of
from weft.tile.moves.bind import framed, in_rows, shared, shared_by_warps, whole_blocks
from weft.tile.moves.join import joined
from weft.tile.moves.loops import Labels, blocked
from weft.tile.price.products import grid_cycles

SIDES = (16, 32, 64, 128)  # of a tile
WIDE = 256  # columns of one that warpgroups compute
COPIED = 32  # side of a tile that only copies: a warp reads, and stores, whole lines
PIECE = 4  # elements that a lane takes at a time
PIECES = 8  # that it holds


def blockify_launch(kernel: Kernel, target: GPU, choices: Choices) -> Kernel:
    """Bind to the grid down to the first loop of threads, and that one in blocks."""
    only, labels = only_loop(kernel.body), Labels(kernel.body)
    if only is None:
        return kernel
    if is_frame(only):
        return replace(kernel, body=shared(framed(kernel.body)))
    tile = tile_of(only)
    if tile is not None:
        return replace(kernel, body=(_tile_grid(tile, target, labels, choices),))
    return replace(kernel, body=(_grid(only, 1, target, labels),))


def _grid(stmt: For, blocks: int, target: GPU, labels: Labels) -> For:
    if stmt.role != "free" or stmt.bind not in ("", "thread"):
        return stmt
    if stmt.bind == "thread":
        return _cut(stmt, blocks, target, labels)
    only = only_loop(stmt.body)
    both = joined(stmt, only, labels) if only and _is_short(stmt, only, target) else None
    if both is not None:
        return _grid(replace(both, bind="thread"), blocks, target, labels)
    rows = _rows(stmt, blocks, target)
    if rows > 1:
        return in_rows(stmt, rows, rebound(stmt.body, "thread", "lane"), labels)
    if only and only.role == "free":
        inner = _grid(only, blocks * trips(stmt), target, labels)
        return replace(stmt, body=(inner,), bind="grid")
    return replace(stmt, bind="grid") if any(loops_in(stmt.body, "thread")) else stmt


def _is_short(outer: For, inner: For, target: GPU) -> bool:
    """Whether a loop over threads leaves a block short, so that the one around it joins it."""
    free = inner.bind == "thread" and inner.role == "free" and not outer.bind
    return free and 0 < 2 * trips(inner) <= target.threads and trips(outer) > 1


def _rows(stmt: For, blocks: int, target: GPU) -> int:
    """Iterations that one block does, each in a part of a warp; 1 where blocks have enough to do.

    That is where lanes have no more than PIECES pieces of an iteration, which reads nothing that it
    stores.
    """
    loops = list(loops_in(stmt.body))
    most = max(((s.extent or 0) for s in loops), default=0)
    pieces = -(-most // PIECE)
    plain = all(s.bind == "thread" and s.lo is constant(0) and s.extent for s in loops)
    if not plain or not 0 < pieces <= PIECES * target.warp or reads_again(stmt.body):
        return 1
    rows = target.threads // min(target.warp, 1 << (pieces - 1).bit_length())
    while rows > 1 and blocks * (trips(stmt) // rows) < target.cores:
        rows //= 2
    return rows


def _cut(stmt: For, blocks: int, target: GPU, labels: Labels) -> For:
    few = stmt.role == "free" and blocks * trips(stmt) < target.fewest_threads
    body = shared_by_warps(stmt) if few else None
    if body is not None:
        return in_rows(stmt, target.warp, body, labels)
    width = target.threads
    while width > target.warp and blocks * -(-trips(stmt) // width) < target.cores:
        width //= 2
    return blocked(stmt, labels.axis("b"), width, bind="grid")


# ---- tiles


def _tile_grid(tile: Tile, target: GPU, labels: Labels, choices: Choices) -> For:
    """The tile with blocks of one size over the grid."""
    rows, columns = tile.threads
    depth = trips(*loops_in(tile.body))
    around = trips(*tile.around)
    inner = tile.innermost
    rate = unit_rate(inner.body, inner, depth, target) if inner else 1

    def price(sides: tuple[int, ...]) -> tuple[float, int]:
        blocks = around * -(-trips(rows) // sides[0]) * -(-trips(columns) // sides[1])
        return grid_cycles(blocks, sides[0], sides[1], depth, rate, target), -math.prod(sides)

    square = (COPIED, COPIED) if tile.sum is None else None
    wide = (*SIDES, WIDE) if rate == GROUP_RATE else SIDES
    both = product(_sides(trips(rows), SIDES), _sides(trips(columns), wide))
    sides = square or choices.pick("tile", both, price)
    grid: list[For] = [replace(f, bind="grid") for f in tile.around]
    threads: list[For] = []
    body = tile.body
    for loop, side in zip(tile.threads, sides, strict=True):
        blocks, thread, body = whole_blocks(loop, side, labels, body)
        grid.append(blocks)
        threads.append(thread)
    return Tile(tuple(grid), tuple(threads), (), body).nest()


def _sides(length: int, sides: Sequence[int]) -> list[int]:
    """Sizes of blocks of a side: powers of two, no longer than it needs."""
    return [s for s in sides if s < 2 * length] or [sides[0]]
