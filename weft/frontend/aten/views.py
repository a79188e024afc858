"""Rows of the ops that only move elements: views, padding, concatenation, resizing.

"t": lambda x: transpose(x, 0, 1)          # one index map each; slices of slices compose later
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from weft.core.node import Node
from weft.core.types import at_least, row_major
from weft.frontend.aten.table import Row, axis_of, namesakes, on_axis, require, rows
from weft.scalar.ops import apply, constant, eq, floordiv, floormod, where
from weft.scalar.sizes import larger, smaller
from weft.tensor import build
from weft.tensor.build import Axes, Number, Tensor, affine, reshape
from weft.tensor.ops import position, positions

Bound = int | None  # of a slice
Edge = Callable[[Node, int], Node]  # what a place so far beyond an axis of that length reads


def slice_range(extent: int, start: Bound, end: Bound, step: int) -> tuple[int, int]:
    """First position and number of positions of start:end:step."""
    first = _clamped(0 if start is None else start, extent)
    last = extent if end is None else _clamped(end, extent)
    return first, larger((last - first + step - 1) // step, 0)


def _clamped(place: int, extent: int) -> int:
    """A position counted from the start, between 0 and the extent."""
    place = place if place >= 0 else larger(place + extent, 0)
    return smaller(place, extent)


def sliced(x: Tensor, axis: int, start: Bound, end: Bound, step: int) -> Tensor:
    first, extent = slice_range(x.shape[axis], start, end, step)
    return build.slice_(x, axis, first, extent, step)


def narrowed(x: Tensor, axis: int, start: int, length: int) -> Tensor:
    return build.slice_(x, axis, start + x.shape[axis] if start < 0 else start, length)


def split_sizes(x: Tensor, sizes: Sequence[int], dim: int) -> list[Tensor]:
    axis = axis_of(dim, x.rank)
    return [build.slice_(x, axis, sum(sizes[:i]), n) for i, n in enumerate(sizes)]


def split(x: Tensor, size: int, dim: int) -> list[Tensor]:
    extent = x.shape[axis_of(dim, x.rank)]
    if extent == 0 or size == 0:
        return [x]
    return split_sizes(x, [min(size, extent - a) for a in range(0, extent, size)], dim)


def squeeze_axes(x: Tensor, dim: int | Axes | None = None) -> Tensor:
    axes = range(x.rank) if dim is None else [dim] if isinstance(dim, int) else dim
    named = {axis_of(a, x.rank) for a in axes}
    return build.squeeze(x, [a for a in sorted(named) if x.shape[a : a + 1] == (1,)])


def expand(x: Tensor, size: Sequence[int], **_: Any) -> Tensor:
    extra = len(size) - x.rank
    shape = [x.shape[i - extra] if n == -1 else n for i, n in enumerate(size)]
    return build.broadcast(x, shape)


def as_strided(x: Tensor, layout: Axes, size: Axes, stride: Axes, offset: int | None) -> Tensor:
    """Positions in memory back to coordinates, where x fills its memory without gaps."""
    require(not offset or offset >= 0, "as_strided before its argument's first element")
    order = sorted(range(x.rank), key=lambda a: (-layout[a], -x.shape[a]))
    dense = row_major(tuple(x.shape[a] for a in order))
    fits = all(x.shape[a] == 1 or layout[a] == s for a, s in zip(order, dense, strict=True))
    require(fits, "as_strided of a tensor with gaps in memory")
    last = (offset or 0) + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    require(0 in size or last < x.type.size, "as_strided past its argument's elements")
    flat = affine(dict(enumerate(stride)), offset or 0)
    coordinates = build.unravel(flat, tuple(x.shape[a] for a in order))
    return build.view(x, size, [coordinates[order.index(a)] for a in range(x.rank)])


def unfold(x: Tensor, axis: int, size: int, step: int) -> Tensor:
    """Windows along an axis; positions in the window become the last axis."""
    if x.rank == 0:
        return build.broadcast(x, (size,))
    shape = [*x.shape, size]
    shape[axis] = (x.shape[axis] - size) // step + 1
    index = list(positions(x.rank))
    index[axis] = affine({axis: step, x.rank: 1})
    return build.view(x, shape, index)


def diagonal(x: Tensor, offset: int, dim1: int, dim2: int) -> Tensor:
    """The diagonal becomes the last axis."""
    a, b = axis_of(dim1, x.rank), axis_of(dim2, x.rank)
    below, right = max(-offset, 0), max(offset, 0)
    kept = [i for i in range(x.rank) if i not in (a, b)]
    on_it = {a: affine({len(kept): 1}, below), b: affine({len(kept): 1}, right)}
    index = [on_it[i] if i in on_it else position(kept.index(i)) for i in range(x.rank)]
    length = max(0, min(x.shape[a] - below, x.shape[b] - right))
    return build.view(x, [*(x.shape[i] for i in kept), length], index)


def repeat(x: Tensor, repeats: Sequence[int]) -> Tensor:
    x = build.broadcast(x, (*(1,) * (len(repeats) - x.rank), *x.shape))
    shape = [n * r for n, r in zip(x.shape, repeats, strict=True)]
    index = [apply(floormod, position(a), constant(at_least(1, n))) for a, n in enumerate(x.shape)]
    return build.view(x, shape, index)


def roll(x: Tensor, shifts: Sequence[int], dims: Axes = ()) -> Tensor:
    """The end of each axis comes before its start."""
    if not dims:
        return reshape(roll(reshape(x, (-1,)), shifts, (0,)), x.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        axis = axis_of(dim, x.rank)
        n = x.shape[axis]
        start = -shift % at_least(1, n)
        if isinstance(start, int):
            parts = build.slice_(x, axis, start, n - start), build.slice_(x, axis, 0, start)
            x = build.concat(parts, axis)
        else:  # one program for all sizes
            x = build.along(x, axis, n, apply(floormod, affine({axis: 1}, -shift), constant(n)))
    return x


# --- writing into a region ----------------------------------------------------------------------


def placed(x: Tensor, src: Tensor, index: Sequence[Node], *conditions: Node) -> Tensor:
    """src[index] where the conditions hold, x elsewhere."""
    inside = build.all_of(conditions)
    return where(build.index_of(x.shape, inside), build.view(src, x.shape, index, inside), x)


def write_region(x: Tensor, src: Tensor, axis: int, start: int, step: int = 1) -> Tensor:
    """x with src at start, start + step, ... along an axis."""
    back = affine({axis: 1}, -start)
    at = apply(floordiv, back, constant(step))
    on_grid = apply(eq, apply(floormod, back, constant(step)), constant(0))
    index = [at if a == axis else position(a) for a in range(x.rank)]
    return placed(x, src, index, build.within(at, src.shape[axis]), on_grid)


def slice_scatter(x: Tensor, src: Tensor, dim: int, start: Bound, end: Bound, step: int) -> Tensor:
    axis = axis_of(dim, x.rank)
    first, extent = slice_range(x.shape[axis], start, end, step)
    shape = [extent if a == axis else n for a, n in enumerate(x.shape)]
    return write_region(x, build.broadcast(src, shape), axis, first, step)


def select_scatter(x: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    axis = axis_of(dim, x.rank)
    return write_region(x, build.unsqueeze(src, axis), axis, index % x.shape[axis])


def diagonal_scatter(x: Tensor, src: Tensor, offset: int, dim1: int, dim2: int) -> Tensor:
    a, b = axis_of(dim1, x.rank), axis_of(dim2, x.rank)
    row = affine({a: 1}, -max(-offset, 0))
    on_it = apply(eq, row, affine({b: 1}, -max(offset, 0)))
    index = [*(position(i) for i in range(x.rank) if i not in (a, b)), row]
    return placed(x, src, index, on_it, build.within(row, src.shape[-1]))


# --- padding and resizing -----------------------------------------------------------------------


def constant_pad(x: Tensor, amounts: Sequence[int], value: Number) -> Tensor:
    """torch lists (before, after) from the last axis backwards."""
    pairs = list(zip(amounts[::2], amounts[1::2], strict=True))[::-1]
    return build.pad(x, [(0, 0)] * (x.rank - len(pairs)) + pairs, value)


def edge_pad(before: Edge, beyond: Edge, x: Tensor, amounts: Sequence[int]) -> Tensor:
    """What places read that are so far before 0, and so far beyond the last one of n, n - 1."""
    index, shape = list(positions(x.rank)), list(x.shape)
    for i, (left, right) in enumerate(zip(amounts[::2], amounts[1::2], strict=True)):
        a = x.rank - 1 - i
        n = x.shape[a]
        at = affine({a: 1}, -left)
        over = affine({a: 1}, -left - n + 1)
        inside = apply(where, apply("lt", at, constant(n)), at, beyond(over, n))
        first = before(affine({a: -1}, left), n)
        index[a] = apply(where, apply("lt", at, constant(0)), first, inside)
        shape[a] = n + left + right
    return build.view(x, shape, index)


def replication_back(g: Tensor, x: Tensor, amounts: Sequence[int]) -> Tensor:
    """Of each place what reads it: at an end of an axis also the sum of all beyond it."""
    for i, (left, right) in enumerate(zip(amounts[::2], amounts[1::2], strict=True)):
        a = x.rank - 1 - i
        n, read = x.shape[a], g.shape[a]
        out = build.pad(g, [(-left, -right) if b == a else (0, 0) for b in range(x.rank)])
        for end, start, beyond in ((0, 0, left), (n - 1, max(read - right, 0), right)):
            if beyond > 0:
                edge = build.total(build.slice_(g, a, start, min(beyond, read)), (a,), keep=True)
                out = out + where(eq(build.iota(out.shape, a), end), edge, 0)
        g = out
    return g


def cat(tensors: Sequence[Tensor], dim: int) -> Tensor:
    pieces = [t for t in tensors if t.shape != (0,)] or list(tensors[:1])
    return build.concat(pieces, axis_of(dim, pieces[0].rank))


VIEWS = {
    "view reshape _unsafe_view _reshape_alias view_copy": lambda x, size, *_: reshape(x, size),
    "permute permute_copy": lambda x, dims: build.permute(x, [axis_of(a, x.rank) for a in dims]),
    "transpose.int": lambda x, a, b: build.transpose(x, a, b) if x.rank else x,
    "t": lambda x: build.transpose(x, 0, 1) if x.rank == 2 else x,
    "expand expand_copy": expand,
    "squeeze squeeze.dim,dims": squeeze_axes,
    "slice.Tensor": on_axis(sliced),
    "select.int": on_axis(lambda x, axis, at: build.select(x, axis, at % x.shape[axis])),
    "split.Tensor unsafe_split.Tensor": split,
    "split_with_sizes unsafe_split_with_sizes": split_sizes,
    "unbind.int unbind_copy.int": on_axis(
        lambda x, a: [build.select(x, a, i) for i in range(x.shape[a])]
    ),
    "narrow_copy": on_axis(narrowed),
    "flip": lambda x, dims: build.flip(x, [axis_of(a, x.rank) for a in dims]),
    "constant_pad_nd": constant_pad,
    "reflection_pad1d reflection_pad2d reflection_pad3d": partial(
        edge_pad, lambda far, n: far, lambda far, n: apply("subtract", constant(n - 1), far)
    ),
    "replication_pad1d replication_pad2d replication_pad3d": partial(
        edge_pad, lambda far, n: constant(0), lambda far, n: constant(n - 1)
    ),
    **namesakes(build.unsqueeze, diagonal, repeat, roll, on_axis(unfold)),
}

BACK = {" ".join(f"replication_pad{n}d_backward" for n in (1, 2, 3)): replication_back}

ROWS: dict[str, Row] = {
    **rows("stored", VIEWS),
    **rows("widened", BACK),
    **rows("converted", namesakes(cat, slice_scatter, select_scatter, diagonal_scatter)),
    **rows("strided", {"as_strided as_strided_copy": as_strided}),
}
