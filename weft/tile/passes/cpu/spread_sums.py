"""spread_sums: adds up sums over groups of terms by lanes, each of which has a part of every group.

before  for a0 in 0..512:  # free              after  for a0 in 0..512:  # free serial
            for a1 in 0..64:  # reduce acc0               for c0 in 0..16:  # reduce vector16
                for a2 in 0..32:  # reduce acc1               for b0 in 0..64 by 4:  # reduce serial
                    acc1 <- add(acc1, x * q)                      ...
                acc0 <- add(acc0, acc1 * s)

Products with weights whose groups have a scale each are such sums. See tile/moves/spread.py.
"""

from dataclasses import replace

from weft.core.node import Node, make
from weft.scalar.blocks import loops_in, map_each, map_outermost, rewrite_block
from weft.scalar.choices import Choices
from weft.scalar.nest import For, Kernel, Load, Update, free_variables
from weft.scalar.sizes import hint
from weft.targets.machine import Machine
from weft.tile.moves.loops import Labels
from weft.tile.moves.spread import spread_nest
from weft.tile.price.cost import best_cost, spread_cost

AHEAD = 8192  # bytes that are on their way from memory


def spread_sums(kernel: Kernel, target: Machine, choices: Choices) -> Kernel:
    """Spread the sums of every nest where that is cheaper than any other vector axis."""
    labels = Labels(kernel.body)

    def one(stmt: For) -> For | None:
        nest = None if stmt.bind else spread_nest(stmt, target.lanes(4), labels)
        if nest is None:
            return None
        better = choices.decide("spread", spread_cost(nest) < best_cost(stmt, target))
        return _fetching(nest, target) if better else None

    return replace(kernel, body=map_outermost(kernel.body, one))


def _fetching(nest: For, target: Machine) -> For:
    """The nest, which prefetches what no cache holds: each group comes from memory once."""
    lanes = {f.axis for f in loops_in((nest,)) if f.lanes}

    def change(node: Node) -> Node | None:
        if not isinstance(node.op, Load) or node.op.masked or node.op.buffer.space != "global":
            return None
        buffer, moves = node.op.buffer, not lanes.isdisjoint(free_variables(node))
        if not moves or hint(buffer.bytes) <= target.l2:
            return None
        return make(replace(node.op, ahead=AHEAD // buffer.type.dtype.bytes), *node.args)

    fetched = map_each((nest,), Update, lambda s: rewrite_block((s,), change)[0])[0]
    assert isinstance(fetched, For)
    return fetched
