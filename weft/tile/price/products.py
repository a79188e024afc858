"""The price of a contraction without its epilogue: by packed panels on a CPU, by tiles on a GPU.

panels_cost(contraction, target)        # packed panels and a register tile, on a CPU
"""

from weft.core.node import Node, postorder
from weft.scalar.nest import Load
from weft.targets.gpu import GPU
from weft.targets.machine import Machine
from weft.tile.analysis.access import Contraction, narrow, strides, term_cost, trips
from weft.tile.analysis.fragments import unit_rate
from weft.tile.passes.cpu.block_contraction import in_panels, tile_width

RATE = 1.15  # vector instructions in the time of a multiply-add that a register tile feeds
TRANSPOSE = 8  # multiply-adds in the time that packing a vector across takes
TILE = 64  # rows and columns of a tile on a GPU


def panels_cost(c: Contraction, target: Machine) -> float:
    """Multiply-adds at full rate, and each side's terms as often as the tiling computes them."""
    lanes = target.lanes(c.bytes)
    rows, wide = target.register_tile
    outer, repeat, k = trips(*c.outer), trips(*c.repeat), trips(*c.reduce)
    columns = -(-trips(c.columns) // lanes)
    tiles = -(-trips(c.rows) // min(rows, trips(c.rows)))
    padded = tiles * min(rows, trips(c.rows))
    total = RATE * outer * repeat * padded * columns * k
    panels = -(-columns // wide)
    total += outer * repeat * trips(c.rows) * panels * k * terms_cost(c.left) / 1.5
    if in_panels(c, tile_width(c, target)) is None:
        steps = strides(c.update, c.columns.axis, c.ranges)
        uneven = any(step not in (0, 1) for _, step in steps)
        packs = 1 if repeat * tiles == 1 and not uneven else outer * columns * k
        total += packs * (terms_cost(c.right) + 1 + (RATE * TRANSPOSE if uneven else 0))
    return total


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


def terms_cost(term: Node) -> float:
    """The cost of a term beyond a plain load."""
    own = sum(map(term_cost, postorder(term)))
    return own if not isinstance(term.op, Load) else 0.0
