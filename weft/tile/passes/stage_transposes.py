"""stage_transposes: reads across the store's direction go through a small tile.

before  for a0 in 0..512:  # free           after  for b0 in 0..512 by 16:  # free
            for a1 in 0..512:  # free                  for b1 in 0..512 by 16:  # free
                y[a0, a1] = x[a1, a0]                      local tile0: f32[16,16]
                                                           ... tile0[a1 - b1, a0 - b0] = x[a1, a0]
                                                           ... y[a0, a1] = tile0[a1 - b1, a0 - b0]
"""

from __future__ import annotations

from dataclasses import replace

from weft.core.node import Node, make, postorder, rebuild, substitute
from weft.core.types import TensorType
from weft.scalar.nest import Block, Buffer, For, Kernel, Load, Local, Stmt, Store
from weft.scalar.ops import apply, subtract
from weft.targets.cpu import CPU
from weft.tile.access import ranges_in, trips
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


def _chain(stmt: For) -> tuple[list[For], Block]:
    loops, body = [stmt], stmt.body
    while len(body) == 1 and isinstance(body[0], For) and body[0].role == "free":
        loops.append(body[0])
        body = body[0].body
    return loops, body


def _tile(stmt: For, target: CPU, labels: Labels) -> For | None:
    loops, body = _chain(stmt)
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
    lanes = target.lanes(max((t.type.dtype.bytes for t in crossing), default=4))
    if len(across) != 1 or min(trips(along), trips(next(iter(across)))) < lanes:
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
    outer = [f for f in loops if f is not along and f is not across]
    origin_across, origin_along = labels.axis("b"), labels.axis("b")

    def tile(first: Node, last: Node) -> Block:
        def inner(start: Node, end: Node) -> Block:
            return _block((first, last), (start, end), along, across, loads, stores, lanes, labels)

        return (blocked(along, origin_along, lanes, inner),)

    nest: For = blocked(across, origin_across, lanes, tile)
    for loop in reversed(outer):
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
    """Fill a tile a row at a time, then store from it a column at a time."""
    before: list[Stmt] = []
    reads: dict[Node, Node] = {}
    for load in loads:
        shape = (lanes, lanes)
        buffer = Buffer(labels.buffer("tile"), TensorType(load.type.dtype, shape), "local")
        at = apply(subtract, along.axis, columns[0]), apply(subtract, across.axis, rows[0])
        m, n = labels.axis("m"), labels.axis("n")
        fresh = {across.axis: m, along.axis: n}
        value, *index = substitute((load, *at), fresh)
        fill = For(m, *rows, (Store(buffer, tuple(index), value),), 1, "free", f"vector{lanes}")
        before += [Local(buffer), For(n, *columns, (fill,), 1, "free", "serial")]
        reads[load] = make(Load(buffer), *at)
    body = tuple(
        s.map_terms(lambda t: rebuild((t,), lambda n: None, dict(reads))[0]) for s in stores
    )
    lane = replace(along, lo=columns[0], hi=columns[1], body=body, bind=f"vector{lanes}")
    return (*before, replace(across, lo=rows[0], hi=rows[1], body=(lane,), bind="serial"))
