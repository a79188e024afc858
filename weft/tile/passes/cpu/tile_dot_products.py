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

from dataclasses import replace

from weft.core.node import make, substitute
from weft.scalar.blocks import loops_from, map_outermost, substitute_block
from weft.scalar.choices import Choices
from weft.scalar.nest import Block, For, Kernel, Load, Local, Stmt, Store
from weft.targets.machine import Machine
from weft.tile.analysis.access import Contraction, contraction, tile_length
from weft.tile.moves.join import nested_and_joined
from weft.tile.moves.loops import Labels, around, blocked, nested, past, tiled
from weft.tile.price.products import DotTile, dot_tile, strip_columns

ROWS = 64  # rows at most whose dot products are kept before the epilogue reads them


def tile_dot_products(kernel: Kernel, target: Machine, choices: Choices) -> Kernel:
    """Apply the schedule to every contraction that it makes faster than packed panels would."""
    labels = Labels(kernel.body)

    def one(stmt: For) -> Stmt | None:
        found = None if stmt.bind else contraction(stmt)
        tile = None if found is None else dot_tile(found, target, choices)
        return None if found is None or tile is None else _schedule(found, tile, target, labels)

    return replace(kernel, body=map_outermost(kernel.body, one))


def _schedule(c: Contraction, tile: DotTile, target: Machine, labels: Labels) -> Stmt:
    """Strips of columns, and in them blocks of rows; the strips are what threads share."""
    lanes, (acc,) = target.lanes(c.bytes), c.update.fold.accs
    strip = strip_columns(tile.columns, lanes)
    most = -(-tile_length(c.rows, ROWS) // tile.rows) * tile.rows

    def block(rows: For, columns: For) -> Block:
        """The dot products of some rows and columns, and then the epilogue over them by rows."""
        dots = labels.buffer("dots", c.update.fold.dtypes[0], (most, strip))
        index = past(rows.axis, rows.lo), past(columns.axis, columns.lo)
        inner = (_sum(c, lanes, labels), Store(dots, index, acc))

        def in_registers(*registers: For) -> Block:
            return nested(registers, inner, bind="register")

        fill = tiled((rows, columns), ((1, tile.columns), (0, tile.rows)), labels, in_registers)
        row, column = labels.axis("e"), labels.axis("e")
        places = {rows.axis: row, columns.axis: column}
        read = make(Load(dots), *substitute(index, places))
        epilogue = substitute_block(c.stores, {**places, acc: read})
        loops = replace(rows, axis=row), replace(columns, axis=column)
        return (Local(dots), *fill, *nested(loops, epilogue))

    def strips(columns: For) -> Block:
        nest = tiled((c.rows, columns), ((0, most),), labels, block)
        return nested(c.repeat, nest, bind="serial")

    nest = tiled((c.columns,), ((0, strip),), labels, strips)
    return nested(c.outer, nest, bind="serial")[0]


def _sum(c: Contraction, lanes: int, labels: Labels) -> For:
    """The reduce loops, the innermost one by vectors."""
    *outer, last = loops_from(nested_and_joined(c.reduce, (c.update,), labels))
    lines = blocked(replace(last, bind=f"vector{lanes}"), labels.axis("b"), lanes)
    return around(outer, lines, bind="serial")
