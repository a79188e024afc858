"""prefetch_rows: the second loop over a row prefetches the next row for the first loop.

before  for a0 in 0..4096:  # free parallel          after  for a0 in 0..4096:  # free parallel
            for a1 in b0..b0 + 16:  # reduce vector16           for a1 in b0..b0 + 16:
                in0 = load x[a0, a1]                                in0 = load x[a0, a1]
            for a2 in b1..b1 + 16:  # free vector16             for a2 in b1..b1 + 16:
                in1 = load x[a0, a2]                                in1 = load x[a0, a2] ahead 4096

The first loop over a row waits for memory, the second one computes: prefetching overlaps the two.
It pays where the kernel's buffers exceed the caches.
"""

from dataclasses import replace

from weft.core.node import Node, make, substitute
from weft.scalar.blocks import address, loads, map_each, map_loops, nodes, rewrite_block
from weft.scalar.choices import Choices
from weft.scalar.nest import For, Kernel, Load, free_variables
from weft.scalar.ops import apply, constant
from weft.scalar.sizes import hint, size
from weft.targets.machine import Machine
from weft.tile.analysis.access import ranges_in, stride_along
from weft.tile.price.traffic import touched


def prefetch_rows(kernel: Kernel, target: Machine, choices: Choices) -> Kernel:
    """Mark vector loads of the first loop that reads a row again, where two rows stay cached."""
    if not choices.decide("prefetch", hint(touched(kernel.body, target)) >= target.l3):
        return kernel
    ranges = ranges_in(kernel.body)

    def rows(stmt: For) -> For:
        passes = [s for s in stmt.body if isinstance(s, For)]
        if stmt.role != "free" or stmt.lanes or len(passes) < 2:
            return stmt
        first = {b for b in loads(*nodes((passes[0],))) if b.space == "global"}

        def ahead(node: Node, lanes: For) -> Node | None:
            if not isinstance(node.op, Load) or node.op.masked or node.op.buffer not in first:
                return None
            where = address(node.op.buffer, node.args, ranges)
            following = {stmt.axis: apply("add", stmt.axis, constant(stmt.step))}
            far = size(apply("subtract", substitute((where,), following)[0], where))
            even = isinstance(far, int) or not free_variables(far.term)
            row = hint(far) // stmt.step * node.op.buffer.type.dtype.bytes if even else 0
            fits = 0 < row <= target.l2 // 4 and stride_along(where, lanes.axis) == 1
            return make(replace(node.op, ahead=far), *node.args) if fits else None

        def mark(s: For) -> For:
            body = rewrite_block(s.body, lambda t: ahead(t, s)) if s.lanes else s.body
            return replace(s, body=body)

        again = next((s for s in passes[1:] if not first.isdisjoint(loads(*nodes((s,))))), None)
        body = map_loops(stmt.body, lambda s: map_each((s,), For, mark)[0] if s is again else s)
        return replace(stmt, body=body)

    return replace(kernel, body=map_each(kernel.body, For, rows))
