"""tile_dot_products: few rows times a matrix that is contiguous along the sum, without packing it.

before  for a0 in 0..6:  # free            after  for b0 in 0..64 by 32:  # free
            for a1 in 0..64:  # free                  local dots: f32[6,32]
                for a2 in 0..80:  # reduce acc0       for b1 in b0..min(b0 + 32, 64) by 4:  # free
                    acc0 <- add(acc0, x*w)                for a0 in 0..6:  # register
                y[a0, a1] = relu(acc0)                        for a1 in b1..b1 + 4:  # register
                                                                  ... a2 by vectors: acc0
                                                                  dots[a0, a1 - b0] = acc0
                                                      for a0 in 0..6:  # free
                                                          for a1 in b0..min(b0 + 32, 64):  # free
                                                              y[a0, a1] = relu(dots[a0, a1 - b0])

Lanes run along the sum, where both operands are contiguous; each row of the matrix comes from
memory once, for all rows on the left. Packed panels reach the multiply-adds with fewer loads and
no sum over lanes, but have to be written first: many rows pay for that, few do not.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from weft.core.node import Node, make, substitute
from weft.scalar.affine import has_symbol
from weft.scalar.blocks import loops_from, map_outermost, substitute_block
from weft.scalar.nest import Block, For, Kernel, Load, Local, Stmt, Store, Update
from weft.targets.machine import Machine
from weft.tile.analysis.access import Contraction, contraction, narrow, strides, tile_length, trips
from weft.tile.choices import Choices
from weft.tile.moves.loops import Labels, around, blocked, nested, past, tiled
from weft.tile.passes.both.collapse_loops import nested_and_joined
from weft.tile.price.products import RATE, panels_cost, terms_cost

LOAD = 0.29  # vector instructions in the time of a load beside multiply-adds, or of widening
CROSS = 0.7  # the same of a load that crosses a cache line, beyond another
LINE = 64  # bytes of a cache line
FAR = 1.5  # times as long: what many tiles read in turn comes from farther caches
ACROSS = 3.45  # vector instructions in the time that the lanes of an accumulator take to add up
WIDEST = 4  # vectors of a strip of columns at most
ROWS = 64  # rows at most whose dot products are kept before the epilogue reads them


def tile_dot_products(kernel: Kernel, target: Machine, choices: Choices) -> Kernel:
    """Apply the schedule to every contraction that it makes faster than packed panels would."""
    labels = Labels(kernel.body)

    def one(stmt: For) -> Stmt | None:
        found = None if stmt.bind else contraction(stmt)
        tile = None if found is None else dot_tile(found, target, choices)
        return None if found is None or tile is None else _schedule(found, tile, target, labels)

    return replace(kernel, body=map_outermost(kernel.body, one))


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
        fits = high > 0 and _strip(wide, lanes) <= WIDEST * lanes
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


def _strip(wide: int, lanes: int) -> int:
    """Columns of a strip: whole vectors, two or more, and whole tiles of `wide` columns."""
    even = math.lcm(wide, lanes)
    return even * -(-2 * lanes // even)


def _schedule(c: Contraction, tile: DotTile, target: Machine, labels: Labels) -> Stmt:
    """Strips of columns, and in them blocks of rows; the strips are what threads share."""
    strip = _strip(tile.columns, target.lanes(c.bytes))
    most = -(-tile_length(c.rows, ROWS) // tile.rows) * tile.rows

    def block(rows: For, columns: For) -> Block:
        part = replace(c, rows=rows, columns=columns)
        return _block(part, tile, (most, strip), target.lanes(c.bytes), labels)

    def strips(columns: For) -> Block:
        nest = tiled((c.rows, columns), ((0, most),), labels, block)
        return nested(c.repeat, nest, bind="serial")

    nest = tiled((c.columns,), ((0, strip),), labels, strips)
    return nested(c.outer, nest, bind="serial")[0]


def _block(
    c: Contraction, tile: DotTile, shape: tuple[int, int], lanes: int, labels: Labels
) -> Block:
    """The dot products of some rows and columns, and then the epilogue over them by rows."""
    dots = labels.buffer("dots", c.update.fold.dtypes[0], shape)
    index = past(c.rows.axis, c.rows.lo), past(c.columns.axis, c.columns.lo)
    (acc,) = c.update.fold.accs
    inner = (_sum(c, lanes, labels), Store(dots, index, acc))

    def in_registers(*tile: For) -> Block:
        return nested(tile, inner, bind="register")

    steps = (1, tile.columns), (0, tile.rows)
    fill = tiled((c.rows, c.columns), steps, labels, in_registers)
    row, column = labels.axis("e"), labels.axis("e")
    places = {c.rows.axis: row, c.columns.axis: column}
    read = make(Load(dots), *substitute(index, places))
    epilogue = substitute_block(c.stores, {**places, acc: read})
    loops = replace(c.rows, axis=row), replace(c.columns, axis=column)
    return (Local(dots), *fill, *nested(loops, epilogue))


def _sum(c: Contraction, lanes: int, labels: Labels) -> For:
    """The reduce loops, the innermost one by vectors."""
    *outer, last = loops_from(nested_and_joined(c.reduce, (c.update,), labels))
    lines = blocked(replace(last, bind=f"vector{lanes}"), labels.axis("b"), lanes)
    return around(outer, lines, bind="serial")
