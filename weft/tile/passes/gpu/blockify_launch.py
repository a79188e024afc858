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

from weft.scalar.affine import function_of
from weft.scalar.blocks import locals_in, loops_in, map_loops, map_statements, reads_again, rebound
from weft.scalar.nest import Block, For, Kernel, Stmt, Store
from weft.scalar.ops import apply, constant
from weft.scalar.reach import longest
from weft.scalar.substitution import substituted
from weft.targets.gpu import GPU
from weft.tile.analysis import tiles
from weft.tile.analysis.access import trips
from weft.tile.analysis.fragments import GROUP, GROUP_RATE, ROWS, unit_rate
from weft.tile.analysis.tiles import Tile, full, is_frame, on_nests, section, tile_of
from weft.tile.choices import Choices
from weft.tile.moves.join import joined
from weft.tile.moves.loops import Labels, blocked

SIDES = (16, 32, 64, 128)  # of a tile
WIDE = 256  # columns of one that warpgroups compute
COPIED = 32  # side of a tile that only copies: a warp reads, and stores, whole lines
PIECE = 4  # elements that a lane takes at a time
PIECES = 8  # that it holds
LONG = 128  # iterations that warps share
START = 2000.0  # cycles until a block's first products
L2_BYTES = 24.0  # a cycle, of each multiprocessor


def blockify_launch(kernel: Kernel, target: GPU, choices: Choices) -> Kernel:
    """Bind to the grid down to the first loop of threads, and that one in blocks."""
    if len(kernel.body) != 1 or not isinstance(kernel.body[0], For):
        return kernel
    labels, tile = Labels(kernel.body), tile_of(kernel.body[0])
    if is_frame(kernel.body[0]):
        return replace(kernel, body=_shared(_framed(kernel.body)))
    if tile is not None:
        return replace(kernel, body=(_tile_grid(tile, target, labels, choices),))
    return replace(kernel, body=(_grid(kernel.body[0], 1, target, labels),))


def _framed(body: Block) -> Block:
    """The free frames on the grid; of nests inside that are no tiles, the rows on threads."""
    if len(body) == 1 and is_frame(body[0]) and body[0].role == "free":
        return (replace(body[0], body=_framed(body[0].body), bind="grid"),)

    def one(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, For) or stmt.bind or tile_of(stmt) is not None:
            return stmt
        body = rebound(stmt.body, "thread", "lane")
        if function_of(stmt.hi) != "minimum":
            return replace(stmt, body=body, bind="thread")
        most = longest(stmt.lo, stmt.hi) or 0
        return section(stmt, stmt.lo, most, body=_within(body, stmt), bind="thread")

    return on_nests(body, one)


def _shared(body: Block) -> Block:
    """The body with what its nests hand over in shared memory."""
    return substituted(body, {b: replace(b, space="shared") for b in locals_in(body)})


def _grid(stmt: For, blocks: int, target: GPU, labels: Labels) -> For:
    if stmt.role != "free" or stmt.bind not in ("", "thread"):
        return stmt
    if stmt.bind == "thread":
        return _cut(stmt, blocks, target, labels)
    only = stmt.body[0] if len(stmt.body) == 1 else None
    short = isinstance(only, For) and _is_short(stmt, only, target)
    both = joined(stmt, only, labels) if isinstance(only, For) and short else None
    if both is not None:
        return _grid(replace(both, bind="thread"), blocks, target, labels)
    rows = _rows(stmt, blocks, target)
    if rows > 1:
        return _in_rows(stmt, rows, rebound(stmt.body, "thread", "lane"), labels)
    if isinstance(only, For) and only.role == "free":
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


def _in_rows(stmt: For, rows: int, body: Block, labels: Labels) -> For:
    """So many iterations of a free loop on threads, with a body that several share."""
    (end, even), origin = full(stmt, rows), labels.axis("b")
    body = body if even else _within(body, stmt)
    row = section(stmt, origin, rows, body=body, bind="thread")
    return For(origin, stmt.lo, end, (row,), rows, "free", "grid")


def _shared_by_warps(stmt: For) -> Block | None:
    """The body of a loop over columns with its loops on warps; None where they cannot share it."""
    loops = [s for s in stmt.body if isinstance(s, For)]
    plain = all(s.lo is constant(0) and s.extent and s.role != "scan" for s in loops)
    if not plain or any(s.bind or s.role == "scan" for s in loops_in(stmt.body)):
        return None
    longest_sum = max((trips(s) for s in loops if s.role == "reduce"), default=0)
    if longest_sum < LONG or reads_again(stmt.body):
        return None
    return map_loops(stmt.body, lambda s: replace(s, bind="warp"))


def _cut(stmt: For, blocks: int, target: GPU, labels: Labels) -> For:
    few = stmt.role == "free" and blocks * trips(stmt) < target.fewest_threads
    body = _shared_by_warps(stmt) if few else None
    if body is not None:
        return _in_rows(stmt, target.warp, body, labels)
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
        (end, even), origin = full(loop, side), labels.axis("b")
        if not even:
            body = _within(body, loop)
        grid.append(For(origin, constant(0), end, (), side, "free", "grid"))
        threads.append(section(loop, origin, side))
    return Tile(tuple(grid), tuple(threads), (), body).nest()


def _sides(length: int, sides: Sequence[int]) -> list[int]:
    """Sizes of blocks of a side: powers of two, no longer than it needs."""
    return [s for s in sides if s < 2 * length] or [sides[0]]


def grid_cycles(blocks: int, rows: int, columns: int, depth: int, rate: int, target: GPU) -> float:
    """Cycles of the busiest multiprocessor: products, reads of shared and of global memory.

    128 products a cycle, or `rate` times as many in matrix units; a read of 16 bytes by a warp
    takes some 2.5 cycles, of 4 bytes one, and a warpgroup reads 128 bytes a cycle; global memory
    (from the cache that all share) gives L2_BYTES a cycle. Few warps do not hide how long each
    takes.
    """
    each = -(-blocks // target.cores)
    if rate == GROUP_RATE and rows % GROUP == 0:
        warps, size = rows / ROWS, 2
        products, reads = columns * ROWS / 2048, (GROUP + columns) * ROWS / 4096
    elif rate > 1:
        high, wide = tiles.warp_tile(rows, columns)
        warps = rows * columns / (high * wide)
        products, reads, size = high * wide / 1024, (high + wide) / 64, 2
    else:
        down, across = tiles.register_split(rows, columns)
        warps = rows * columns / (down * across) / 32
        products, reads, size = down * across / 4, 0.6 * (down + across), 4
    compute = warps * (max(products, reads) + 0.25 * min(products, reads))
    hidden = min(1.0, 0.5 + each * warps / 16)
    return each * depth * max(compute / hidden, size * (rows + columns) / L2_BYTES) + START


def _within(body: Block, loop: For) -> Block:
    """The body with no load or store beyond the loop's end."""
    inside = apply("lt", loop.axis, loop.hi)

    def one(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, For):
            stmt = stmt.map_terms(lambda t: tiles.guarded(t, loop.axis, inside))
        if not isinstance(stmt, Store):
            return stmt
        return replace(stmt, mask=inside if stmt.mask is None else apply("and", stmt.mask, inside))

    return map_statements(body, one)
