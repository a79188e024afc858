"""Binds loops to the grid, and to the threads, lanes and warps of a block.

whole_blocks(a0 in 0..100, 32, ..)      # for b0 in 0..128 by 32, for a0 in b0..b0 + 32, masked
in_rows(loop, 16, body, labels)         # 16 iterations to a block, a part of a warp to each

before  for a0 in 0..65536:  # free             after  for b0 in 0..65536 by 16:  # free grid
            for a1 in 0..64:  # reduce lane                for a0 in b0..b0 + 16:  # free thread
                ...                                            for a1 in 0..64:  # reduce lane

laid_out(tile, sides, ((32,), (32,)), labels)       # as mma.sync's fragments are

before  for a0 in b0..b0 + 64:  # thread    after  for w0 in b0..b0 + 64 by 32:  # thread, a warp
            for a1 in b1..b1 + 64:  # thread           for w1 in b1..b1 + 64 by 32:  # thread
                ...                                        for g0 in w0..w0 + 8:  # thread, a lane
                                                               for q0 in w1..w1 + 8 by 2:  # thread
                                                                   ... a0, a1 in registers
"""

from collections.abc import Sequence
from dataclasses import replace

from weft.scalar.blocks import locals_in, loops_in, map_loops, reads_again, rebound
from weft.scalar.index import simplify
from weft.scalar.nest import Block, For, Stmt
from weft.scalar.ops import apply, constant, function_of
from weft.scalar.reach import longest
from weft.scalar.structure import substituted
from weft.tile.analysis.access import trips
from weft.tile.analysis.fragments import COLUMNS, DEPTH, PAIRS, ROWS, operands
from weft.tile.analysis.tiles import Tile, is_frame, on_nests, tile_of, warp_tile
from weft.tile.moves.loops import Labels, around, full, section, within

LONG = 128  # iterations that warps share
Parts = Sequence[int]  # lengths of the parts of a side, each a part of the one before


def framed(body: Block) -> Block:
    """The free frames on the grid; of nests inside that are no tiles, the rows on threads."""
    if len(body) == 1 and is_frame(body[0]) and body[0].role == "free":
        return (replace(body[0], body=framed(body[0].body), bind="grid"),)

    def one(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, For) or stmt.bind or tile_of(stmt) is not None:
            return stmt
        if stmt.role == "scan":  # in order
            return stmt
        body = rebound(stmt.body, "thread", "lane")
        if function_of(stmt.hi) != "minimum":
            return replace(stmt, body=body, bind="thread")
        most = longest(stmt.lo, stmt.hi) or 0
        return section(stmt, stmt.lo, most, body=within(body, stmt), bind="thread")

    return on_nests(body, one)


def shared(body: Block) -> Block:
    """The body with what its nests hand over in shared memory."""
    own = {b for f in loops_in(body, "thread") for b in locals_in(f.body)}  # of one thread
    return substituted(
        body, {b: replace(b, space="shared") for b in locals_in(body) if b not in own}
    )


def whole_blocks(loop: For, width: int, labels: Labels, body: Block) -> tuple[For, For, Block]:
    """The grid of whole blocks, the loop in one, and the body: masked if the last ends beyond."""
    (end, even), origin = full(loop, width), labels.axis("b")
    grid = For(origin, loop.lo, end, (), width, "free", "grid")
    return grid, section(loop, origin, width), body if even else within(body, loop)


def in_rows(stmt: For, rows: int, body: Block, labels: Labels) -> For:
    """So many iterations of a free loop on threads, with a body that several share."""
    grid, row, body = whole_blocks(stmt, rows, labels, body)
    return around([grid], replace(row, body=body, bind="thread"))


