"""register_tile: each thread computes a block of a tile's results, held in registers.

before  for a0 in b0..b0 + 64:  # thread    after  for c0 in b0..b0 + 64 by 4:  # thread
            for a1 in b1..b1 + 64:  # thread           for c1 in b1..b1 + 64 by 4:  # thread
                ...                                        for a0 in c0..c0 + 4:  # register
                                                               for a1 in c1..c1 + 4:  # register
                                                                   ...

In other nests a thread takes consecutive elements, so that its accesses are wide, as long as
enough threads are left; and where a thread scans a row by itself, it does so in strips.

before  for a0 in b0..min(b0 + 256, 4096):  # thread   after  for c0 in b0.. by 4:  # thread
            y[a0] = relu(x[a0])                                   for a0 in c0..c0 + 4:  # register
                                                                      y[a0] = relu(x[a0])
"""

from dataclasses import dataclass, replace

from weft.core.node import Node
from weft.scalar.blocks import loops_in, map_loops, nodes
from weft.scalar.divisors import is_multiple, of_axis
from weft.scalar.intervals import Interval
from weft.scalar.nest import Block, For, Kernel, Stmt, walk
from weft.scalar.ops import Constant, apply, has_symbol
from weft.targets.gpu import GPU
from weft.tile.analysis.access import ranges_in, strip_width, trips
from weft.tile.analysis.tiles import Tile, on_tiles, register_split, tile_of
from weft.tile.moves.loops import Labels, in_strips, section, upto

MOST = 8  # elements of a strip
ROWS = 4  # that a thread copies


def register_tile(kernel: Kernel, target: GPU) -> Kernel:
    """Give the threads of tiles their blocks of results, and all others strips."""

    def split(tile: Tile, labels: Labels) -> Tile:
        if len(tile.threads) != 2 or tile.registers:
            return tile
        if tile.sum is None:
            return _rows_apart(tile, labels)
        pairs = list(zip(tile.threads, register_split(*map(trips, tile.threads)), strict=True))
        if any(trips(loop) % size for loop, size in pairs):
            return tile
        threads = tuple(in_strips(loop, labels.axis("c"), size) for loop, size in pairs)
        registers = tuple(next(loops_in(thread.body)) for thread in threads)
        return replace(tile, threads=threads, registers=registers)

    kernel = on_tiles(kernel, split)
    strips = _Strips(target, Labels(kernel.body), ranges_in(kernel.body))
    body = strips.block(kernel.body, {}, 1)
    return replace(kernel, body=map_loops(body, lambda stmt: strips.scans(stmt, {})))


def _rows_apart(tile: Tile, labels: Labels) -> Tile:
    """The tile of a plain copy, where each thread takes strided rows."""
    rows, columns = tile.threads
    each = trips(rows) // ROWS
    if trips(rows) % ROWS or each < 2:
        return tile
    thread = section(rows, rows.lo, each, axis=labels.axis("c"))
    register = section(rows, thread.axis, trips(rows), step=each, bind="register")
    return replace(tile, threads=(thread, columns), registers=(register,))


@dataclass
class _Strips:
    """Loops over threads that take neighbours in strips."""

    target: GPU
    labels: Labels
    ranges: dict[Node, Interval]

    def block(self, stmts: Block, known: dict[Node, int], blocks: int) -> Block:
        """`blocks`: of the grid, around these statements."""
        return map_loops(stmts, lambda s: self.loop(s, known, blocks))

    def loop(self, stmt: For, known: dict[Node, int], blocks: int) -> Stmt:
        if tile_of(stmt) is not None:
            return stmt
        here = {**known, stmt.axis: of_axis(stmt, known)}
        blocks *= trips(stmt) if stmt.bind == "grid" else 1
        pieces = _piece(stmt)
        if pieces is not None:
            return self.cut(stmt, pieces, here, blocks)
        least = {"lane": 1, "thread": self.target.warp}.get(stmt.bind, 0)
        if least and isinstance(stmt.lo.op, Constant) and stmt.extent and not has_lanes(stmt):
            width = self.width(stmt, stmt.extent // least, known)
            return self.strip(stmt, width) if stmt.extent % width == 0 else stmt
        return replace(stmt, body=self.block(stmt.body, here, blocks))

    def scans(self, stmt: For, known: dict[Node, int]) -> For:
        """The loop with the scans of single threads inside it in strips."""
        here = {**known, stmt.axis: of_axis(stmt, known)}
        if stmt.role != "scan" or not stmt.folds or any(loops_in(stmt.body)):
            return replace(stmt, body=map_loops(stmt.body, lambda s: self.scans(s, here)))
        width = strip_width((*walk(stmt.body), *nodes(stmt.body)), stmt.axis, here, self.ranges)
        return self.strip(stmt, width) if stmt.extent and stmt.extent % width == 0 else stmt

    def cut(self, grid: For, thread: For, known: dict[Node, int], blocks: int) -> For:
        """A loop over threads in blocks of the grid: blocks grow by as much as the strips."""
        width = self.width(thread, blocks // self.target.cores, known)
        if has_symbol(grid.hi):
            whole = is_multiple(apply("subtract", grid.hi, grid.lo), width)
        else:
            whole = trips(replace(grid, step=1)) % width == 0
        if width == 1 or not whole or thread.role != "free":
            return grid
        inner = self.strip(replace(thread, hi=upto(grid.axis, grid.step * width, grid.hi)), width)
        return replace(grid, step=grid.step * width, body=(inner,))

    def width(self, stmt: For, most: int, known: dict[Node, int]) -> int:
        """How long strips can be, and leave work for all threads."""
        parts = (*walk(stmt.body), *nodes(stmt.body))
        width = min(strip_width(parts, stmt.axis, known, self.ranges), MOST)
        while width > max(most, 1):
            width //= 2
        return width

    def strip(self, stmt: For, width: int) -> For:
        return stmt if width == 1 else in_strips(stmt, self.labels.axis("c"), width)


def _piece(stmt: For) -> For | None:
    """The loop over threads that one block of a loop runs, where each thread works alone."""
    inner = stmt.body[0] if len(stmt.body) == 1 else None
    if not isinstance(inner, For) or inner.bind != "thread" or inner.lo is not stmt.axis:
        return None
    return None if has_lanes(inner) else inner


def has_lanes(stmt: For) -> bool:
    """Whether several threads share what is in a loop."""
    return any(loops_in(stmt.body, "lane", "warp"))
