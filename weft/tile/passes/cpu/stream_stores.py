"""stream_stores: bypasses the caches with a kernel's stores when its buffers exceed them.

before  y[a0] = v0                              after  y[a0] = v0 stream

A store into a cache first reads the line from memory; a streaming store does not. It pays for
whole registers side by side, in a buffer that the kernel itself does not read. It also pays where
rows of a table are looked up many times, which stored lines would evict from the second cache.
"""

from dataclasses import replace

from weft.core.node import postorder
from weft.scalar.blocks import access, loads, map_each, map_outermost, nodes
from weft.scalar.choices import Choices
from weft.scalar.nest import Block, For, Kernel, Store
from weft.scalar.ops import apply, constant
from weft.scalar.sizes import Undecided, hint
from weft.targets.machine import Machine
from weft.tile.analysis.access import length, ranges_in, stride_of
from weft.tile.price.traffic import touched

LEAST = 16  # bytes of the smallest streaming store of vectors
OFTEN = 8  # times as many bytes as are stored, where what is looked up is read often


def stream_stores(kernel: Kernel, target: Machine, choices: Choices) -> Kernel:
    """Mark the vector stores of a kernel that touches more than the last cache holds."""
    bytes_ = touched(kernel.body, target)
    past, far = None, False
    try:
        far = bool(bytes_ >= target.l3) or _looks_up(kernel.body, target)
    except Undecided:
        past = apply("ge", constant(bytes_), constant(target.l3))
    if past is None and not choices.decide("stream", far):
        return kernel
    read = loads(*nodes(kernel.body))
    ranges = ranges_in(kernel.body)

    def marked(stmt: Store, loop: For) -> Store:
        whole = loop.lanes * stmt.buffer.type.dtype.bytes % LEAST == 0
        own = stmt.buffer.space == "global" and stmt.buffer not in read
        streams = whole and own and stmt.mask is None and stride_of(stmt, loop.axis, ranges) == 1
        return replace(stmt, how="stream", when=past) if streams else stmt

    def one(loop: For) -> For | None:
        if not loop.lanes:
            return None
        return replace(loop, body=map_each(loop.body, Store, lambda s: marked(s, loop)))

    return replace(kernel, body=map_outermost(kernel.body, one))


def _looks_up(body: Block, target: Machine) -> bool:
    """Whether rows of a table that the second cache may hold are read often beside many stores."""
    read, kept = _looked_up(body, 1, target.l2 // 2)
    return kept > target.l2 and read >= OFTEN * kept


def _looked_up(body: Block, times: int, table: int) -> tuple[int, int]:
    """Bytes read of such large tables, at places that are read too, and bytes stored to memory."""
    read = kept = 0
    for stmt in body:
        if isinstance(stmt, For):
            turns = stmt.usual or max(1, (length(stmt) or 0) // stmt.step)
            inner = _looked_up(stmt.body, times * turns, table)
            read, kept = read + inner[0], kept + inner[1]
            continue
        for term in postorder(*stmt.terms()):
            buffer, index = access(term) or (None, ())
            if buffer and loads(*index) and hint(buffer.bytes) >= table:
                read += times * buffer.type.dtype.bytes
        if isinstance(stmt, Store) and stmt.buffer.space == "global":
            kept += times * stmt.buffer.type.dtype.bytes
    return read, kept
