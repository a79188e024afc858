"""How the columns of a contraction are cut in blocks on a CPU: from one loop, or from two joined.

over_lines(contraction, target, labels) # its columns over one loop, or two; lines of a block
turns(contraction, target)              # whether its rows fill the lanes better
turned_rows(contraction, target)        # those of a register tile then

A block is packed once, and read by all register tiles down the rows; each reads the left side anew.
In one loop it has the columns of one tile side by side. Over two loops joined it has whole lines,
which fill the lanes better and which a window shares, but a tile reads only some of each line, from
a farther cache.
"""

import math

from weft.targets.machine import Machine
from weft.tile.analysis.access import Contraction, trips
from weft.tile.moves.join import joined_columns
from weft.tile.moves.loops import Labels
from weft.tile.moves.panels import taps, tile_width
from weft.tile.price.products import LINE, tile_rows, tiles_time

PACK = 8  # vectors multiplied and added in the time that packing one takes
PEELED = 16  # iterations of a loop that gcc unrolls whole, at most
NARROW = 4  # columns that are read in turn, of a tile whose rows fill the lanes, at least
TRANSPOSE = 40  # multiply-adds in the time that a vector takes which is transposed to store it
UNEVEN = 1.125  # times as long: beyond, the cores share the rows and each packs all columns
L1 = 32 << 10  # bytes of the cache that a panel of one tile stays in
SHARE = 4  # of the last cache, the part that a machine's other programs leave
# Vectors that come from there in the time of a multiply-add:
L2_RATE, L3_RATE, MEMORY_RATE = 0.16, 0.14, 0.11


def over_lines(c: Contraction, target: Machine, labels: Labels) -> tuple[Contraction, int]:
    """Columns over two loops where that is cheaper; and a block's lines."""
    width, joint = tile_width(c, target), joined_columns(c, labels)
    if joint is None:
        return c, width
    (outer, inner), lanes = joint.joined, target.lanes(c.bytes)
    length, window, deep = trips(inner), taps(c, outer), trips(*c.reduce)
    each, size = -(-length // lanes), c.right.type.dtype.bytes
    line = _line(joint)
    most = max(target.l2 // 2 // line - window + 1, -(-width // length))
    alone = trips(*joint.outer) == 1  # else those loops are shared among the cores
    rows, of_joint = tile_rows(c, target), tile_rows(joint, target)

    def price(lines: int) -> float:
        blocks, left = divmod(trips(outer), lines)
        held = line * (lines + window - 1)
        step = min(held / deep, width * size + LINE)  # seldom from where a cache line begins
        rate = L2_RATE if held <= target.l2 // 2 else L3_RATE
        read = step / (rate * lanes * c.bytes) if held > L1 else 0.0
        parts = ((blocks, lines * length), (left > 0, left * length))
        whole = sum(n * _block(joint, columns, of_joint, read, target) for n, columns in parts)
        filled = PACK * -(-trips(outer) // lines) * (lines + window - 1) / window * each
        uneven = unevenness(trips(outer), lines, target) if alone else 1.0
        if uneven < UNEVEN or trips(c.rows) < 2 * target.register_tile[0]:
            return uneven * (whole + filled)
        return whole + target.cores * filled

    def apart() -> float:
        """Of blocks of one tile's columns, which are read in order of memory."""
        blocks, left = divmod(length, width)
        parts = ((blocks, width), (left > 0, left))
        whole = sum(n * _block(c, columns, rows, 0.0, target) for n, columns in parts)
        uneven = unevenness(trips(outer), 1, target) if alone else 1.0
        return uneven * trips(outer) * (whole + PACK * each / taps(c, inner))

    lines = min(range(1, min(most, trips(outer)) + 1), key=price)
    return (joint, lines) if price(lines) < apart() else (c, width)


def most_lines(c: Contraction, target: Machine) -> int:
    """Lines of a block, over two loops, that the cache holds, about as many in each block.

    The cores share its rows, where they have as many panels each, or else the blocks.
    """
    outer, panels = c.joined[0], turned_rows(c, target)
    most = max(1, target.l2 // 2 // _line(c) - taps(c, outer) + 1)
    shared = trips(*c.outer) > 1 or trips(c.rows) % (target.cores * panels) == 0
    share = 1 if shared else target.cores
    blocks = -(-trips(outer) // most)
    return -(-trips(outer) // (-(-blocks // share) * share))


def _line(c: Contraction) -> int:
    """Bytes of a line of columns, of all terms, of which a window shares some."""
    outer, inner = c.joined
    return trips(*c.reduce) // taps(c, outer) * trips(inner) * c.right.type.dtype.bytes


def _block(c: Contraction, columns: int, rows: int, read: float, target: Machine) -> float:
    """Multiply-adds in the time of a step of the sums, of all rows by the columns of a block.

    Tiles have so many rows; while one multiplies, its columns take `read` to come from a cache.
    """
    lanes = target.lanes(c.bytes)
    wide = tile_width(c, target) // lanes
    full, rest = divmod(-(-columns // lanes), wide)
    reads = -(-trips(c.rows) // rows) * read
    each, last = (max(tiles_time(c, rows, v), reads) for v in (wide, rest))
    total, first = full * each + (rest > 0) * last, each if full else last
    left = trips(c.rows) * c.left.type.dtype.bytes
    if columns and left * trips(*c.reduce) > target.l2 // 2:  # while the first tiles multiply
        near = left * trips(*c.reduce) <= target.l3 // SHARE
        rate = L3_RATE if near else MEMORY_RATE
        total += max(0.0, left / (rate * lanes * c.bytes) - first)
    return trips(*c.repeat) * total


def unevenness(lines: int, size: int, target: Machine) -> float:
    """The load of the busiest core over an even share, for blocks of `size` lines."""
    return math.ceil(math.ceil(lines / size) / target.cores) * size * target.cores / lines


def is_even(lines: int, size: int, target: Machine) -> bool:
    """Whether the cores have about as many lines each, in blocks of `size`."""
    return unevenness(lines, size, target) < UNEVEN


def turns(c: Contraction, target: Machine) -> bool:
    """Whether rows fill lanes clearly better than columns do, over one loop or over two.

    In tiles of one vector, only where they do so better than over any two.
    """
    lanes, labels, width = target.lanes(c.bytes), Labels(()), turned_rows(c, target)
    chosen = over_lines(c, target, labels)[0] if width > lanes else joined_columns(c, labels) or c
    columns, deep = trips(chosen.columns), trips(*c.reduce)
    vectors = trips(c.rows) * -(-columns // lanes)
    each = 1 + TRANSPOSE / deep
    if not chosen.joined:  # each tile reads a part of what is packed of a line
        shared, size = taps(c, c.columns), c.right.type.dtype.bytes
        line = deep // shared * (columns + shared - 1) * size
        step = min(line / deep, LINE + NARROW * size) / (L2_RATE * lanes * c.bytes)
        each *= max(1.0, step / (NARROW * width // lanes)) if line > L1 else 1.0
    return each * -(-trips(c.rows) // lanes) * columns < vectors


def turned_rows(c: Contraction, target: Machine) -> int:
    """Rows of a register tile where they are in the lanes.

    Two vectors, if those are all whole: then fewer elements of the columns are read for as many
    products.
    """
    lanes = target.lanes(c.bytes)
    return lanes if trips(c.rows) % (2 * lanes) else 2 * lanes
