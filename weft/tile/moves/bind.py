"""Binds loops to the grid, and to the threads, lanes and warps of a block.

whole_blocks(a0 in 0..100, 32, ..)      # for b0 in 0..128 by 32, for a0 in b0..b0 + 32, masked
in_rows(loop, 16, body, labels)         # 16 iterations to a block, a part of a warp to each
"""

from dataclasses import replace

from weft.scalar.affine import function_of
from weft.scalar.blocks import locals_in, loops_in, map_loops, reads_again, rebound
from weft.scalar.nest import Block, For, Stmt
from weft.scalar.ops import constant
from weft.scalar.reach import longest
from weft.scalar.substitution import substituted
from weft.tile.analysis.access import trips
from weft.tile.analysis.tiles import is_frame, on_nests, tile_of
from weft.tile.moves.loops import Labels, around, full, section, within

LONG = 128  # iterations that warps share


def framed(body: Block) -> Block:
    """The free frames on the grid; of nests inside that are no tiles, the rows on threads."""
    if len(body) == 1 and is_frame(body[0]) and body[0].role == "free":
        return (replace(body[0], body=framed(body[0].body), bind="grid"),)

    def one(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, For) or stmt.bind or tile_of(stmt) is not None:
            return stmt
        body = rebound(stmt.body, "thread", "lane")
        if function_of(stmt.hi) != "minimum":
            return replace(stmt, body=body, bind="thread")
        most = longest(stmt.lo, stmt.hi) or 0
        return section(stmt, stmt.lo, most, body=within(body, stmt), bind="thread")

    return on_nests(body, one)


def shared(body: Block) -> Block:
    """The body with what its nests hand over in shared memory."""
    return substituted(body, {b: replace(b, space="shared") for b in locals_in(body)})


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
