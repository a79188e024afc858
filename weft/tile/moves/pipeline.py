"""Fills slabs ahead of the iteration that reads them.

first, ahead = filled_ahead(loop, fills, 64, labels)
pipelined(loop, {x_s0: 2}, fills, labels)       # both, with x_s0 in two parts, and the loop

before  for k0 in 0..512 by 64:                 after  for k2 in 0..64 by 64:  # prologue
            fill(x_s0[k0 // 64 % 2], k0)                   fill(x_s0[k2 // 64 % 2], k2)
            ... x_s0[k0 // 64 % 2] ...                 for k0 in 0..512 by 64:
                                                           for k1 in k0 + 64..min(..):  # ahead
                                                               fill(x_s0[k1 // 64 % 2], k1)
                                                           ... x_s0[k0 // 64 % 2] ...
"""

from collections.abc import Mapping
from dataclasses import replace

from weft.core.node import Node
from weft.core.types import TensorType
from weft.scalar.blocks import redirect, substitute_block
from weft.scalar.index import simplify
from weft.scalar.nest import Block, Buffer, For, Local
from weft.scalar.ops import apply, constant
from weft.tile.moves.loops import Labels, renamed, upto


def in_parts(loop: For, slabs: Mapping[Buffer, int], body: Block) -> tuple[list[Buffer], Block]:
    """The slabs with so many parts, and the loop's body with its iteration's part of each."""
    number = apply("floordiv", loop.axis, constant(loop.step))
    turn = {b: apply("floormod", number, constant(parts)) for b, parts in slabs.items()}
    types = {b: TensorType(b.type.dtype, (n, *b.type.shape)) for b, n in slabs.items()}
    held = {b: replace(b, type=type_) for b, type_ in types.items()}
    return [*held.values()], redirect(body, held, lambda b, index: (turn[b], *index))


def filled_ahead(loop: For, fills: Block, far: int, labels: Labels) -> tuple[For, For]:
    """What fills slabs before the loop, and in each of its iterations for the one `far` beyond."""

    def filled(start: Node) -> Block:
        return substitute_block(fills, {loop.axis: start})

    following, first = labels.axis("k"), labels.axis("k")
    start = apply("add", loop.axis, constant(far))
    end = upto(loop.axis, far + loop.step, loop.hi)
    ahead = For(following, start, end, filled(following), loop.step, "free", "ahead")
    end = simplify(apply("add", loop.lo, constant(far)), {})
    body = renamed(filled(first), labels)
    return For(first, loop.lo, end, body, loop.step, "free", "prologue"), ahead


def pipelined(loop: For, slabs: Mapping[Buffer, int], fills: Block, labels: Labels) -> Block:
    """What declares slabs of so many parts and fills them, and the loop, which fills them ahead."""
    held, body = in_parts(loop, slabs, (*fills, *loop.body))
    far = (max(slabs.values()) - 1) * loop.step
    first, ahead = filled_ahead(loop, body[: len(fills)], far, labels)
    return (*map(Local, held), first, replace(loop, body=(ahead, *body[len(fills) :])))
