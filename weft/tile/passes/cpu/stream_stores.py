"""stream_stores: bypasses the caches with a kernel's stores when its buffers exceed them.

before  y[a0] = v0                              after  y[a0] = v0 stream

A store into a cache first reads the line from memory; a streaming store does not. It pays for
whole registers side by side, in a buffer that the kernel itself does not read.
"""

from dataclasses import replace

from weft.scalar.blocks import loads, map_each, map_outermost, nodes
from weft.scalar.choices import Choices
from weft.scalar.nest import For, Kernel, Store
from weft.scalar.ops import apply, constant
from weft.scalar.sizes import Size
from weft.targets.machine import Machine
from weft.tile.analysis.access import ranges_in, stride_of
from weft.tile.price.traffic import touched

LEAST = 16  # bytes of the smallest streaming store of vectors


def stream_stores(kernel: Kernel, target: Machine, choices: Choices) -> Kernel:
    """Mark the vector stores of a kernel that touches more than the last cache holds."""
    bytes_ = touched(kernel.body, target)
    past = apply("ge", constant(bytes_), constant(target.l3)) if isinstance(bytes_, Size) else None
    if past is None and not choices.decide("stream", bytes_ >= target.l3):
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
