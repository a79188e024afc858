"""stage_inputs: stages operands that a block reads more than once in shared memory.

before  for k0 in ..: # reduce serial        after  for k0 in ..: # reduce serial
            for a2 in k0..k0 + 16: # reduce             local x_s0: f32[64,16] in shared
                acc0 <- add(acc0, x[a0, a2] * ..)       for m0 in b0..b0 + 64: # free thread
                                                            for n0 in k0..k0 + 16: # free thread
                                                                x_s0[m0 - b0, n0 - k0] = x[m0, n0]
                                                        for a2 in k0..k0 + 16: # reduce
                                                            acc0 <- add(.., x_s0[a0 - b0, a2 - k0])

In a tile, all threads of a row read the same part of one operand, those of a column of the other:
each chunk stages both parts, the slabs. A slab has the layout of its global loads, so that these
are wide. In other nests, rows that several loops over threads read are staged
(tile/moves/stage.py).
"""

from dataclasses import replace

from weft.core.node import Node, substitute
from weft.scalar.blocks import nodes, substitute_block
from weft.scalar.divisors import of_axis
from weft.scalar.nest import Kernel, Load, Stmt, Store
from weft.scalar.ops import apply, constant
from weft.targets.gpu import GPU
from weft.tile.analysis.access import stride_of, trips
from weft.tile.analysis.tiles import Tile, on_tiles, tiles_of
from weft.tile.moves.loops import Labels, full, guarded
from weft.tile.moves.stage import RowStager, Slab, reads_global, room, slabs


def stage_inputs(kernel: Kernel, target: GPU) -> Kernel:
    """Stage the sides of tiles, and rows that several loops over threads read."""
    tiles, most = list(tiles_of(kernel.body)), room(kernel, target)
    if tiles:
        return on_tiles(kernel, lambda tile, labels: _staged(tile, most // len(tiles), labels))
    return replace(kernel, body=RowStager(Labels(kernel.body), most // 2).block(kernel.body))


def _staged(tile: Tile, most: int, labels: Labels) -> Tile:
    if tile.sum is None:  # stage_scans has staged what is stored in shared memory
        fills = any(isinstance(s, Store) and s.buffer.space == "shared" for s in tile.body)
        return tile if fills else _crossed(tile, most, labels)
    found = tile.product()
    if found is None:
        return tile
    chunk, inner, update = found
    end, even = full(replace(chunk, step=1), chunk.step)
    last = None if even else chunk.hi
    whole = replace(inner, hi=apply("add", chunk.axis, constant(chunk.step)))
    sides = [replace(s, last=last) for s in slabs(update, tile.threads, whole)]
    if not sides or min(trips(chunk), 2) * sum(s.bytes for s in sides) > most:
        return tile
    known: dict[Node, int] = {}
    for loop in (*tile.around, *tile.chunk()[0], chunk):
        known[loop.axis] = of_axis(loop, known)
    ranges = tile.ranges()
    before: list[Stmt] = []
    reads: dict[Node, Node] = {}
    for slab in sides:
        fill, reads[slab.term] = slab.filled(known, ranges, labels)
        before += fill
    values = substitute(update.values, reads)
    if last is not None:
        beyond = apply("lt", inner.axis, last)
        values = tuple(guarded(v, inner.axis, beyond) if reads_global(v) else v for v in values)
    whole = replace(whole, body=(replace(update, values=values),))
    return tile.with_chunk(replace(chunk, hi=end, body=(*before, whole)))


def _crossed(tile: Tile, most: int, labels: Labels) -> Tile:
    """Of a tile that only copies: a slab of what it reads across the direction it stores in."""
    across, along = tile.threads
    ranges = tile.ranges()
    body, before = tile.body, list[Stmt]()
    for term in list(nodes(body)):
        if not isinstance(term.op, Load) or term.op.buffer.space != "global":
            continue
        steps = [stride_of(term, f.axis, ranges) for f in tile.threads]
        slab, crosses = Slab(term, along, across), steps[0] == 1 and steps[1] not in (0, 1)
        if crosses and slab.bytes <= most:
            fill, read = slab.filled(None, ranges, labels)
            before += fill
            body = substitute_block(body, {term: read})
    return replace(tile, body=(*before, *body))
