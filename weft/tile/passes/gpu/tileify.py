"""tileify: binds to threads the free loops of each nest along which accesses are cheapest.

before  for a0 in 0..32:  # free            after  for a0 in 0..32:  # free
            for a1 in 0..2048:  # free                 for a1 in 0..2048:  # free thread
                y[a0, a1] = ...                            y[a0, a1] = ...

Threads of a warp run together, so their accesses are priced like the lanes of a vector. In a
contraction both rows and columns go to threads: the nest becomes a tile. So does a transposing
nest, whose store is contiguous along one loop and a load along another.
"""

from dataclasses import replace

from weft.core.node import Node
from weft.scalar.blocks import map_each
from weft.scalar.nest import For, Kernel, Stmt, Update
from weft.scalar.ops import apply, constant
from weft.targets.gpu import GPU
from weft.tile.analysis.access import Contraction, contraction, crossing, ranges_in, trips
from weft.tile.analysis.tiles import Tile, nests_of, on_nests, tile_of
from weft.tile.moves.loops import nested
from weft.tile.price.axes import every_axis

LEAST = 8  # rows, columns and products to a sum from which on what a tile shares is worth it


def tileify(kernel: Kernel, target: GPU) -> Kernel:
    """Bind the chosen free loops; what only a reduction offers is for cooperative_reduce."""
    return replace(kernel, body=bound(on_nests(kernel.body, _tiled), target, "free"))


def _tiled(stmt: Stmt) -> Stmt:
    if not isinstance(stmt, For) or stmt.bind:
        return stmt
    product, copied = contraction(stmt), crossing(stmt)
    if product is not None and pays(product):
        return tile(product)
    sides = copied[1:3] if copied is not None else ()
    if copied and all(f.lo is constant(0) and trips(f) >= LEAST for f in sides):
        across, along = (replace(f, bind="thread") for f in (copied.across, copied.along))
        around = tuple(f for f in copied.loops if f not in copied[1:3])
        return Tile(around, (across, along), (), copied.stores).nest()
    return stmt


def pays(c: Contraction) -> bool:
    """Whether the contraction is large enough for a tile."""
    if any(f.lo is not constant(0) for f in (c.rows, c.columns, *c.reduce)):
        return False
    return min(trips(c.rows), trips(c.columns), trips(*c.reduce)) >= LEAST


def tile(c: Contraction) -> For:
    """The contraction's nest with a loop of threads over its rows, and one over its columns."""
    value = apply(c.times, c.left, c.right)
    body = nested(c.reduce, (Update(c.update.fold, (value,)),))
    threads = tuple(replace(loop, bind="thread") for loop in (c.rows, c.columns))
    return Tile((*c.outer, *c.repeat), threads, (), (*body, *c.stores)).nest()


def bound(body: tuple[Stmt, ...], target: GPU, role: str) -> tuple[Stmt, ...]:
    """The body with the chosen loops of one role on threads, but in tiles."""
    ranges = ranges_in(body)
    chosen: set[Node] = set()
    for stmt in nests_of(body):
        if isinstance(stmt, For) and not stmt.bind and tile_of(stmt) is None:
            chosen |= every_axis(stmt, target, ranges)[0][1]

    def one(loop: For) -> For:
        picked = loop.axis in chosen and loop.role == role
        return replace(loop, bind="thread") if picked else loop

    return map_each(body, For, one)
