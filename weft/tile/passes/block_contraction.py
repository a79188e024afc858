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

from collections.abc import Callable
from dataclasses import replace

from weft.core.node import Node, make, postorder, substitute
from weft.core.types import TensorType
from weft.scalar.nest import Block, Buffer, For, Kernel, Load, Local, Stmt, Store, Update, walk
from weft.scalar.ops import apply, axis, constant, minimum, multiply
from weft.targets.cpu import CPU
from weft.tile.access import Contraction, contraction, ranges_in, strides, trips


class Labels:
    """Fresh loop and buffer names in one kernel."""

    def __init__(self, body: Block) -> None:
        self.loops = {s.label for s in walk(body) if isinstance(s, For)}
        self.buffers: set[str] = set()

    def axis(self, stem: str) -> Node:
        n = 0
        while f"{stem}{n}" in self.loops:
            n += 1
        self.loops.add(f"{stem}{n}")
        return axis(f"{stem}{n}")

    def buffer(self, stem: str) -> str:
        n = 0
        while f"{stem}{n}" in self.buffers:
            n += 1
        self.buffers.add(f"{stem}{n}")
        return f"{stem}{n}"


def upto(start: Node, width: int, end: Node) -> Node:
    return apply(minimum, apply("add", start, constant(width)), end)


def blocked(
    loop: For, origin: Node, width: int, body: Callable[[Node, Node], Block], bind: str = "serial"
) -> For:
    """`for origin in loop by width`, with a body over origin .. min(origin + width, end)."""
    inner = body(origin, upto(origin, width, loop.hi))
    return For(origin, loop.lo, loop.hi, inner, width, loop.role, bind)


def vectors(loop: For, lo: Node, hi: Node, lanes: int, labels: Labels, body: Block) -> For:
    """The loop from lo to hi as unrolled vectors."""
    origin = labels.axis("c")
    vector = For(loop.axis, origin, upto(origin, lanes, hi), body, 1, loop.role, f"vector{lanes}")
    return For(origin, lo, hi, (vector,), lanes, loop.role, "register")


def block_contraction(kernel: Kernel, target: CPU) -> Kernel:
    """Apply the schedule to every contraction of the kernel that is large enough to gain."""
    labels = Labels(kernel.body)

    def visit(block: Block) -> Block:
        out: list[Stmt] = []
        for stmt in block:
            found = contraction(stmt) if isinstance(stmt, For) and not stmt.bind else None
            if found is not None and _pays(found):
                out.append(_schedule(found, target, labels))
            elif isinstance(stmt, For):
                out.append(replace(stmt, body=visit(stmt.body)))
            else:
                out.append(stmt)
        return tuple(out)

    return replace(kernel, body=visit(kernel.body))


def _pays(c: Contraction) -> bool:
    """Few rows reuse too little of the right side, if that is contiguous along a reduce axis."""
    if trips(c.rows) >= 4:
        return True
    ranges = ranges_in((*c.outer, *c.repeat, c.rows, c.columns, *c.reduce))
    along = list(strides(c.update, c.columns.axis, ranges))
    return all(step in (0, 1) for _, step in along)


def _schedule(c: Contraction, target: CPU, labels: Labels) -> For:
    lanes = target.lanes(c.update.values[0].type.dtype.bytes)
    rows, wide = target.register_tile
    rows, columns = min(rows, trips(c.rows)), trips(c.columns)
    width = lanes * min(wide, -(-columns // lanes))
    repeats = trips(c.rows) > rows or any(trips(f) > 1 for f in c.repeat)
    ranges = ranges_in((*c.outer, *c.repeat, c.rows, c.columns, *c.reduce))
    plain = isinstance(c.right.op, Load) and not c.right.op.masked
    along = [step for _, step in strides(Update(c.update.fold, (c.right,)), c.columns.axis, ranges)]
    pack = repeats or not plain or any(step not in (0, 1) for step in along)

    def column_block(at: Node, end: Node) -> Block:
        right, before = _panel(c, at, end, width, lanes, labels) if pack else (c.right, ())
        return (*before, _rows(c, at, end, right, rows, lanes, labels))

    blocks = blocked(c.columns, labels.axis("b"), width, column_block)
    outer = sum((trips(f) > 1 for f in c.outer), 0)
    enough = trips(blocks) >= 2 * target.cores or (outer and trips(c.outer[0]) >= target.cores)
    nest: For = blocks
    for loop in reversed(c.outer):
        nest = replace(loop, body=(nest,), bind="serial")
    return nest if enough or trips(c.rows) < 2 * rows else _split_rows(c, nest, rows, target, labels)


def _panel(
    c: Contraction, at: Node, end: Node, width: int, lanes: int, labels: Labels
) -> tuple[Node, Block]:
    """Pack right(k, at .. end) into a local buffer; how to read it, and the statements."""
    reads = {n for n in postorder(c.right)}
    loops = [r for r in c.reduce if r.axis in reads]
    fresh = {r.axis: labels.axis("k") for r in loops}
    column = labels.axis("n")
    shape = (*(trips(r) for r in loops), width)
    panel = Buffer(labels.buffer("panel"), TensorType(c.right.type.dtype, shape), "local")
    inside = apply("subtract", column, at)
    value = substitute((c.right,), {**fresh, c.columns.axis: column})[0]
    index = (*(fresh[r.axis] for r in loops), inside)
    fill: For = vectors(
        replace(c.columns, axis=column), at, end, lanes, labels, (Store(panel, index, value),)
    )
    for r in reversed(loops):
        fill = For(fresh[r.axis], r.lo, r.hi, (fill,), bind="serial")
    read = make(Load(panel), *(r.axis for r in loops), apply("subtract", c.columns.axis, at))
    return read, (Local(panel), fill)


def _rows(
    c: Contraction, at: Node, end: Node, right: Node, rows: int, lanes: int, labels: Labels
) -> For:
    """Register tiles down the rows: rows * vectors of accumulators, the reduction innermost."""
    update = replace(c.update, values=(apply(multiply, c.left, right),))
    inner: Stmt = update
    for r in reversed(c.reduce):
        inner = replace(r, body=(inner,), bind="serial")
    tile = vectors(c.columns, at, end, lanes, labels, (inner, *c.stores))

    def row_block(first: Node, last: Node) -> Block:
        return (replace(c.rows, lo=first, hi=last, body=(tile,), bind="register"),)

    nest = blocked(c.rows, labels.axis("b"), rows, row_block)
    for loop in reversed(c.repeat):
        nest = replace(loop, body=(nest,), bind="serial")
    return nest


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
