"""Sums a contraction in chunks of its terms, of which a near cache holds a tile's columns.

before  for b1 in rows by 8:            after   for b0 in columns by 32:
            for b0 in columns by 32:                local sums: f32[64,32]
                .. in registers:                    for s0 in 0..1024 by 128:  # scan serial
                    for a2 in 0..1024:                  for b1 in rows by 8:
                        acc0 <- ..                          .. in registers:
                    y[a0, a1] = acc0                            for a2 in s0..s0 + 128: acc0 <- ..
                                                                sums[..] = sums[..] + acc0
                                                    for b2 in rows by 8: y[a0, a1] = sums[..]

Tiles of all rows read a chunk of the columns from the nearest cache, where each read all terms of
them from a farther one (Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication",
2008). The sums wait in a buffer of their own: what is stored may be another function of them. Where
terms are in groups, each is a chunk.
"""

from collections.abc import Callable
from dataclasses import replace

from weft.core.node import Node, make
from weft.scalar.blocks import masked, rewrite_block, substitute_block
from weft.scalar.nest import Block, For, Load, Local, Store
from weft.scalar.ops import apply
from weft.tile.analysis.access import Contraction, ranges_in, stride_of, trips
from weft.tile.moves.loops import Labels, past, tiled, upto

HELD = 64 << 10  # bytes of the sums of a block of rows
Registers = Callable[[For, For, Block], Block]  # a tile of rows and columns around a body


def in_chunks(
    c: Contraction,
    terms: For,
    size: int,
    tile: tuple[int, int],
    labels: Labels,
    wrap: Registers,
) -> Block:
    """All rows by the columns of each tile in turn: chunk by chunk, and then what is stored.

    A chunk has `size` iterations of the loop over `terms`, a tile so many rows and columns.
    """
    rows, width = tile
    fold = c.groups.fold if c.groups else c.update.fold
    dtype, acc = fold.dtypes[0], fold.accs[0]
    most = max(1, HELD // (width * dtype.bytes) // rows) * rows
    fetching = _ahead(c, terms, size)

    def strip(part: For, columns: For) -> Block:
        held = labels.buffer("sums", dtype, (min(most, trips(c.rows)), width))
        place = (past(c.rows.axis, part.lo), past(c.columns.axis, columns.lo))
        so_far, start = make(Load(held), *place), terms.axis if c.groups else labels.axis("s")
        later = apply("lt", terms.lo, start)
        total = apply("add", masked(so_far, later), c.groups.values[0] if c.groups else acc)
        one = replace(fetching, lo=start, hi=upto(start, size, terms.hi))

        def tiles(body: Block) -> Block:
            return tiled((part, columns), [(0, rows)], labels, lambda r, n: wrap(r, n, body))

        chunk = fetching.body if c.groups else (one,)
        added = tiles((*chunk, Store(held, place, total)))
        chunks = For(start, terms.lo, terms.hi, added, size, "scan", "serial")
        return (Local(held), chunks, *tiles(substitute_block(c.stores, {acc: so_far})))

    whole = (trips(c.columns) <= width, trips(c.rows) <= most)
    steps = [step for step, one in zip([(1, width), (0, most)], whole, strict=True) if not one]
    return tiled((c.rows, c.columns), steps, labels, strip)


def _ahead(c: Contraction, terms: For, size: int) -> For:
    """The loop over terms, which prefetches those of the next chunk from panels in memory."""
    ranges = c.ranges | ranges_in((terms,))

    def change(node: Node) -> Node | None:
        if node is not c.right or not isinstance(node.op, Load) or node.op.masked:
            return None
        step = stride_of(node, terms.axis, ranges) if node.op.buffer.space == "global" else 0
        return make(replace(node.op, ahead=step * size), *node.args) if step else None

    return replace(terms, body=rewrite_block(terms.body, change))
