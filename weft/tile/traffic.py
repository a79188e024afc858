"""How many bytes a nest moves between memory and the cache that holds its working set.

moved(body, target)      # {x: 16384.0, y: 16384.0}
What one iteration of a loop touches stays cached for the next when it fits the second-level
cache: then a buffer is read once however often; loops one after another share it likewise.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.scalar.nest import Block, Buffer, For, Let, Load, Stmt, Store, place
from weft.targets.cpu import CPU
from weft.tile.access import contraction, longest

Traffic = dict[Buffer, float]


def moved(body: Block, target: CPU) -> Traffic:
    """Bytes per global buffer for one run of the block."""
    blocked = {s.axis for s in body if isinstance(s, For) and contraction(s) is not None}
    return _block(place(body, partial=True), target.l2, blocked)


def memory_ns(body: Block, target: CPU) -> float:
    """Time to move them, from the cache if all fits there."""
    total = sum(moved(body, target).values())
    rate = target.cache_bytes_per_ns if total < target.l2 else target.memory_bytes_per_ns
    return total / rate


def _block(stmts: Block, cache: int, blocked: Iterable[object] = ()) -> Traffic:
    own: Traffic = {}
    parts: list[Traffic] = []
    for s in stmts:
        if isinstance(s, For):
            parts.append(_loop(s, cache, s.axis in blocked))
        elif (buffer := _touched(s)) is not None:
            own[buffer] = own.get(buffer, 0.0) + buffer.type.dtype.bytes
    return _together([own, *parts], cache)


def _touched(stmt: Stmt) -> Buffer | None:
    """The global buffer a statement reads or writes."""
    found = getattr(stmt, "buffer", None) if isinstance(stmt, Store) else None
    if isinstance(stmt, Let) and isinstance(stmt.term.op, Load):
        found = stmt.term.op.buffer
    return found if found is not None and found.space == "global" else None


def _loop(stmt: For, cache: int, blocked: bool) -> Traffic:
    inner = _block(stmt.body, cache)
    turns = stmt.lanes or (longest(stmt.lo, stmt.hi) or stmt.step) / stmt.step
    fits = blocked or sum(inner.values()) <= cache
    return {b: min(turns * n, _bytes(b)) if fits else turns * n for b, n in inner.items()}


def _together(parts: list[Traffic], cache: int) -> Traffic:
    """Parts that run one after another; what they share moves once if it all stays cached."""
    most: Traffic = {}
    total: Traffic = {}
    for part in parts:
        for b, n in part.items():
            most[b] = max(most.get(b, 0.0), n)
            total[b] = total.get(b, 0.0) + n
    return most if sum(most.values()) <= cache else total


def _bytes(buffer: Buffer) -> int:
    return buffer.type.span * buffer.type.dtype.bytes
