"""Kernels with rows as plain kernels, one for each row: what rows mean.

parts(step)[1]                 # the kernel over the buffers of its second row
expanded(program)              # the program without rows, for what does not know them
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from weft.core.node import Node
from weft.core.text.graph import fresh
from weft.core.types import TensorType
from weft.scalar.blocks import redirect
from weft.scalar.index import simplify
from weft.scalar.nest import Kernel, Program, Rows, Step
from weft.scalar.ops import apply, constant
from weft.scalar.repeat import Row
from weft.scalar.resize import with_sizes
from weft.scalar.structure import substituted


def parts(step: Rows) -> tuple[Kernel, ...]:
    """A kernel for each row; it sees buffers in the shapes that the kernel has."""
    return tuple(_part(step, row, f"{step.name}.r{n}") for n, row in enumerate(step.rows))


def expanded(program: Program, wanted: Callable[[Rows], bool] = lambda _: True) -> Program:
    """The program with a kernel for each row, of what is `wanted` so.

    At the loop level buffers have their own shapes.
    """
    taken = {k.name for k in program.kernels}

    def plain(step: Step) -> Iterator[Step]:
        if not isinstance(step, Rows) or not wanted(step):
            yield step
            return
        for row, kernel in zip(step.rows, parts(step), strict=True):
            own = _in_shape(kernel, row) if program.level == "loop" else kernel
            yield replace(own, name=fresh(step.name, taken))

    return replace(program, steps=tuple(s for step in program.steps for s in plain(step)))


def at_mean(step: Rows) -> Kernel:
    """The kernel with its sizes as they are on average, for what is told of all rows."""
    each = zip(*(row.sizes for row in step.rows), strict=True)
    means = [constant(round(sum(numbers) / len(numbers))) for numbers in each]
    return with_sizes(step.kernel, dict(zip(step.sizes, means, strict=True)))


def _part(step: Rows, row: Row, name: str) -> Kernel:
    numbers = dict(zip(step.sizes, map(constant, row.sizes), strict=True))
    kernel = with_sizes(step.kernel, numbers)
    formal, own = (*kernel.inputs, *kernel.outputs), (*row.inputs, *row.outputs)
    named = {b: replace(b, name=other.name) for b, other in zip(formal, own, strict=True)}
    return replace(substituted(kernel, named), name=name)


def _in_shape(kernel: Kernel, row: Row) -> Kernel:
    """The kernel over the buffers of a row in their own shapes, where it reads them flat."""
    seen = (*kernel.inputs, *kernel.outputs)
    whole = {b: own for b, own in zip(seen, (*row.inputs, *row.outputs), strict=True) if b != own}
    body = redirect(kernel.body, whole, lambda b, index: _unflat(index[0], whole[b].type))
    return replace(kernel, inputs=row.inputs, outputs=row.outputs, body=body)


def _unflat(place: Node, type_: TensorType) -> tuple[Node, ...]:
    """The coordinates of an element of memory, in a tensor that is dense in some order of axes."""
    found: list[Node] = [constant(0)] * type_.rank
    for axis, (extent, stride) in enumerate(zip(type_.shape, type_.layout, strict=True)):
        if extent != 1:
            turn = apply("floordiv", place, constant(stride))
            found[axis] = simplify(apply("floormod", turn, constant(extent)), {})
    return tuple(found)
