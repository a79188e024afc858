"""block_contraction: computes a contraction from packed panels, in a register tile of accumulators.

before  for a0 in 0..128:  # free                   after  for b0 in 0..512 by 32:  # free
            for a1 in 0..512:  # free                          local panel: f32[64,32]
                for a2 in 0..64:  # reduce acc0                for a3 in 0..64:  # free
                    acc0 <- add(acc0, x*w)                         ... panel[a3, a1 - b0] = w
                y[a0, a1] = acc0                               for b1 in 0..128 by 8:  # free
                                                                   for a0 in b1..b1 + 8:  # register
                                                                       ... a1 by vectors, a2 serial

Where the columns of one loop fill the last vector badly, columns run over two loops joined; a panel
then holds whole lines, each once even where a convolution's window slides over them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from weft.core.node import Node, make, postorder, substitute
from weft.scalar.affine import has_symbol
from weft.scalar.blocks import map_outermost, rebound
from weft.scalar.index import simplify
from weft.scalar.nest import Block, For, Kernel, Load, Local, Stmt, Store, Update
from weft.scalar.ops import apply, constant, floordiv, floormod, multiply
from weft.scalar.resize import hinted, sizes_of
from weft.scalar.sizes import hint
from weft.targets.machine import Machine
from weft.tile.analysis.access import Contraction, contraction, span, strides, tile_length, trips
from weft.tile.choices import Choices
from weft.tile.moves.join import collapsed, nested_and_joined
from weft.tile.moves.loops import Labels, around, blocked, nested, tiled, upto, vectors

Span = tuple[Node, Node]  # from, to
Read = Callable[[Node], Node]  # what a tile that starts at a column reads

FEW = 4  # rows from which on the right side is read often enough to pack it
PACK = 8  # vectors multiplied and added in the time that packing one takes
TURN = 1.03  # times the vectors, where what registers hold is transposed to store it
UNEVEN = 1.125  # times as long: beyond, the cores share the rows and each packs all columns


def block_contraction(kernel: Kernel, target: Machine, choices: Choices) -> Kernel:
    """Apply the schedule to every contraction of the kernel that is large enough to gain."""
    labels = Labels(kernel.body)

    def one(stmt: For) -> For | None:
        found = None if stmt.bind else contraction(stmt)
        if found is None or not pays(found) or any(span(r) is None for r in found.reduce):
            return None
        return _schedule(found, target, labels, choices, stmt in kernel.body)

    return replace(kernel, body=map_outermost(kernel.body, one))


def pays(c: Contraction) -> bool:
    """Few rows reuse too little of the right side, if that is contiguous along a reduce axis."""
    if trips(c.rows) >= FEW:
        return True
    return all(step in (0, 1) for _, step in strides(c.update, c.columns.axis, c.ranges))


def _schedule(
    c: Contraction, target: Machine, labels: Labels, choices: Choices, alone: bool
) -> For:
    """The tiled contraction, parallel over the cores where no loop is around it."""
    lanes = target.lanes(c.bytes)
    rows = _tile_rows(c, target, choices)
    c, size = _joined(c, target, lanes, labels)
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
    enough = not alone or outer or _unevenness(trips(c.lines), size, target) < UNEVEN
    shared = None if enough else _split_rows(c, lanes if crossed else rows, target, labels)
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
        at = apply(multiply, first, constant(c.unit)) if c.joined else first
        end = upto(at, size * c.unit, c.columns.hi)
        right, before = c.right, ()
        if packed is not None:
            right = packed(at)
        elif apart or c.joined or not plain:
            right, before = _panel(c, first, at, size, labels)
        if crossed is not None:
            most = min(size * hint(c.unit), trips(c.columns))
            return (*before, _turned(c, (at, end), right, crossed, most, target, labels))
        return (*before, *_rows(c, (at, end), right, (rows, width, lanes), labels))

    outside = (shared, *c.outer) if shared else c.outer
    return around(outside, blocked(c.lines, labels.axis("b"), size, block), bind="serial")


def _tile_rows(c: Contraction, target: Machine, choices: Choices) -> int:
    """Rows of a register tile: any for which its accumulators leave registers for operands."""
    rows, vectors = target.register_tile
    best, most = tile_length(c.rows, rows), (target.vector_registers - 2) // vectors - 1
    fit = dict.fromkeys((best, *(tile_length(c.rows, n) for n in range(2, most + 1))))
    return choices.pick("tile_rows", fit, lambda n: abs(n - best))


def _unevenness(lines: int, size: int, target: Machine) -> float:
    """The load of the busiest core over an even share, for blocks of `size` lines."""
    return math.ceil(math.ceil(lines / size) / target.cores) * size * target.cores / lines


def _split_rows(c: Contraction, rows: int, target: Machine, labels: Labels) -> For | None:
    """A parallel loop over the rows, where there are too few column blocks for the cores."""
    part = -(-trips(c.rows) // (target.cores * rows)) * rows
    if trips(c.rows) < 2 * rows or trips(c.rows) % part:  # a rest would run by itself
        return None
    return For(labels.axis("p"), c.rows.lo, c.rows.hi, (), part, "free", "serial")


def _joined(c: Contraction, target: Machine, lanes: int, labels: Labels) -> tuple[Contraction, int]:
    """Columns over two loops where one alone fills its last vector badly; and a block's lines."""
    width = tile_width(c, target)
    whole = c.outer and {c.columns.lo, c.outer[-1].lo} == {constant(0)}
    if not whole or span(c.columns) is None:
        return c, width
    outer, inner = c.outer[-1], c.columns
    joint = collapsed(replace(outer, body=(replace(inner, body=c.stores),)), labels)
    if joint is None or outer.axis in postorder(c.left):
        return c, width
    reuse = trips(c.rows, *c.repeat)
    length, each = trips(inner), -(-trips(inner) // lanes)
    taps = _taps(c, outer)
    line = trips(*c.reduce) // taps * length * c.right.type.dtype.bytes
    most = max(target.l2 // 2 // line - taps + 1, -(-width // length))

    def price(lines: int) -> float:
        blocks, left = divmod(trips(outer), lines)
        whole = blocks * -(-lines * length // lanes) + -(-left * length // lanes)
        filled = -(-trips(outer) // lines) * (lines + taps - 1) / taps * each
        uneven = _unevenness(trips(outer), lines, target)
        if uneven < UNEVEN or trips(c.rows) < 2 * target.register_tile[0]:
            return uneven * (whole * reuse + PACK * filled)
        return whole * reuse + target.cores * PACK * filled

    lines = min(range(1, min(most, trips(outer)) + 1), key=price)
    if 1.03 * price(lines) > trips(outer) * each * (reuse + PACK / _taps(c, inner)):
        return c, width
    stores = tuple(s for s in joint.body if isinstance(s, Store))
    columns = replace(joint, body=())
    joined = replace(c, columns=columns, outer=c.outer[:-1], stores=stores, joined=(outer, inner))
    return joined, lines


def _slides(c: Contraction, lines: For) -> For | None:
    """The reduce loop that moves over the right side as the lines do: a window's."""
    for r in c.reduce:
        still = substitute((c.right,), {r.axis: constant(0)})
        moved = substitute(still, {lines.axis: apply("add", lines.axis, r.axis)})[0]
        if r.lo is constant(0) and r.extent and simplify(moved, {}) is simplify(c.right, {}):
            return r
    return None


def _taps(c: Contraction, lines: For) -> int:
    slides = _slides(c, lines)
    return 1 if slides is None else trips(slides)


def tile_width(c: Contraction, target: Machine) -> int:
    """The columns of a register tile."""
    lanes = target.lanes(c.bytes)
    columns = lanes * target.register_tile[1] if has_symbol(c.columns.hi) else trips(c.columns)
    return lanes * min(target.register_tile[1], -(-columns // lanes))


def turns(c: Contraction, target: Machine) -> bool:
    """Whether rows fill lanes clearly better than columns do."""
    lanes = target.lanes(c.bytes)
    joint, lines = _joined(c, target, lanes, Labels(()))
    (blocks, left), unit = divmod(trips(joint.lines), lines), hint(joint.unit)
    vectors = blocks * -(-lines * unit // lanes) + -(-left * unit // lanes)
    return TURN * -(-trips(c.rows) // lanes) * trips(joint.columns) < trips(c.rows) * vectors


def in_panels(c: Contraction, width: int) -> Read | None:
    """How a tile reads the right operand at a column, in panels of that width."""
    column, size = c.columns.axis, constant(width)
    quotient, inside = apply(floordiv, column, size), apply(floormod, column, size)
    *others, last = c.right.args or (c.right,)
    if not isinstance(c.right.op, Load) or last is not inside or quotient not in others:
        return None

    def read(at: Node) -> Node:
        panel = apply(floordiv, at, size)
        # the rest of columns that a size ends is taken in parts of a block: tile/moves/peel.py
        start = apply(multiply, panel, size) if has_symbol(c.columns.hi) else at
        place = {quotient: panel, inside: apply("subtract", column, start)}
        return make(c.right.op, *(place.get(a, a) for a in c.right.args))

    return read


def _panel(c: Contraction, first: Node, at: Node, size: int, labels: Labels) -> tuple[Node, Block]:
    """Pack right(k, first .. first + size) into a local buffer; how to read it, and the statements.

    Lines that a window shares are packed once: it reads from line + k.
    """
    reads = set(postorder(c.right))
    slides = _slides(c, c.lines)
    more = 0 if slides is None else trips(slides) - 1
    loops = [r for r in c.reduce if r.axis in reads and r is not slides]
    fresh = {r.axis: labels.axis("k") for r in loops}
    line = labels.axis("n")
    last = apply("add", c.lines.hi, constant(more)) if more else c.lines.hi
    spans = [replace(c.lines, axis=line, lo=first, hi=upto(first, size + more, last))]
    place = {**fresh, c.lines.axis: line}
    inside, column = apply("subtract", line, first), apply("subtract", c.columns.axis, at)
    if slides is not None:
        place[slides.axis] = constant(0)
        column = apply("add", column, apply(multiply, slides.axis, constant(c.unit)))
    if c.joined:
        spans.append(replace(c.joined[1], axis=labels.axis("n")))
        place[c.joined[1].axis] = spans[1].axis
        inside = apply("add", apply(multiply, inside, constant(c.unit)), spans[1].axis)
    shape = (*map(span, loops), (size + more) * c.unit)
    panel = labels.buffer("panel", c.right.type.dtype, shape)
    index = (*(fresh[r.axis] for r in loops), inside)
    # left without binds: the passes after this one choose how to read the right side best
    fill: Stmt = Store(panel, index, simplify(substitute((c.right,), place)[0], {}))
    for loop in reversed([*(replace(r, axis=fresh[r.axis], folds=()) for r in loops), *spans]):
        fill = For(loop.axis, loop.lo, loop.hi, (fill,))
    return make(Load(panel), *(r.axis for r in loops), column), (Local(panel), fill)


def _rows(
    c: Contraction, span: Span, right: Node, tile: tuple[int, int, int], labels: Labels
) -> Block:
    """Register tiles of `tile` down the rows: accumulators for them, the reduction innermost.

    A tile is so many rows by so many columns, in vectors of so many lanes.
    """
    (at, end), (rows, width, lanes) = span, tile
    update = replace(c.update, values=(apply(c.times, c.left, right),))
    # over a packed panel the loops often are one even loop
    inner = rebound((nested_and_joined(c.reduce, (update,), labels),), "", "serial")

    columns = replace(c.columns, lo=at, hi=end)
    one = not has_symbol(constant(c.unit)) and trips(columns) <= width

    def in_registers(rows: For, columns: For) -> Block:
        body = (vectors(columns, columns.lo, columns.hi, lanes, labels, (*inner, *c.stores)),)
        return (replace(rows, body=body, bind="register"),)

    steps = [(0, rows)] if one else [(0, rows), (1, width)]
    nest = tiled((c.rows, columns), steps, labels, in_registers)
    return nested(c.repeat, nest, bind="serial")


def _turned(
    c: Contraction, span: Span, left: Node, read: Read, most: int, target: Machine, labels: Labels
) -> For:
    """Register tiles of a vector of rows, by as many of at most `most` columns as registers hold.

    One row of a panel serves all of them, so that panels come from memory slowly.
    """
    at, end = span
    turn = replace(c.turned, rows=replace(c.columns, lo=at, hi=end), left=left, repeat=c.repeat)
    even = tile_length(c.columns, -(-most // -(-most // (target.vector_registers - 4))))
    lanes = target.lanes(c.bytes)

    def tiles(start: Node, stop: Node) -> Block:
        return _rows(turn, (start, stop), read(start), (even, lanes, lanes), labels)

    return blocked(c.rows, labels.axis("b"), lanes, tiles)
