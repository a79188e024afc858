"""The price of a contraction without its epilogue: by panels or dot products, by tiles on a GPU.

panels_cost(contraction, target)        # packed panels and a register tile, on a CPU
dot_tile(contraction, target)           # a tile of dot products, None where panels are as fast
grid_cycles(1024, 128, 64, 512, 8, gpu) # of 1024 tiles of 128 x 64, with sums of 512
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from weft.core.node import Node, postorder
from weft.scalar.choices import Choices
from weft.scalar.nest import For, Load, Update
from weft.scalar.ops import has_symbol
from weft.targets.gpu import GPU
from weft.targets.machine import Machine
from weft.tile.analysis.access import (
    Contraction,
    divisors,
    narrow,
    strides,
    term_cost,
    tile_length,
    trips,
)
from weft.tile.analysis.fragments import GROUP, GROUP_RATE, ROWS, unit_rate
from weft.tile.analysis.tiles import register_split, warp_tile
from weft.tile.moves.panels import in_panels, tile_width
from weft.tile.price.axes import SETS, WAYS

RATE = 1.15  # vector instructions in the time of a multiply-add that a register tile feeds
TRANSPOSE = 8  # multiply-adds in the time that packing a vector across takes
TILE = 64  # rows and columns of a tile on a GPU
START = 2000.0  # cycles until a block's first products on a GPU
L2_BYTES = 24.0  # a cycle, of each of its multiprocessors
# Of packed panels on a CPU:
LATENCY = 8  # multiply-adds that start before the first of them ends
UNROLLED = 4  # iterations of a sum at a time: the end of a short one is then predicted
READ = 0.5  # multiply-adds in the time in which a register tile reads a vector of its columns
NEAR = 16 << 10  # bytes of a tile's columns that stay in the nearest cache: half of it
FEW = 4  # rows from which on the right side is read often enough to pack it
# Of dot products on a CPU:
LOAD = 0.29  # vector instructions in the time of a load beside multiply-adds, or of widening
CROSS = 0.7  # the same of a load that crosses a cache line, beyond another
LINE = 64  # bytes of a cache line
FAR = 1.5  # times as long: what many tiles read in turn comes from farther caches
ACROSS = 3.45  # vector instructions in the time that the lanes of an accumulator take to add up
WIDEST = 4  # vectors of a strip of columns at most


def panels_cost(c: Contraction, target: Machine) -> float:
    """Multiply-adds at full rate, and each side's terms as often as the tiling computes them."""
    lanes, wide = target.lanes(c.bytes), target.register_tile[1]
    outer, repeat, k = trips(*c.outer), trips(*c.repeat), trips(*c.reduce)
    rows, columns = tile_rows(c, target), -(-trips(c.columns) // lanes)
    whole, left = divmod(trips(c.rows), rows)
    tiles = whole + (left > 0)
    filled = whole * rows + (max(left, LATENCY // wide) if left else 0)
    total = RATE * outer * repeat * filled * columns * k
    total += outer * repeat * trips(c.rows) * k * -(-columns // wide) * terms_cost(c.left) / 1.5
    if in_panels(c, tile_width(c, target)) is None:
        steps = strides(c.update, c.columns.axis, c.ranges)
        uneven = any(step not in (0, 1) for _, step in steps)
        packs = 1 if repeat * tiles == 1 and not uneven else outer * columns * k
        total += packs * (terms_cost(c.right) + 1 + (RATE * TRANSPOSE if uneven else 0))
    return total


def tile_rows(c: Contraction, target: Machine, choices: Choices | None = None) -> int:
    """Rows of a register tile: any for which its accumulators leave registers for operands.

    Of those with the usual number of accumulators, all tiles together take the shortest time. A
    loop of fewer iterations than UNROLLED gcc unrolls whole, and loads the next columns early:
    accumulators leave registers for these too, else they are spilled. Of more rows than usual, few
    lie in one set of the nearest cache: it has to hold them for the next iterations. Sums in chunks
    have one accumulator each, and no second one for what chunks before added up.
    """
    wide = tile_width(c, target) // target.lanes(c.bytes)
    early = 1 < trips(c.reduce[-1]) < UNROLLED
    steps = strides(Update(c.update.fold, (c.left,)), c.rows.axis, c.ranges)
    alike = max((math.gcd(n * c.left.type.dtype.bytes, SETS) for _, n in steps if n), default=1)
    room = target.vector_registers - 1 - (2 if early else 1) * wide
    usual = room if is_chunked(c, target) else math.prod(target.register_tile)
    most = min(usual, room)  # accumulators

    def price(rows: int) -> tuple[bool, float]:
        crowded = rows > target.register_tile[0] and rows * alike > WAYS * SETS
        return rows * wide > most or crowded, tiles_time(c, rows, wide)

    lengths = range((target.vector_registers - 2) // wide - 1, 1, -1)
    fit = dict.fromkeys(tile_length(c.rows, n) for n in lengths)
    return (choices or Choices()).pick("tile_rows", fit, price)


def is_chunked(c: Contraction, target: Machine) -> bool:
    """Whether tiles of many rows read columns that the nearest cache does not hold for all terms.

    Then they add up chunks of the terms, one after another (tile/moves/sum_chunks.py). Pieces of
    rows, which no hardware fetches ahead, have to be in a cache already. Groups of terms always do.
    """
    if c.groups:
        return True
    literal = not any(has_symbol(f.hi) for f in (c.rows, c.columns, *c.reduce))
    if not literal or c.update.fold.finite:  # of which a mask may end the loops: tile/moves/skip.py
        return False
    deep, size = trips(*c.reduce), c.right.type.dtype.bytes
    steps = strides(Update(c.update.fold, (c.left,)), c.rows.axis, c.ranges)
    near = target.l2 // (1 if all(step in (0, 1) for _, step in steps) else 4)
    held = deep * tile_width(c, target) * size > 2 * NEAR and deep * trips(c.rows) * size <= near
    return held and trips(c.rows) > 2 * target.register_tile[0]


def chunk(c: Contraction, terms: For, width: int) -> int:
    """Iterations of the outermost loop over terms in a chunk, for tiles of so many columns.

    As many in each chunk as in another, if some number is near what the cache holds; one of groups.
    """
    if c.groups:
        return 1
    row = trips(*c.reduce) // trips(terms) * width * c.right.type.dtype.bytes
    most = max(1, NEAR // row)
    even = (n for n in divisors(trips(terms)) if most / 2 < n < most * 5 / 4)
    return max(even, default=most)


def tiles_time(c: Contraction, rows: int, wide: int) -> float:
    """Multiply-adds in the time of a step of the sums: of all its rows, by `wide` vectors."""
    whole, left = divmod(trips(c.rows), rows)
    tiles = ((whole, rows), (left > 0, left))
    return sum(n * (max(r * wide, LATENCY) + READ * wide) for n, r in tiles)


def pays(c: Contraction) -> bool:
    """Few rows reuse too little of the right side, if that is contiguous along a reduce axis."""
    if c.groups:
        return min(trips(c.rows), trips(c.columns)) > 1
    if trips(c.rows) >= FEW:
        return True
    return all(step in (0, 1) for _, step in strides(c.update, c.columns.axis, c.ranges))


def tiles_cost(c: Contraction, target: GPU) -> float:
    """In tiles on a GPU: each computes its sides once, and narrow ones widen for nothing."""
    k, lanes = trips(*c.reduce), target.lanes(c.bytes)
    around = trips(*c.outer, *c.repeat)
    rows, columns = trips(c.rows), trips(c.columns)
    rate = unit_rate((c.update,), c.reduce[-1], k, target)
    total = RATE * rows * columns * k / rate
    for side, length, other in ((c.left, rows, columns), (c.right, columns, rows)):
        total += terms_cost(narrow(side)) * length * k * -(-other // TILE)
    return around * total / lanes


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
        high, wide = warp_tile(rows, columns)
        warps = rows * columns / (high * wide)
        products, reads, size = high * wide / 1024, (high + wide) / 64, 2
    else:
        down, across = register_split(rows, columns)
        warps = rows * columns / (down * across) / 32
        products, reads, size = down * across / 4, 0.6 * (down + across), 4
    compute = warps * (max(products, reads) + 0.25 * min(products, reads))
    hidden = min(1.0, 0.5 + each * warps / 16)
    return each * depth * max(compute / hidden, size * (rows + columns) / L2_BYTES) + START


def terms_cost(term: Node) -> float:
    """The cost of a term beyond a plain load."""
    own = sum(map(term_cost, postorder(term)))
    return own if not isinstance(term.op, Load) else 0.0


@dataclass(frozen=True)
class DotTile:
    """Rows and columns of accumulators, each a vector; vector instructions of the whole nest."""

    rows: int
    columns: int
    price: float

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns}"


def dot_tile(c: Contraction, target: Machine, choices: Choices | None = None) -> DotTile | None:
    """The best register tile of dot products; None where panels are as fast or lanes do not fit."""
    last = c.reduce[-1]
    along = [step for _, step in strides(c.update, last.axis, c.ranges)]
    across = [step for _, step in strides(c.update, c.columns.axis, c.ranges)]
    contiguous = all(step in (0, 1) for step in along)
    if not contiguous or trips(last) < target.lanes(c.bytes) or {*across} <= {0, 1}:
        return None
    panels = panels_cost(c, target)
    tiles = (None, *_tiles(c, target))
    return (choices or Choices()).pick("dot_tile", tiles, lambda t: t.price if t else panels)


def _tiles(c: Contraction, target: Machine) -> Iterator[DotTile]:
    """Tiles whose accumulators leave registers for one side and an operand of the other."""
    lanes, rows, columns = target.lanes(c.bytes), trips(c.rows), trips(c.columns)
    most, price = target.vector_registers - 1, dots_cost(c, target)
    for wide in range(1, min(columns, most) + 1):
        high = max((most - wide) // wide, most // (wide + 1))
        fits = high > 0 and strip_columns(wide, lanes) <= WIDEST * lanes
        if not fits or tile_length(c.columns, wide) != wide:
            continue
        high = tile_length(c.rows, high)
        high = high if has_symbol(c.rows.hi) else -(-rows // -(-rows // high))
        yield DotTile(high, wide, price(high, wide))


def dots_cost(c: Contraction, target: Machine) -> Callable[[int, int], float]:
    """The price in tiles of so many rows and columns."""
    lanes, rows, columns = target.lanes(c.bytes), trips(c.rows), trips(c.columns)
    deep = trips(*c.reduce[:-1]) * -(-trips(c.reduce[-1]) // lanes)
    around = trips(*c.outer, *c.repeat)
    left, right = _load(c.left, c.rows, c, lanes), FAR * _load(c.right, c.columns, c, lanes)

    def price(high: int, wide: int) -> float:
        loads = rows * -(-columns // wide) * left + columns * -(-rows // high) * right
        return around * (deep * (RATE * rows * columns + loads) + ACROSS * rows * columns)

    return price


def _load(side: Node, rows: For, c: Contraction, lanes: int) -> float:
    """Cost of a vector of one side: to load it, to widen it, and what else it takes."""
    plain = narrow(side)
    instructions = 1 if plain is side else 2
    crossing = CROSS * _crossing(side, rows, c, lanes)
    return LOAD * instructions + crossing + terms_cost(plain)


def _crossing(side: Node, rows: For, c: Contraction, lanes: int) -> float:
    """The part of its vectors that cross a line: where rows do not start at whole vectors."""
    found = 0.0
    for load, step in strides(Update(c.update.fold, (side,)), rows.axis, c.ranges):
        if isinstance(load, Node):
            each = load.type.dtype.bytes
            aligned = math.gcd((1 if step is None else step) * each, lanes * each)
            found = max(found, (lanes * each - aligned) / LINE)
    return found


def strip_columns(wide: int, lanes: int) -> int:
    """Columns of a strip: whole vectors, two or more, and whole tiles of `wide` columns."""
    even = math.lcm(wide, lanes)
    return even * -(-2 * lanes // even)
