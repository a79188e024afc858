"""transpose_operands: lays one side of a contraction along its sum, by a kernel of its own.

before  for a0 in 0..1000:  # free              after  kernel w_along(w: f32[512,3]) -> ...
            for a1 in 0..3:  # free                       for a1 in 0..3:  # free
                for a2 in 0..512:  # reduce                   for a2 in 0..512:  # free
                    acc0 <- add(acc0, x * w[a2, a1])              w_along[a1, a2] = w[a2, a1]
                                                       and then x[a0, a2] * w_along[a1, a2]

Dot products read both sides along the sum (tile_dot_products). Where one lies so and the other,
small beside it, does not, the alternative is to pack the large one.
"""

from collections.abc import Iterator
from dataclasses import replace

from weft.core.node import Node, make, substitute
from weft.core.text.graph import fresh
from weft.core.types import TensorType
from weft.scalar.blocks import loads, map_each, map_loops, stored_in, with_body
from weft.scalar.nest import Buffer, For, Kernel, Load, Program, Store, Update, free_variables
from weft.scalar.ops import apply
from weft.targets.machine import Machine
from weft.tile.analysis.access import Contraction, contraction, narrow, span, strides, trips
from weft.tile.moves.loops import nested
from weft.tile.price.products import dot_tile, panels_cost

COPY = 2  # vector instructions in the time that an element takes to be copied


def transpose_operands(program: Program, target: Machine) -> Program:
    """Transpose where that and dot products together are faster than panels."""
    names = {b.name for b in program.buffers()}

    def one(kernel: Kernel) -> list[Kernel]:
        copies, changed = list[Kernel](), stored_in(kernel.body)

        def along(stmt: For) -> For:
            found = _transposed(stmt, names, target)
            best = min(found, key=lambda one: one[0], default=None)
            if best is None or not changed.isdisjoint(best[1].inputs):
                return stmt
            _, copy, update = best
            copies.append(copy)
            return map_each((stmt,), Update, lambda s: update)[0]  # type: ignore[return-value]

        body = map_loops(kernel.body, along)
        made = [b for copy in copies for b in copy.outputs]
        return [*copies, with_body(kernel, body, *made) if made else kernel]

    return program.expand_kernels(one)


def _transposed(
    stmt: For, names: set[str], target: Machine
) -> Iterator[tuple[float, Kernel, Update]]:
    """The price, the copying kernel, and the sum over its buffer, for each side that gains."""
    c = contraction(stmt)
    if c is None or dot_tile(c, target) is not None:
        return
    for side, other in ((c.left, c.right), (c.right, c.left)):
        found = None if _along(side, c) or not _along(other, c) else _copied(side, c, names)
        if found is None:
            continue
        copy, read = found
        update = replace(c.update, values=(apply(c.times, other, read),))
        sides = {"left": read} if side is c.left else {"right": read}
        tile = dot_tile(replace(c, update=update, **sides), target)
        started = target.launch_us * 1e3 * target.vector_ops_per_ns * target.cores
        moved = COPY * copy.outputs[0].type.size + started
        if tile is not None and tile.price + moved < panels_cost(c, target):
            yield tile.price + moved, copy, update


def _along(side: Node, c: Contraction) -> bool:
    """Whether all that the side reads lies along the innermost axis of the sum."""
    read = strides(Update(c.update.fold, (side,)), c.reduce[-1].axis, c.ranges)
    return all(step in (0, 1) for _, step in read)


def _copied(side: Node, c: Contraction, names: set[str]) -> tuple[Kernel, Node] | None:
    """A kernel that copies a side, the sum innermost; and how the sum reads it there."""
    value, axes = narrow(side), free_variables(side)
    loops = [f for f in (*c.outer, *c.repeat, c.rows, c.columns, *c.reduce) if f.axis in axes]
    inputs = loads(value)
    if not all(isinstance(span(f), int) for f in loops) or not inputs:
        return None
    name = fresh(f"{inputs[0].name}_along", names)
    buffer = Buffer(name, TensorType(value.type.dtype, tuple(map(trips, loops))))
    index = tuple(f.axis for f in loops)
    body = nested(loops, (Store(buffer, index, value),), role="free", folds=(), bind="")
    (read,) = substitute((side,), {value: make(Load(buffer), *index)})
    return Kernel(f"copy_{name}", inputs, (buffer,), body), read
