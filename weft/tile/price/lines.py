"""How the columns of a contraction are cut in blocks on a CPU: from one loop, or from two joined.

over_lines(contraction, target, labels) # its columns over one loop, or two; lines of a block
turns(contraction, target)              # whether its rows fill the lanes better

A block is packed once, and read by all register tiles down the rows; each reads the left side anew.
In one loop it has the columns of one tile side by side. Over two loops joined it has whole lines,
which fill the lanes better and which a window shares, but a tile reads only some of each line, from
a farther cache.
"""

import math

from weft.scalar.sizes import hint
from weft.targets.machine import Machine
from weft.tile.analysis.access import Contraction, trips
from weft.tile.moves.join import joined_columns
from weft.tile.moves.loops import Labels
from weft.tile.moves.panels import taps, tile_width
from weft.tile.price.products import LINE, tile_rows, tiles_time

PACK = 8  # vectors multiplied and added in the time that packing one takes
TURN = 1.03  # times the vectors, where what registers hold is transposed to store it
UNEVEN = 1.125  # times as long: beyond, the cores share the rows and each packs all columns
L1 = 32 << 10  # bytes of the cache that a panel of one tile stays in
L2_RATE, L3_RATE = 0.16, 0.11  # vectors that come from there in the time of a multiply-add


def over_lines(c: Contraction, target: Machine, labels: Labels) -> tuple[Contraction, int]:
    """Columns over two loops where that is cheaper; and a block's lines."""
    width, joint = tile_width(c, target), joined_columns(c, labels)
    if joint is None:
        return c, width
    (outer, inner), lanes = joint.joined, target.lanes(c.bytes)
    length, window, deep = trips(inner), taps(c, outer), trips(*c.reduce)
    each, size = -(-length // lanes), c.right.type.dtype.bytes
    line = deep // window * length * size  # bytes
    most = max(target.l2 // 2 // line - window + 1, -(-width // length))
    alone = trips(*joint.outer) == 1  # else those loops are shared among the cores

    def price(lines: int) -> float:
        blocks, left = divmod(trips(outer), lines)
        held = line * (lines + window - 1)
        step = min(held / deep, width * size + LINE)  # seldom from where a cache line begins
        parts = ((blocks, lines * length), (left > 0, left * length))
        whole = sum(n * _block(joint, columns, held, step, target) for n, columns in parts)
        filled = PACK * -(-trips(outer) // lines) * (lines + window - 1) / window * each
        uneven = unevenness(trips(outer), lines, target) if alone else 1.0
        if uneven < UNEVEN or trips(c.rows) < 2 * target.register_tile[0]:
            return uneven * (whole + filled)
        return whole + target.cores * filled

    def apart() -> float:
        """Of blocks of one tile's columns."""
        slides = taps(c, inner)
        step = (width + slides - 1) * size / slides
        blocks, left = divmod(length, width)
        parts = ((blocks, width), (left > 0, left))
        whole = sum(n * _block(c, columns, step * deep, step, target) for n, columns in parts)
        uneven = unevenness(trips(outer), 1, target) if alone else 1.0
        return uneven * trips(outer) * (whole + PACK * each / slides)

    lines = min(range(1, min(most, trips(outer)) + 1), key=price)
    return (c, width) if price(lines) > apart() else (joint, lines)


def _block(c: Contraction, columns: int, held: int, step: float, target: Machine) -> float:
    """Multiply-adds in the time of a step of the sums, of all rows by the columns of a block.

    Its panel has `held` bytes, of which a tile reads `step`, while it multiplies.
    """
    lanes = target.lanes(c.bytes)
    wide, rows = tile_width(c, target) // lanes, tile_rows(c, target)
    full, rest = divmod(-(-columns // lanes), wide)
    vector = lanes * c.bytes
    rate = vector * (L2_RATE if held <= target.l2 // 2 else L3_RATE)
    read = -(-trips(c.rows) // rows) * step / rate if held > L1 else 0.0
    times = [max(tiles_time(c, rows, v), read) for v in [wide] * full + [rest] * (rest > 0)]
    left = trips(c.rows) * c.left.type.dtype.bytes
    if times and left * trips(*c.reduce) > target.l2 // 2:  # while the first tiles multiply
        times[0] = max(times[0], left / (vector * L3_RATE))
    return trips(*c.repeat) * sum(times)


def unevenness(lines: int, size: int, target: Machine) -> float:
    """The load of the busiest core over an even share, for blocks of `size` lines."""
    return math.ceil(math.ceil(lines / size) / target.cores) * size * target.cores / lines


def turns(c: Contraction, target: Machine) -> bool:
    """Whether rows fill lanes clearly better than columns do."""
    lanes = target.lanes(c.bytes)
    joint, lines = over_lines(c, target, Labels(()))
    (blocks, left), unit = divmod(trips(joint.lines), lines), hint(joint.unit)
    vectors = blocks * -(-lines * unit // lanes) + -(-left * unit // lanes)
    return TURN * -(-trips(c.rows) // lanes) * trips(joint.columns) < trips(c.rows) * vectors
