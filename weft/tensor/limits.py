"""The least and the greatest value of tensors of integers, as far as what computes them tells.

limits(clamped, {})             # (0, 63) of minimum(maximum(x, 0), 63)
A gather by such places needs no check, also where they are stored and read.
"""

from weft.core.node import Node, bottom_up
from weft.core.types import i32, i64
from weft.scalar.intervals import INTERVALS, UNKNOWN, Interval, bounds
from weft.scalar.ops import CASTS
from weft.tensor.ops import Index, Map, Scalar, View, box
from weft.tensor.ragged import RunOf

WORDS = {i32: (-(1 << 31), (1 << 31) - 1), i64: UNKNOWN}


def limits(node: Node, memo: dict[Node, Interval]) -> Interval:
    """The interval of the values of an i32 or i64 tensor; `memo` gains those of its parts."""
    return bottom_up(node, memo, lambda n: _limits(n, memo), _parts)


def _parts(node: Node) -> tuple[Node, ...]:
    """What the interval of a node follows from."""
    op = node.op
    if isinstance(op, View):
        return node.args
    if not isinstance(op, Map) or node.type.dtype not in WORDS:
        return ()
    if op.function in CASTS.values():
        return node.args if node.args[0].type.dtype in WORDS else ()
    return node.args[-2:] if op.function.name in INTERVALS else ()


def _limits(node: Node, memo: dict[Node, Interval]) -> Interval:
    op, most = node.op, WORDS.get(node.type.dtype, UNKNOWN)
    parts = [memo[a] for a in _parts(node)]
    if isinstance(op, Scalar) and node.type.dtype in WORDS:
        return op.value, op.value
    if isinstance(op, Index) and node.type.dtype is i64:
        return bounds(op.term, box(op.shape))
    if isinstance(op, RunOf):
        return 0, node.args[0].type.shape[0] - 1
    if isinstance(op, View):
        (low, high), fill = parts[0], op.fill
        return (low, high) if op.valid is None else (min(low, fill), max(high, fill))
    if isinstance(op, Map) and parts:
        low, high = (
            parts[0] if op.function in CASTS.values() else INTERVALS[op.function.name](*parts)
        )
        return (low, high) if most[0] <= low and high <= most[1] else most  # it may wrap
    return most
