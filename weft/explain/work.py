"""The floating-point operations of a kernel, and the bytes of memory that it has to move.

work_of(kernel)     # of a matmul of f32[16,64] and [64,16]: Work(flops=32768, bytes=9216)
An operation is a function of floats, whatever it costs: exp is one, a multiply-add two; casts,
choices and what addresses take are none. Of a buffer each byte is read once and written once, and
no more than the loads and stores ask for: what caches cannot save a kernel from.
"""

from typing import NamedTuple

from weft.core.node import Node, postorder
from weft.scalar.nest import Block, Buffer, For, Kernel, Let, Store, Update
from weft.scalar.ops import CASTS, Apply
from weft.scalar.placing import place
from weft.scalar.sizes import hint
from weft.scalar.updates import combined
from weft.tile.analysis.access import trips

NEITHER = ("where", "pack_bf16")
SEVERAL = {"fma": 2, "dot_bf16": 3}


class Work(NamedTuple):
    flops: int
    bytes: int


def work_of(kernel: Kernel) -> Work:
    """Of a kernel at the loop, the tile or the kernel level; sizes are those first met."""
    counting = _Counting()
    counting.block(place(kernel.body), 1)
    moved = counting.moved.items()
    return Work(counting.flops, sum(min(n, hint(b.bytes)) for (b, _), n in moved))


class _Counting:
    """`moved` has the bytes that loads (False) and stores (True) of each buffer ask for."""

    def __init__(self) -> None:
        self.flops = 0
        self.moved: dict[tuple[Buffer, bool], int] = {}

    def block(self, stmts: Block, times: int) -> None:
        for stmt in stmts:
            if isinstance(stmt, For):
                self.block(stmt.body, times * trips(stmt))
            elif isinstance(stmt, Let):
                self.flops += times * flops(stmt.term)
                if hasattr(stmt.term.op, "buffer"):
                    self.move(stmt.term.op.buffer, False, times * stmt.term.type.lanes)  # type: ignore[attr-defined]
            elif isinstance(stmt, Update):
                known = {n for v in stmt.values for n in postorder(v)}
                own = (n for n in postorder(*combined(stmt)) if n not in known)
                self.flops += times * sum(map(flops, own))
            elif isinstance(getattr(stmt, "buffer", None), Buffer):
                lanes = 1 if isinstance(stmt, Store) else getattr(stmt, "lanes", 1)
                self.move(stmt.buffer, True, times * lanes)  # type: ignore[attr-defined]

    def move(self, buffer: Buffer, stores: bool, count: int) -> None:
        if buffer.space == "global":
            key = buffer, stores
            self.moved[key] = self.moved.get(key, 0) + count * buffer.type.dtype.bytes


def flops(term: Node) -> int:
    """Those of a term's own function, on all its lanes."""
    if not isinstance(term.op, Apply) or term.args[-1].type.dtype.kind not in ("float", "pair"):
        return 0
    function = term.op.function
    if function.name in NEITHER or function is CASTS.get(term.type.dtype):
        return 0
    return term.type.lanes * SEVERAL.get(function.name, 1)
