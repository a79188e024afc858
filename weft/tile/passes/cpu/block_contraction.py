"""block_contraction: computes a contraction from packed panels, in a register tile of accumulators.

before  for a0 in 0..128:  # free                   after  for b0 in 0..512 by 32:  # free
            for a1 in 0..512:  # free                          local panel: f32[64,32]
                for a2 in 0..64:  # reduce acc0                for a3 in 0..64:  # free
                    acc0 <- add(acc0, x*w)                         ... panel[a3, a1 - b0] = w
                y[a0, a1] = acc0                               for b1 in 0..128 by 8:  # free
                                                                   for a0 in b1..b1 + 8:  # register
                                                                       ... a1 by vector, a2 unroll

Where the columns of one loop fill the last vector badly, columns run over two loops joined; a panel
then holds whole lines, each once even where a convolution's window slides over them.
"""

from dataclasses import replace
from functools import partial

from weft.core.node import Node
from weft.scalar.blocks import map_each, map_outermost
from weft.scalar.choices import Choices
from weft.scalar.nest import Block, For, Kernel, Load, Update
from weft.scalar.ops import apply, constant, has_symbol
from weft.scalar.resize import hinted, sizes_of
from weft.scalar.sizes import hint
from weft.targets.machine import Machine
from weft.tile.analysis.access import Contraction, contraction, span, strides, tile_length, trips
from weft.tile.moves.join import nested_and_joined
from weft.tile.moves.loops import Labels, around, blocked, nested, tiled, upto, vectors
from weft.tile.moves.panels import Read, column_at, in_panels, panel, tile_width
from weft.tile.price.products import (
    FEW,
    UNEVEN,
    UNROLLED,
    over_lines,
    pays,
    tile_rows,
    unevenness,
)


def block_contraction(kernel: Kernel, target: Machine, choices: Choices) -> Kernel:
    """Apply the schedule to every contraction of the kernel that is large enough to gain."""
    labels = Labels(kernel.body)

    def one(stmt: For) -> For | None:
        found = None if stmt.bind else contraction(stmt)
        if found is None or not pays(found) or any(span(r) is None for r in found.reduce):
            return None
        return _schedule(found, target, labels, choices, stmt in kernel.body)

    return replace(kernel, body=map_outermost(kernel.body, one))


def _schedule(c: Contraction, target: Machine, labels: Labels, choices: Choices, top: bool) -> For:
    """The tiled contraction, parallel over the cores where no loop is around it."""
    lanes = target.lanes(c.bytes)
    c, size = over_lines(c, target, labels)
    rows = tile_rows(c, target, choices)
    width = tile_width(c, target)
    packed = in_panels(c, width)
    if not (packed or c.joined):
        wider = (n for n in (2 * size, 4 * size, 8 * size) if n < 2 * trips(c.columns))
        size = choices.pick("panel", (size, *wider), size.__rsub__)
    crossed = None if packed else in_panels(c.turned, lanes)
    if crossed and not c.joined:  # both sides' panels fit
        deep = trips(*c.reduce) * c.right.type.dtype.bytes
        size = min(trips(c.columns), max(lanes, target.l2 // 2 // deep))
    outer = any(trips(f) > 1 for f in c.outer) and trips(c.outer[0]) >= target.cores
    enough = not top or outer or unevenness(trips(c.lines), size, target) < UNEVEN
    shared = None if enough else _split_rows(c, lanes if crossed else 1, target, labels)
    if shared is not None:
        end = upto(shared.axis, shared.step, shared.hi)
        c = replace(c, rows=replace(c.rows, lo=shared.axis, hi=end))
    repeats = trips(c.rows) > rows or any(trips(f) > 1 for f in c.repeat)
    plain = isinstance(c.right.op, Load) and not c.right.op.masked
    read = Update(c.update.fold, (c.right,))
    along = [step for _, step in strides(read, c.columns.axis, c.ranges)]
    inward = partial(strides, axis=c.reduce[-1].axis, ranges=c.ranges)
    across = [step or width + 1 for _, step in hinted(inward, sizes_of(read).values())(read)]
    close = max(across, default=0) <= width  # as in a panel
    apart = (repeats and not close) or any(step not in (0, 1) for step in along)

    def block(first: Node, last: Node) -> Block:
        at = column_at(c, first)
        end = upto(at, size * c.unit, c.columns.hi)
        before, right = (), packed(at) if packed else c.right
        if not packed and (apart or c.joined or not plain):
            before, right = panel(c, first, size, labels)
        part = replace(c, columns=replace(c.columns, lo=at, hi=end), right=right)
        if crossed is not None:
            most = min(size * hint(c.unit), trips(c.columns))
            return (*before, _turned(part, crossed, most, target, labels))
        return (*before, *_rows(part, (rows, width, lanes), labels))

    outside = (shared, *c.outer) if shared else c.outer
    return around(outside, blocked(c.lines, labels.axis("b"), size, block), bind="serial")


def _split_rows(c: Contraction, unit: int, target: Machine, labels: Labels) -> For | None:
    """A parallel loop over whole units of rows, where column blocks are too few for the cores."""
    part = -(-trips(c.rows) // (target.cores * unit)) * unit
    if trips(c.rows) < 2 * max(FEW, unit) or trips(c.rows) % part:  # a rest would run by itself
        return None
    return For(labels.axis("p"), c.rows.lo, c.rows.hi, (), part, "free", "serial")


def _rows(c: Contraction, tile: tuple[int, int, int], labels: Labels) -> Block:
    """Register tiles of `tile` down the rows: accumulators for them, the reduction innermost.

    A tile is so many rows by so many columns, in vectors of so many lanes.
    """
    rows, width, lanes = tile
    update = replace(c.update, values=(apply(c.times, c.left, c.right),))

    def bound(loop: For) -> For:
        even = loop.body == (update,) and trips(loop) % UNROLLED == 0
        return replace(loop, bind="unroll" if even else "serial")

    # over a packed panel the loops often are one even loop
    inner = map_each((nested_and_joined(c.reduce, (update,), labels),), For, bound)
    one = not has_symbol(constant(c.unit)) and trips(c.columns) <= width

    def in_registers(rows: For, columns: For) -> Block:
        body = (vectors(columns, columns.lo, columns.hi, lanes, labels, (*inner, *c.stores)),)
        return (replace(rows, body=body, bind="register"),)

    steps = [(0, rows)] if one else [(0, rows), (1, width)]
    nest = tiled((c.rows, c.columns), steps, labels, in_registers)
    return nested(c.repeat, nest, bind="serial")


def _turned(c: Contraction, read: Read, most: int, target: Machine, labels: Labels) -> For:
    """Register tiles of a vector of rows, by as many of at most `most` columns as registers hold.

    One row of a panel serves all of them, so that panels come from memory slowly.
    """
    even = tile_length(c.columns, -(-most // -(-most // (target.vector_registers - 4))))
    lanes = target.lanes(c.bytes)

    def tiles(start: Node, stop: Node) -> Block:
        columns = replace(c.rows, lo=start, hi=stop)
        turn = replace(c.turned, columns=columns, right=read(start), repeat=c.repeat)
        return _rows(turn, (even, lanes, lanes), labels)

    return blocked(c.rows, labels.axis("b"), lanes, tiles)