def shared_by_warps(stmt: For) -> Block | None:
    """The body of a loop over columns with its loops on warps; None where they cannot share it."""
    loops = [s for s in stmt.body if isinstance(s, For)]
    plain = all(s.lo is constant(0) and s.extent and s.role != "scan" for s in loops)
    if not plain or any(s.bind or s.role == "scan" for s in loops_in(stmt.body)):
        return None
    longest_sum = max((trips(s) for s in loops if s.role == "reduce"), default=0)
    if longest_sum < LONG or reads_again(stmt.body):
        return None
    return map_loops(stmt.body, lambda s: replace(s, bind="warp"))


def whole_sides(tile: Tile) -> list[For] | None:
    """The loops over the sides of a tile that tensorize_mma has cut; None where it has not."""
    if not any(loops_in(tile.body, "mma")) or len(tile.threads) != 4:
        return None
    pairs = zip(tile.threads[:2], tile.registers[1::2], strict=True)
    return [replace(one, lo=f.lo, hi=f.hi, step=1, bind="thread") for f, one in pairs]


def laid_out(
    tile: Tile, sides: Sequence[For], parts: Sequence[Parts], labels: Labels, far: int = ROWS // 2
) -> Tile:
    """The tile of two sides, of which threads have parts, in parts of those: a warp the last.

    `far` is from one of a lane's rows to the other: all rows up to there are lanes. The loops that
    it had over threads and registers leave it their names.
    """
    (rows, columns), (high, wide) = sides, parts
    labels.loops.difference_update(f.label for f in (*tile.threads, *tile.registers))
    down = _cut(rows, high, labels, far)
    across = _cut(columns, wide, labels)
    threads = (*down[0], *across[0], down[1], across[1])
    return replace(tile, threads=threads, registers=(*down[2], *across[2]))


def _cut(loop: For, parts: Parts, labels: Labels, far: int = 0) -> tuple[list[For], For, list[For]]:
    """Loops over parts, lanes and registers for one side.

    far     from one of a lane's rows to the other: all rows up to there are lanes. 0 on the side of
            the columns, of which a lane has two side by side
    """
    stem, run, step = ("g", 1, far) if far else ("q", 2, 1)  # of lanes, and of one's elements
    lead = far or PAIRS * run  # from the first lane to the last one's end
    atom = 2 * far or COLUMNS
    warps, rest, length = list[For](), loop, trips(loop)
    for length in parts:
        warps.append(replace(rest, axis=labels.axis("w"), step=length))
        rest = section(loop, warps[-1].axis, length)
    end_of_lanes = simplify(apply("add", rest.lo, constant(lead)), {})
    lanes = replace(rest, axis=labels.axis(stem), hi=end_of_lanes, step=run)
    atoms = section(loop, lanes.axis, length, axis=labels.axis("i"), step=atom, bind="register")
    return warps, lanes, [atoms, section(loop, atoms.axis, 2 * step, step=step, bind="register")]


def on_units(tile: Tile, chunk: For, labels: Labels) -> Tile | None:
    """The tile with products of a chunk by mma.sync; None where its slabs or sides do not fit."""
    if len(tile.threads) != 2 or tile.registers:
        return None
    *before, inner = chunk.body
    found = operands(inner.body) if isinstance(inner, For) else None
    if found is None or not isinstance(inner, For) or trips(inner) % DEPTH:
        return None
    sides = [trips(f) for f in tile.threads]
    if any(n.op.buffer.space != "shared" for n in found):  # type: ignore[attr-defined]
        return None
    warps = warp_tile(*sides)
    parts = zip(sides, warps, (ROWS, COLUMNS), strict=True)
    if any(n % warp or n % atom for n, warp, atom in parts):
        return None
    start = labels.axis("u")
    atom = section(inner, start, DEPTH, bind="mma")
    steps = replace(inner, axis=start, step=DEPTH, body=(atom,), bind="unroll")
    tile = tile.with_chunk(replace(chunk, body=(*before, steps)))
    high, wide = warps
    return laid_out(tile, tile.threads, ((high,), (wide,)), labels)
