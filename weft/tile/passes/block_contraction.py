"""block_contraction: a sum of products gets packed panels and a register tile of accumulators.

before  for a0 in 0..128:  # free                   after  for b0 in 0..512 by 32:  # free
            for a1 in 0..512:  # free                          local panel: f32[64,32]
                for a2 in 0..64:  # reduce acc0                for a3 in 0..64:  # free
                    acc0 <- add(acc0, x*w)                         ... panel[a3, a1 - b0] = w
                y[a0, a1] = acc0                               for b1 in 0..128 by 8:  # free
                                                                   for a0 in b1..b1 + 8:  # register
                                                                       ... a1 by vectors, a2 serial
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from weft.core.node import Node, make, postorder, substitute
from weft.core.types import TensorType
from weft.scalar.nest import Block, Buffer, For, Kernel, Load, Local, Stmt, Store, Update
from weft.scalar.ops import apply, constant, floordiv, floormod, minimum, multiply
from weft.targets.cpu import CPU
from weft.tile.access import Contraction, contraction, ranges_in, strides, trips
from weft.tile.moves import Labels, blocked, upto, vectors
from weft.tile.passes.collapse_loops import collapsed

PACK = 2  # vectors multiplied and added in the time that packing one takes


def block_contraction(kernel: Kernel, target: CPU) -> Kernel:
    """Apply the schedule to every contraction of the kernel that is large enough to gain."""
    labels = Labels(kernel.body)

    def visit(block: Block) -> Block:
        out: list[Stmt] = []
        for stmt in block:
            found = contraction(stmt) if isinstance(stmt, For) and not stmt.bind else None
            if found is not None and pays(found):
                out.append(_schedule(found, target, labels))
            elif isinstance(stmt, For):
                out.append(replace(stmt, body=visit(stmt.body)))
            else:
                out.append(stmt)
        return tuple(out)

    return replace(kernel, body=visit(kernel.body))


def pays(c: Contraction) -> bool:
    """Few rows reuse too little of the right side, if that is contiguous along a reduce axis."""
    if trips(c.rows) >= 4:
        return True
    ranges = ranges_in((*c.outer, *c.repeat, c.rows, c.columns, *c.reduce))
    along = list(strides(c.update, c.columns.axis, ranges))
    return all(step in (0, 1) for _, step in along)


def _schedule(c: Contraction, target: CPU, labels: Labels) -> For:
    lanes = target.lanes(c.update.values[0].type.dtype.bytes)
    rows = min(target.register_tile[0], trips(c.rows))
    c = _joined(c, lanes, labels) or c
    width = tile_width(c, target)
    repeats = trips(c.rows) > rows or any(trips(f) > 1 for f in c.repeat)
    ranges = ranges_in((*c.outer, *c.repeat, c.rows, c.columns, *c.reduce))
    plain = isinstance(c.right.op, Load) and not c.right.op.masked
    along = [step for _, step in strides(Update(c.update.fold, (c.right,)), c.columns.axis, ranges)]
    pack = repeats or c.joined or not plain or any(step not in (0, 1) for step in along)
    packed = _packed(c, width)

    def column_block(at: Node, end: Node) -> Block:
        right, before = c.right, ()
        if packed is not None:
            right = packed(at)
        elif pack:
            right, before = _panel(c, at, end, width, labels)
        return (*before, _rows(c, at, end, right, rows, lanes, labels))

    blocks = blocked(c.columns, labels.axis("b"), width, column_block)
    outer = sum((trips(f) > 1 for f in c.outer), 0)
    enough = trips(blocks) >= 2 * target.cores or (outer and trips(c.outer[0]) >= target.cores)
    nest: For = blocks
    for loop in reversed(c.outer):
        nest = replace(loop, body=(nest,), bind="serial")
    return (
        nest if enough or trips(c.rows) < 2 * rows else _split_rows(c, nest, rows, target, labels)
    )


def _joined(c: Contraction, lanes: int, labels: Labels) -> Contraction | None:
    """Columns over two loops, where the inner one alone fills its last vector badly."""
    if not c.outer or {c.columns.lo, c.outer[-1].lo} != {constant(0)}:
        return None
    outer, inner = c.outer[-1], c.columns
    joint = collapsed(replace(outer, body=(replace(inner, body=c.stores),)), labels)
    if joint is None or outer.axis in postorder(c.left):
        return None
    reuse = math.prod(map(trips, (c.rows, *c.repeat)))
    whole, apart = -(-trips(joint) // lanes), trips(outer) * -(-trips(inner) // lanes)
    fill = whole * (2 + lanes // trips(inner)) * -(-trips(inner) // lanes)
    if 8 * (whole * reuse + PACK * fill) > 7 * apart * reuse:
        return None
    stores = tuple(s for s in joint.body if isinstance(s, Store))
    columns = replace(joint, body=())
    return replace(c, columns=columns, outer=c.outer[:-1], stores=stores, joined=(outer, inner))


def tile_width(c: Contraction, target: CPU) -> int:
    """Columns of a register tile."""
    lanes = target.lanes(c.update.values[0].type.dtype.bytes)
    return lanes * min(target.register_tile[1], -(-trips(c.columns) // lanes))


def _packed(c: Contraction, width: int) -> Callable[[Node], Node] | None:
    """How to read the right side in the tile at a column, where it lies in panels of that width."""
    column, size = c.columns.axis, constant(width)
    quotient, inside = apply(floordiv, column, size), apply(floormod, column, size)
    if not isinstance(c.right.op, Load) or not {quotient, inside} <= set(c.right.args):
        return None

    def read(at: Node) -> Node:
        place = {
            quotient: apply(floordiv, at, size),
            inside: apply("subtract", column, at),
        }
        return make(c.right.op, *(place.get(a, a) for a in c.right.args))

    return read


def _panel(c: Contraction, at: Node, end: Node, width: int, labels: Labels) -> tuple[Node, Block]:
    """Pack right(k, at .. end) into a local buffer; how to read it, and the statements."""
    reads = set(postorder(c.right))
    loops = [r for r in c.reduce if r.axis in reads]
    fresh = {r.axis: labels.axis("k") for r in loops}
    column, line = labels.axis("n"), labels.axis("n")
    inside = apply("subtract", column, at)
    place, spans = {c.columns.axis: column}, [replace(c.columns, axis=column, lo=at, hi=end)]
    if c.joined:  # whole rows, from the one that column `at` is in
        outer, inner = c.joined
        length = constant(trips(inner))
        row = apply("add", apply(floordiv, at, length), line)
        inside_rows = apply(minimum, row, constant(trips(outer) - 1))
        place = {inner.axis: column, outer.axis: inside_rows}
        lines = -(-(trips(inner) - 1 + width) // trips(inner))
        spans = [replace(outer, axis=line, hi=constant(lines)), replace(inner, axis=column)]
        inside = apply("add", apply(multiply, line, length), column)
        width = lines * trips(inner)
    shape = (*(trips(r) for r in loops), width)
    panel = Buffer(labels.buffer("panel"), TensorType(c.right.type.dtype, shape), "local")
    value = substitute((c.right,), {**fresh, **place})[0]
    index = (*(fresh[r.axis] for r in loops), inside)
    # left without binds: the passes after this one choose how to read the right side best
    fill: Stmt = Store(panel, index, value)
    for loop in reversed([*(replace(r, axis=fresh[r.axis], folds=()) for r in loops), *spans]):
        fill = For(loop.axis, loop.lo, loop.hi, (fill,))
    inside = apply("subtract", c.columns.axis, at)
    if c.joined:
        inside = apply("add", apply(floormod, at, constant(trips(c.joined[1]))), inside)
    read = make(Load(panel), *(r.axis for r in loops), inside)
    return read, (Local(panel), fill)


def _rows(
    c: Contraction, at: Node, end: Node, right: Node, rows: int, lanes: int, labels: Labels
) -> For:
    """Register tiles down the rows: rows * vectors of accumulators, the reduction innermost."""
    update = replace(c.update, values=(apply(multiply, c.left, right),))
    inner: Stmt = update
    for r in reversed(c.reduce):  # over a packed panel they often are one even loop
        inner = replace(r, body=(inner,))
        inner = collapsed(inner, labels) or inner
    inner = bound(inner)
    tile = vectors(c.columns, at, end, lanes, labels, (inner, *c.stores))

    def row_block(first: Node, last: Node) -> Block:
        return (replace(c.rows, lo=first, hi=last, body=(tile,), bind="register"),)

    nest = blocked(c.rows, labels.axis("b"), rows, row_block)
    for loop in reversed(c.repeat):
        nest = replace(loop, body=(nest,), bind="serial")
    return nest


def bound(stmt: Stmt) -> Stmt:
    """The nest with every loop serial."""
    if not isinstance(stmt, For):
        return stmt
    return replace(stmt, bind="serial", body=tuple(map(bound, stmt.body)))


def _split_rows(c: Contraction, nest: For, rows: int, target: CPU, labels: Labels) -> For:
    """Too few column blocks for the cores: share the rows instead."""
    part = -(-trips(c.rows) // (target.cores * rows)) * rows
    origin = labels.axis("p")

    def change(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, For):
            return stmt
        if stmt.step == rows and stmt.hi is c.rows.hi and _runs(stmt, c.rows.axis):
            end = upto(origin, part, c.rows.hi)
            body = tuple(
                replace(s, hi=substitute((s.hi,), {c.rows.hi: end})[0]) if isinstance(s, For) else s
                for s in stmt.body
            )
            return replace(stmt, lo=origin, hi=end, body=body)
        return replace(stmt, body=tuple(map(change, stmt.body)))

    inner = change(nest)
    return For(origin, c.rows.lo, c.rows.hi, (inner,), part, "free", "serial")


def _runs(stmt: For, variable: Node) -> bool:
    return any(isinstance(s, For) and s.axis is variable for s in stmt.body)
