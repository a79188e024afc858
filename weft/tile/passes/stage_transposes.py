"""stage_transposes: reads across the store's direction become squares, transposed in registers.

before  for a0 in 0..512:  # free      after  for b0 in .. by 64, b1 in .. by 256, b2 in .. by 16:
            for a1 in 0..512:  # free             for b3 in b1..min(b1 + 256, 512) by 16:
                y[a0, a1] = x[a1, a0]                 for a0 in b3..min(b3 + 16, ..):  # register
                                                          for a1 in b2..:  # free vector16
                                                              y[a0, a1] = x[a1, a0]

Lowering reads and writes whole rows there (tile/square.py). Where more than a copy is computed, a
square goes to a local tile first, and the computation reads its rows.
"""

from __future__ import annotations

from dataclasses import replace

from weft.core.node import Node, make, postorder, substitute
from weft.core.types import TensorType
from weft.scalar.blocks import substitute_block
from weft.scalar.nest import Block, Buffer, For, Kernel, Load, Local, Stmt, Store
from weft.scalar.ops import apply, subtract
from weft.targets.cpu import CPU
from weft.tile.access import chain, longest, ranges_in
from weft.tile.moves import Labels, blocked
from weft.tile.vector import address, stride_along


def stage_transposes(kernel: Kernel, target: CPU) -> Kernel:
    """Tile every nest of free loops that stores along one axis what it reads along another."""
    labels = Labels(kernel.body)

    def visit(block: Block) -> Block:
        out: list[Stmt] = []
        for stmt in block:
            tiled = None
            if isinstance(stmt, For) and stmt.bind in ("", "serial"):
                tiled = None if stmt.bind else _tile(stmt, target, labels)
                stmt = replace(stmt, body=visit(stmt.body))
            out.append(tiled or stmt)
        return tuple(out)

    return replace(kernel, body=visit(kernel.body))


def _tile(stmt: For, target: CPU, labels: Labels) -> For | None:
    loops, body = chain(stmt, "free")
    stores = [s for s in body if isinstance(s, Store)]
    if stmt.role != "free" or len(stores) != len(body) or not stores or len(loops) < 2:
        return None
    ranges = ranges_in((stmt,))
    where = address(stores[0].buffer, stores[0].index, ranges)
    along = next((f for f in loops if stride_along(where, f.axis) == 1), None)
    if along is None:
        return None
    crossing: dict[Node, For] = {}
    for term in postorder(*(t for s in stores for t in s.terms())):
        if isinstance(term.op, Load) and not term.op.masked:
            at = address(term.op.buffer, term.args, ranges)
            other = next(
                (f for f in loops if f is not along and stride_along(at, f.axis) == 1), None
            )
            if stride_along(at, along.axis) not in (0, 1) and other is not None:
                crossing[term] = other
    across = set(crossing.values())
    lanes = target.lanes(max((4, *(t.type.dtype.bytes for t in crossing))))
    if len(across) != 1 or min(longest(f.lo, f.hi) or 0 for f in (along, *across)) < lanes:
        return None
    return _nest(loops, along, across.pop(), list(crossing), stores, lanes, labels)


def _nest(
    loops: list[For],
    along: For,
    across: For,
    loads: list[Node],
    stores: list[Store],
    lanes: int,
    labels: Labels,
) -> For:
    """Squares of lanes in blocks: whole pages are read before others are written."""
    # a block reads long pieces of few rows, and writes lines of as many rows as a TLB holds
    steps = (along, 4 * lanes), (across, 16 * lanes), (along, lanes), (across, lanes)

    def tiles(depth: int, rows: tuple[Node, Node], columns: tuple[Node, Node]) -> For:
        loop, width = steps[depth]
        lo, hi = columns if loop is along else rows

        def inner(start: Node, end: Node) -> Block:
            part = (rows, (start, end)) if loop is along else ((start, end), columns)
            if depth + 1 < len(steps):
                return (tiles(depth + 1, *part),)
            return _block(*part, along, across, loads, stores, lanes, labels)

        return blocked(replace(loop, lo=lo, hi=hi), labels.axis("b"), width, inner)

    nest = tiles(0, (across.lo, across.hi), (along.lo, along.hi))
    for loop in reversed([f for f in loops if f is not along and f is not across]):
        nest = replace(loop, body=(nest,), bind="serial")
    return nest


def _block(
    rows: tuple[Node, Node],
    columns: tuple[Node, Node],
    along: For,
    across: For,
    loads: list[Node],
    stores: list[Store],
    lanes: int,
    labels: Labels,
) -> Block:
    """Fill a tile, as registers that a load crosses, then store from it; a copy needs no tile."""

    def crossed(bind: str, body: Block, m: Node = across.axis, n: Node = along.axis) -> For:
        lane = For(n, *columns, body, 1, "free", f"vector{lanes}")
        return For(m, *rows, (lane,), 1, "free", bind)

    if all(s.value in loads and s.mask is None for s in stores):
        return (crossed("register", tuple(stores)),)
    before: list[Stmt] = []
    reads: dict[Node, Node] = {}
    for load in loads:
        shape = (lanes, lanes)
        buffer = Buffer(labels.buffer("tile"), TensorType(load.type.dtype, shape), "local")
        at = apply(subtract, across.axis, rows[0]), apply(subtract, along.axis, columns[0])
        m, n = labels.axis("m"), labels.axis("n")
        value, *index = substitute((load, *at), {across.axis: m, along.axis: n})
        fill = crossed("register", (Store(buffer, tuple(index), value),), m, n)
        before += [Local(buffer), fill]
        reads[load] = make(Load(buffer), *at)
    return (*before, crossed("serial", substitute_block(tuple(stores), reads)))
