"""Steps that schedules are made of: fresh names, blocking a loop, running it over lanes.

blocked(a0, b0, 16, body)       # for b0 in a0's range by 16: body(b0, min(b0 + 16, end))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from weft.core.node import Node, make, rebuild
from weft.scalar.index import function_of
from weft.scalar.nest import Block, Fold, For, Stmt, Update, walk
from weft.scalar.ops import apply, axis, constant, minimum


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


def over(block: Block, folds: dict[Fold, Fold]) -> Block:
    """The block with updates of other accumulators."""

    def one(stmt: Stmt) -> Stmt:
        if isinstance(stmt, For):
            return replace(stmt, body=over(stmt.body, folds))
        if isinstance(stmt, Update):
            return replace(stmt, fold=folds.get(stmt.fold, stmt.fold))
        return stmt

    return tuple(map(one, block))


def ending(block: Block, old: Node, new: Node) -> Block:
    """The block with its loops cut off at another end of the loop around them."""

    def change(node: Node) -> Node | None:
        cut = function_of(node) == "minimum" and old in node.args
        return make(node.op, *(new if a is old else a for a in node.args)) if cut else None

    def one(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, For):
            return stmt
        (hi,) = rebuild((stmt.hi,), change)
        return replace(stmt, hi=hi, body=ending(stmt.body, old, new))

    return tuple(map(one, block))
