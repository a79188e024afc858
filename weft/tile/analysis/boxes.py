"""Recognises copies into slabs that one TMA command can do: a box of a tensor, and its tensor map.

box = box_of(nest)      # for m0 in b0..b0 + 64: for n0 in k0..k0 + 32: y[..] = load x[m0, n0]
box.region()            # of x[4096, 512]: 64 from b0 on, 32 from k0 on

A tensor map (CUDA Driver API, cuTensorMapEncodeTiled) has lines whose elements lie side by side,
and strides that are multiples of 16 bytes; elements outside of the tensor arrive as zeros.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from weft.core.node import Node, substitute
from weft.scalar.affine import linear, plus, slack
from weft.scalar.blocks import loops_from, loops_in, mask_of
from weft.scalar.nest import Block, Buffer, For, Load, Stmt, Store
from weft.scalar.ops import apply, constant, function_of, value_of
from weft.tile.analysis.access import WIDEST, stride_along, trips

MOST = 256  # elements along a side of a box
RANK = 3  # dimensions of a map


@dataclass(frozen=True)
class Dimension:
    size: int
    stride: int  # in elements
    side: int  # of the box
    start: Node
    index: Node


@dataclass(frozen=True)
class Box:
    """A nest that copies: `outer` goes over the lines of a slab, `line` along them."""

    outer: For
    line: For
    store: Store

    def nest(self) -> For:
        return replace(self.outer, body=(replace(self.line, body=(self.store,)),))

    def region(self) -> list[Dimension] | None:
        """The tensor map's dimensions, outermost first; None where TMA cannot copy the nest."""
        dims = self.dimensions()
        buffer: Buffer = self.store.value.op.buffer  # type: ignore[attr-defined]
        size = buffer.type.dtype.bytes
        if dims is None or len(dims) > RANK or not buffer.type.dtype.is_float:
            return None
        line = dims[-1]
        uneven = [d.stride * size % WIDEST for d in dims[:-1]]
        if line.stride != 1 or line.side * size % WIDEST or any(uneven):
            return None
        if max(d.side for d in dims) > MOST or not self.is_zero_outside(dims[-2:]):
            return None
        return dims

    def dimensions(self) -> list[Dimension] | None:
        """The tensor's dimensions; the box extends along the last two and is 1 along the others."""
        load, both = self.store.value, (self.outer, self.line)
        type_ = load.op.buffer.type  # type: ignore[attr-defined]
        moved: dict[For, Dimension] = {}
        rest: list[Dimension] = []
        sizes = zip(load.args, type_.shape, type_.layout, strict=False)
        if not all(isinstance(n, int) for n in (*type_.shape, *type_.layout)):
            return None  # a map has numbers
        for index, size, stride in sorted(sizes, key=lambda d: -d[2]):
            start = substitute((index,), {f.axis: f.lo for f in both})[0]
            steps = {f: stride_along(index, f.axis) for f in both}
            along = [f for f in both if steps[f] != 0]
            if along:
                if len(along) > 1 or steps[along[0]] != 1 or along[0] in moved or not stride:
                    return None
                moved[along[0]] = Dimension(size, stride, trips(along[0]), start, index)
            elif stride and size > 1:
                rest = _joined(rest, Dimension(size, stride, 1, start, index))
        return [*rest, *(moved[f] for f in both)] if len(moved) == 2 else None

    def is_zero_outside(self, dims: Sequence[Dimension]) -> bool:
        """Whether the mask rules out only what is outside the tensor, and fills in 0 like TMA."""
        condition, other = mask_of(self.store.value), self.store.value.args[-1]
        return condition is None or (value_of(other) == 0 and _is_inside(condition, dims))


def _joined(rest: list[Dimension], one: Dimension) -> list[Dimension]:
    """The dimensions and one of a smaller stride, collapsed with the last one where contiguous."""
    if not rest or rest[-1].stride != one.size * one.stride:
        return [*rest, one]
    start = apply("add", apply("multiply", rest[-1].start, constant(one.size)), one.start)
    return [*rest[:-1], replace(one, size=rest[-1].size * one.size, start=start)]


def _is_inside(condition: Node, dims: Sequence[Dimension]) -> bool:
    """Whether every element for which the condition is false lies outside the tensor."""
    if function_of(condition) == "and":
        return all(_is_inside(part, dims) for part in condition.args)
    left = slack(condition)  # at most -1 where it does not hold
    if left is None:
        return False
    for d in dims:
        above, more = plus(plus(linear(d.index), left), ({}, d.size), -1)
        below, less = plus(linear(d.index), left, -1)
        if (not above and more >= -1) or (not below and less <= 0):
            return True
    return False


def box_of(stmt: Stmt) -> Box | None:
    """The box that a nest copies into a slab, by its threads or by TMA already; None for others."""
    if not isinstance(stmt, For) or stmt.bind not in ("thread", "box"):
        return None
    loops = loops_from(stmt)
    store = loops[-1].body[0]
    if not isinstance(store, Store) or not isinstance(store.value.op, Load):
        return None
    if len(loops[-1].body) > 1 or store.mask is not None:
        return None
    if store.buffer.space != "shared" or store.value.op.buffer.space != "global":
        return None
    if len(loops) == 3 and loops[2].bind == "register" and loops[2].lo is loops[1].axis:
        loops = [loops[0], replace(loops[2], lo=loops[1].lo, hi=loops[1].hi)]
    if len(loops) != 2 or any(f.step != 1 or f.role != "free" for f in loops):
        return None
    outer, line = (replace(f, bind="box", body=()) for f in loops)
    return Box(outer, line, replace(store, how="async"))


def boxed(block: Block) -> set[Buffer]:
    """The slabs that TMA fills, whose layout TMA prescribes."""
    return {s.buffer for f in loops_in(block, "box") for s in f.body if isinstance(s, Store)}


def swizzles(slab: Buffer) -> list[int]:
    """The swizzles (in bytes) that divide a slab's lines; 0 is no swizzle."""
    rows, line = slab.type.shape[-2:]
    line *= slab.type.dtype.bytes
    whole = [s for s in (32, 64, 128) if s == min(line, 128) and line % s == 0 and rows % 8 == 0]
    return [0, *whole]
