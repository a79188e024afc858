"""async_copy: fills slabs that are plain copies asynchronously, by cp.async.

before  x_s0[m0, n0] = load x[m0, n0]       after  x_s0[m0, n0] = load x[m0, n0] async

A copy takes 4, 8 or 16 bytes from global memory, or sets them to zero.
"""

from dataclasses import replace

from weft.core.node import Node
from weft.scalar.nest import Block, For, Kernel, Load, Stmt, Store
from weft.scalar.ops import value_of
from weft.targets.gpu import GPU
from weft.tile.analysis.access import Ranges, ranges_in, strides, trips


def async_copy(kernel: Kernel, target: GPU) -> Kernel:
    """Mark the copies to shared memory, on targets that have them."""
    if not target.async_copies:
        return kernel
    return replace(kernel, body=_marked(kernel.body, None, ranges_in(kernel.body)))


def _marked(block: Block, strip: For | None, ranges: Ranges) -> Block:
    """`strip`: the loop over neighbours that one thread takes."""
    out: list[Stmt] = []
    for stmt in block:
        if isinstance(stmt, For):
            taken = stmt if stmt.bind == "register" and stmt.role == "free" else None
            stmt = replace(stmt, body=_marked(stmt.body, taken, ranges))
        elif isinstance(stmt, Store) and stmt.buffer.space == "shared":
            size = (trips(strip) if strip else 1) * stmt.buffer.type.dtype.bytes
            steps = strides(stmt, strip.axis, ranges) if strip else []
            copies = _is_copy(stmt.value) and all(step == 1 for _, step in steps)
            stmt = replace(stmt, how="async") if size >= 4 and copies else stmt
        out.append(stmt)
    return tuple(out)


def _is_copy(value: Node) -> bool:
    load = value.op
    if not isinstance(load, Load) or load.buffer.space != "global":
        return False
    return not load.masked or value_of(value.args[-1]) == 0
