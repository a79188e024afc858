"""What a nest's statements use, and where: read once, before its kernel is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from weft.core.node import Node, op_of, postorder
from weft.core.types import i64
from weft.export.triton.terms import OF_INDEX
from weft.scalar import nest
from weft.scalar.intervals import bounds
from weft.scalar.nest import For
from weft.scalar.ops import Apply, Axis, Constant
from weft.scalar.reach import ranges_inside

INT32 = 2**31


class Lasts:
    """Where values are used last, through what is computed of them."""

    def __init__(self, body: nest.Block) -> None:
        self.order = {id(s): i for i, s in enumerate(nest.walk(body))}
        self.last, self.stores = dict[Node, int](), dict[str, list[int]]()
        for stmt in reversed([*nest.walk(body)]):
            at = self.order[id(stmt)]
            if isinstance(stmt, nest.Store):
                self.stores.setdefault(stmt.buffer.name, []).append(at)
            let = isinstance(stmt, nest.Let)
            end = self.last.get(stmt.term, at) if let else at
            for term in stmt.term.args if let else stmt.terms():
                self.last[term] = max(self.last.get(term, 0), end)

    def stays(self, stmt: nest.Let) -> bool:
        """Whether no store to the buffer of a load comes between it and the last use."""
        name = op_of(stmt.term, nest.Load).buffer.name
        first, last = self.order[id(stmt)], self.last.get(stmt.term, 0)
        return not any(first < at < last for at in self.stores.get(name, ()))


def uses_in(
    body: nest.Block, in_chunks: Callable[[For], bool]
) -> tuple[Counter[Node], dict[Node, int]]:
    """How often what is needed uses each term; and the loop in whose body it is used."""
    lets, found = dict[Node, int](), list[tuple[nest.Stmt, int]]()

    def gather(block: nest.Block, home: int) -> None:
        for stmt in block:
            if isinstance(stmt, nest.Let):
                lets[stmt.term] = home
                continue
            found.append((stmt, home))
            if isinstance(stmt, For):
                inner = stmt.bind == "serial" or (stmt.bind == "lanes" and in_chunks(stmt))
                gather(stmt.body, id(stmt) if inner else home)

    gather(body, 0)
    uses, homes = Counter[Node](), dict[Node, int]()
    needed = dict.fromkeys(t for stmt, _ in found for t in stmt.terms())
    for stmt, home in found:
        for term in stmt.terms():
            uses[term] += 1
            homes[term] = home
    for term in dict.fromkeys(sub for t in needed for sub in postorder(t)):
        for arg in term.args:
            uses[arg] += 1
            homes[arg] = lets.get(term, -1)
    return uses, homes


def is_wide(body: nest.Block, buffers: Sequence[nest.Buffer]) -> bool:
    """Whether places or arithmetic of axes may exceed an int32."""
    if any(b.type.span >= INT32 for b in buffers):
        return True
    ranges: dict[Node, tuple[float, float]] = {}
    plain: dict[Node, bool] = {}

    def is_plain(node: Node) -> bool:
        if isinstance(node.op, Axis | Constant):
            return True
        known = isinstance(node.op, Apply) and node.op.function.name in OF_INDEX
        return known and all(plain[a] for a in node.args if a.type.dtype is i64)

    for stmt in nest.walk(body):
        if isinstance(stmt, For):
            ranges = ranges_inside(stmt, ranges)
        for term in stmt.terms():
            for sub in postorder(term):
                if sub.type.dtype is i64 and sub not in plain:
                    plain[sub] = is_plain(sub)
                    low, high = bounds(sub, ranges) if plain[sub] and sub.args else (0, 0)
                    if low < -INT32 or high >= INT32:
                        return True
    return False
