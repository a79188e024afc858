"""prefetch_rows: vector loads prefetch what no hardware fetches ahead.

before  for a0 in 0..4096:  # free parallel          after  for a0 in 0..4096:  # free parallel
            for a1 in b0..b0 + 16:  # reduce vector16           for a1 in b0..b0 + 16:
                in0 = load x[a0, a1]                                in0 = load x[a0, a1]
            for a2 in b1..b1 + 16:  # free vector16             for a2 in b1..b1 + 16:
                in1 = load x[a0, a2]                                in1 = load x[a0, a2] ahead 4096

The first loop over a row waits for memory, the second one computes: prefetching the next row in it
overlaps the two. Hardware does not follow pieces of rows from page to page, as in blocks of
columns, nor places in a row that lanes look up: these are prefetched some rows ahead. It pays
where the kernel's buffers exceed the caches.

What sums read once, as the weights of a product with one row, is fetched ahead wherever it is
larger than the second-level cache: hardware stops at the end of each page.
"""

from dataclasses import replace
from itertools import takewhile

from weft.core.node import Node, make, op_of, substitute
from weft.scalar.affine import linear
from weft.scalar.blocks import address, loads, nodes, rewrite_block
from weft.scalar.choices import Choices
from weft.scalar.nest import Buffer, For, Kernel, Load, Stmt, free_variables
from weft.scalar.ops import apply, constant
from weft.scalar.sizes import Extent, hint, size
from weft.targets.machine import Machine
from weft.tile.analysis.access import length, ranges_in, stride_along, trips
from weft.tile.price.traffic import touched

Loops = tuple[For, ...]
PAGE, LINE = 4096, 64  # bytes
AHEAD, ROWS = 8192, 32  # bytes that are on their way from memory, in so many rows at most


def prefetch_rows(kernel: Kernel, target: Machine, choices: Choices) -> Kernel:
    """Mark vector loads of streams, of rows that are read again, of pieces, and of places."""
    distant = choices.decide("prefetch", hint(touched(kernel.body, target)) >= target.l3)
    ranges = ranges_in(kernel.body)

    def marked(stmt: Stmt, around: Loops) -> Stmt:
        if isinstance(stmt, For):
            return replace(stmt, body=tuple(marked(s, (*around, stmt)) for s in stmt.body))
        return rewrite_block((stmt,), lambda t: ahead(t, around))[0]

    def ahead(node: Node, around: Loops) -> Node | None:
        lanes = next((s for s in around if s.lanes), None)
        if lanes is None or not isinstance(node.op, Load) or node.op.masked or node.op.ahead:
            return None
        buffer, where = node.op.buffer, address(node.op.buffer, node.args, ranges)
        along = stride_along(where, lanes.axis)
        if buffer.space != "global" or along not in (1, None):
            return None
        if lanes.role == "reduce" and along and _is_stream(node, around, target):
            return make(replace(node.op, ahead=AHEAD // buffer.type.dtype.bytes), *node.args)
        if not distant:
            return None
        (start,) = substitute((where,), {a: constant(0) for a in linear(where)[0] if loads(a)})
        far = _far(buffer, start, around, LINE if along is None else 0, target)
        return make(replace(node.op, ahead=far), *node.args) if far else None

    return replace(kernel, body=tuple(marked(s, ()) for s in kernel.body))


def _is_stream(load: Node, around: Loops, target: Machine) -> bool:
    """Whether every iteration of all loops reads other elements, of more than a cache holds."""
    moves = free_variables(load, *(s.lo for s in around))
    large = hint(op_of(load, Load).buffer.bytes) > target.l2
    return large and all(s.axis in moves for s in around)


def _far(buffer: Buffer, where: Node, around: Loops, each: int, target: Machine) -> Extent:
    """How many elements ahead a load prefetches, or 0.

    `each`: the bytes that lanes fetch where they look up places, else 0.
    """
    item = buffer.type.dtype.bytes
    piece, rows = each or item, list[tuple[For, Extent]]()
    for loop in reversed(around):
        step = _step(where, loop)
        where = substitute((where,), {loop.axis: loop.lo})[0]
        if not (loop.lanes or loop.bind == "register"):
            rows.append((loop, step))
        elif 0 < hint(step) * item < PAGE:
            piece *= loop.lanes or max(1, trips(loop))
    for loop, step in rows:
        row = hint(step) * item
        if row and loop.role == "free" and _again(loop, around, buffer):
            return step if 0 < row <= target.l2 // 4 else 0
        if row >= PAGE and (piece >= row if each else piece < PAGE):
            return step * min(ROWS, -(-AHEAD // min(piece, row)))
        if step or each:  # what may be of any length is long
            piece *= trips(loop) if length(loop) else PAGE
    return 0


def _step(where: Node, loop: For) -> Extent:
    """How far an address moves from one iteration of a loop to the next; 0 for unevenly."""
    following = {loop.axis: apply("add", loop.axis, constant(loop.step))}
    step = size(apply("subtract", substitute((where,), following)[0], where))
    return step if isinstance(step, int) or not free_variables(step.term) else 0


def _again(row: For, around: Loops, buffer: Buffer) -> bool:
    """Whether a loop of those around, in a row's, is the second that reads a buffer."""
    before = () if row is around[-1] else takewhile(lambda s: s not in around, row.body)
    return sum(buffer in loads(*nodes((s,))) for s in before) == 1
