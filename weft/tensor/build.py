"""Constructors over the tensor primitives, in which the lowerings of ATen ops are written.

x = Tensor(make(Input("x", TensorType(f32, (16, 64)))))
y = x * scalar.sigmoid(x + 1)              # numbers take the dtype of the tensor they meet
p = scalar.exp(y - reduce(MAX, y, (1,), keep=True))  # shapes broadcast through views
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from weft.core.node import Node, Operators, make, require
from weft.core.types import DType, Symbolic, TensorType, at_least, f32, i32, i64, row_major
from weft.scalar import ops as scalar
from weft.scalar.affine import from_linear, linear, plus, times
from weft.scalar.index import TRUE, simplify
from weft.scalar.monoid import MAX, SUM, Monoid
from weft.scalar.ops import Function, apply, constant
from weft.scalar.sizes import differ, is_short
from weft.tensor import ops
from weft.tensor.layouts import Contiguous
from weft.tensor.ops import Shape, box, position, positions
from weft.tensor.ragged import RunOf, Runs
from weft.tensor.rules_view import viewed

Number = int | float | bool
Axes = Sequence[int]
Extents = Sequence[int]
FEW = 64  # elements that a sort may keep by putting each among those before it


@dataclass(frozen=True, eq=False)
class Tensor(Operators):
    """A node with Python's arithmetic operators."""

    node: Node

    @property
    def type(self) -> TensorType:
        return self.node.type

    @property
    def dtype(self) -> DType:
        return self.node.type.dtype

    @property
    def shape(self) -> Shape:
        return self.node.type.shape

    @property
    def rank(self) -> int:
        return len(self.shape)

    def apply(self, name: str, *args: Any) -> Any:
        return map_(scalar.FUNCTIONS[name], *args)


Operand = Tensor | int | float | bool

# --- pointwise ----------------------------------------------------------------------------------


def literal(value: Number, dtype: DType) -> Tensor:
    """A rank-0 constant, or a size; an integer wraps as a cast to that dtype does."""
    if isinstance(value, Symbolic):
        return cast(index_of((), value.term), dtype)
    if dtype.python is int:
        value = np.asarray(int(value)).astype(dtype.numpy).item()
    return Tensor(make(ops.Scalar(dtype.python(value), dtype)))


def map_(function: Function, *args: Operand) -> Tensor:
    """Apply the function at every position; shapes broadcast.

    A number takes the dtype of the first tensor. Without tensors, all are f32 if one is a float,
    else i64.
    """
    values = args[1:] if function is scalar.where else args
    found = [a.dtype for a in values if isinstance(a, Tensor)]
    default = f32 if any(isinstance(a, float) for a in values) else i64
    dtype = found[0] if found else default
    tensors = [a if isinstance(a, Tensor) else literal(a, dtype) for a in args]
    shape = broadcast_shape(*(t.shape for t in tensors))
    aligned = [t if t.rank == 0 else broadcast(t, shape) for t in tensors]
    return Tensor(make(ops.Map(function), *(t.node for t in aligned)))


def broadcast_shape(*shapes: Shape) -> Shape:
    """The shape that all broadcast to, aligned at the end; VerifyError where there is none."""
    rank = max(map(len, shapes), default=0)
    found: list[int] = []
    for row in zip(*((*(1,) * (rank - len(s)), *s) for s in shapes), strict=True):
        extents = dict.fromkeys(n for n in row if n != 1)
        several = any(differ(x, y) for x, y in pairwise(extents))
        require(not several, f"no broadcast of {' and '.join(map(str, extents))} elements")
        found += [*extents] or [1]
    return tuple(found)


def cast(x: Tensor, dtype: DType) -> Tensor:
    return x if x.dtype is dtype else map_(scalar.CASTS[dtype], x)


def widen(x: Tensor) -> Tensor:
    """Cast a 16-bit float to f32, in which it is computed; other dtypes stay."""
    return cast(x, x.dtype.compute)


# --- index terms --------------------------------------------------------------------------------


def affine(coefficients: Mapping[int, int], offset: int = 0) -> Node:
    """The index term sum(k * i_axis) + offset."""
    total = linear(constant(offset))
    for a, k in coefficients.items():
        total = plus(total, times(({position(a): 1}, 0), linear(constant(k))))
    return from_linear(*total)


def within(index: Node, extent: int) -> Node:
    """0 <= index < extent."""
    low = apply(scalar.ge, index, constant(0))
    return apply(scalar.bitand, low, apply(scalar.lt, index, constant(extent)))


def all_of(conditions: Sequence[Node]) -> Node:
    return scalar.apply_all(scalar.bitand, conditions) if conditions else TRUE


# --- views --------------------------------------------------------------------------------------


def view(
    x: Tensor, shape: Extents, index: Sequence[Node], valid: Node | None = None, fill: Number = 0
) -> Tensor:
    """out[i0, ...] = x[index] where `valid`, else `fill`; terms are simplified over the shape."""
    return Tensor(viewed(x.node, tuple(shape), tuple(index), valid, fill))


def full(shape: Sequence[int], value: Number, dtype: DType) -> Tensor:
    return view(literal(value, dtype), shape, ())


def broadcast_in(x: Tensor, shape: Sequence[int], axes: Sequence[int]) -> Tensor:
    """Axis j of x runs along output axis axes[j] (or has length 1); x repeats along the others."""
    pairs = zip(axes, x.shape, strict=True)
    index = [constant(0) if n == 1 and shape[a] != 1 else position(a) for a, n in pairs]
    return view(x, shape, index)


def broadcast(x: Tensor, shape: Sequence[int]) -> Tensor:
    """NumPy's broadcasting: axes are aligned at the end."""
    return broadcast_in(x, shape, range(len(shape) - x.rank, len(shape)))


def permute(x: Tensor, axes: Sequence[int]) -> Tensor:
    """Output axis i is axis axes[i] of x."""
    shape = [x.shape[a] for a in axes]
    return view(x, shape, [position(list(axes).index(a)) for a in range(x.rank)])


def contiguous(x: Tensor) -> Tensor:
    """The same in memory, where reading it there saves more than a copy takes."""
    return Tensor(make(Contiguous(), x.node))


def transpose(x: Tensor, a: int = -2, b: int = -1) -> Tensor:
    axes = list(range(x.rank))
    axes[a], axes[b] = axes[b], axes[a]
    return permute(x, axes)


def reshape(x: Tensor, shape: Sequence[int]) -> Tensor:
    """The same elements in row-major order; one extent may be -1."""
    if -1 in shape:
        known = -math.prod(shape)
        shape = [x.type.size // known if n == -1 else n for n in shape]
    flat = affine(dict(enumerate(row_major(tuple(shape)))))
    return view(x, shape, unravel(flat, x.shape))


def unravel(flat: Node, shape: Shape) -> list[Node]:
    """Coordinates of a row-major position."""
    outer = [apply(scalar.floordiv, flat, constant(stride)) for stride in row_major(shape)]
    inside = zip(outer, shape, strict=True)
    return [apply(scalar.floormod, at, constant(at_least(1, extent))) for at, extent in inside]


def squeeze(x: Tensor, axes: Sequence[int]) -> Tensor:
    """Drop axes of length 1."""
    kept = [a for a in range(x.rank) if a not in axes]
    index = [position(kept.index(a)) if a in kept else constant(0) for a in range(x.rank)]
    return view(x, [x.shape[a] for a in kept], index)


def unsqueeze(x: Tensor, axis: int) -> Tensor:
    axis %= x.rank + 1
    shape = (*x.shape[:axis], 1, *x.shape[axis:])
    return broadcast_in(x, shape, [a for a in range(len(shape)) if a != axis])


def along(x: Tensor, axis: int, extent: int, term: Node) -> Tensor:
    """Replace the coordinate of one axis: out[.., i, ..] = x[.., term(i), ..]."""
    index, shape = list(positions(x.rank)), list(x.shape)
    index[axis], shape[axis] = term, extent
    return view(x, shape, index)


def slice_(x: Tensor, axis: int, start: int, extent: int, step: int = 1) -> Tensor:
    return along(x, axis, extent, affine({axis: step}, start))


def select(x: Tensor, axis: int, at: int) -> Tensor:
    return squeeze(slice_(x, axis, at, 1), (axis,))


def flip(x: Tensor, axes: Sequence[int]) -> Tensor:
    index = [affine({a: -1}, n - 1) if a in axes else position(a) for a, n in enumerate(x.shape)]
    return view(x, x.shape, index)


def pad(x: Tensor, pads: Sequence[tuple[int, int]], fill: Number = 0) -> Tensor:
    """Pad axis a with pads[a] = (before, after) elements of `fill`; a negative amount crops."""
    shape = [n + low + high for n, (low, high) in zip(x.shape, pads, strict=True)]
    index = [affine({a: 1}, -low) for a, (low, _) in enumerate(pads)]
    valid = all_of([within(i, n) for i, n in zip(index, x.shape, strict=True)])
    return view(x, shape, index, valid, fill)


def concat(pieces: Sequence[Tensor], axis: int) -> Tensor:
    """Concatenate along an axis: pad each piece to the full shape, then select by position."""
    pieces = [p for p in pieces if p.shape[axis]] or list(pieces[:1])
    extents = [p.shape[axis] for p in pieces]
    padded: list[Tensor] = []
    for i, piece in enumerate(pieces):
        pads = [(0, 0)] * piece.rank
        pads[axis] = (sum(extents[:i]), sum(extents[i + 1 :]))
        padded.append(pad(piece, pads))
    out = padded.pop()
    while padded:
        before = apply(scalar.lt, position(axis), constant(sum(extents[: len(padded)])))
        out = scalar.where(index_of(out.shape, before), padded.pop(), out)
    return out


# --- tensors made of their coordinates ----------------------------------------------------------


def index_of(shape: Sequence[int], term: Node) -> Tensor:
    """out[i0, ...] = term, an i64 or bool."""
    return Tensor(make(ops.Index(tuple(shape), simplify(term, box(tuple(shape))))))


def iota(shape: Sequence[int], axis: int) -> Tensor:
    """The coordinate along one axis."""
    return index_of(shape, position(axis))


# --- folds --------------------------------------------------------------------------------------


def reduce(
    monoid: Monoid, x: Tensor, axes: Sequence[int], keep: bool = False, finite: bool = False
) -> Tensor:
    out = Tensor(make(ops.Reduce(monoid, tuple(sorted(axes)), finite), x.node)) if axes else x
    return out if keep else squeeze(out, axes)


def scan(monoid: Monoid, x: Tensor, axis: int, result: int = 0) -> Tensor:
    return Tensor(make(ops.Scan(monoid, axis, result), x.node))


def scatter(
    monoid: Monoid, base: Tensor, axis: int, index: Tensor, x: Tensor, beyond: int = 0
) -> Tensor:
    index = cast(index, i64)
    if base.shape[axis] == 1:  # the place drops out of the address, and its check with it
        x = scalar.where(scalar.eq(scalar.checked_index(index, 1), 0), x, 0)
    return Tensor(make(ops.Scatter(monoid, axis, beyond), base.node, index.node, x.node))


def runs(monoid: Monoid, base: Tensor, axis: int, starts: Tensor, x: Tensor) -> Tensor:
    """Each row of the base with the elements of x from its start to the next one."""
    return Tensor(make(Runs(monoid, axis), base.node, cast(starts, i64).node, x.node))


def run_of(starts: Tensor, extent: int) -> Tensor:
    """The run of each of so many elements, i64; those of none have the count of runs."""
    return cast(Tensor(make(RunOf(extent), cast(starts, i64).node)), i64)


def winners(shape: Shape, axis: int, index: Tensor, beyond: int = 0) -> Tensor:
    """For each element of `shape` the last position along the axis that names it, -1 for none."""
    narrow = i32 if is_short(index.shape[axis]) else i64
    positions = cast(iota(index.shape, axis), narrow)
    return scatter(MAX, full(shape, -1, narrow), axis, index, positions, beyond)


def sort(
    key: Tensor,
    axis: int,
    descending: bool = False,
    payload: Sequence[Tensor] = (),
    first: int = 0,
) -> list[Tensor]:
    """The key and the payload along the axis in order of the key, or the `first` so many."""
    operands = [key.node, *(p.node for p in payload)]
    found = (ops.Sort(axis, descending, result, first) for result in range(len(operands)))
    return [Tensor(make(each, *operands)) for each in found]


def select_rank(x: Tensor, axis: int, rank: Tensor) -> Tensor:
    """Where the first element is that is equal to that of a rank along the axis, of length 1."""
    return Tensor(make(ops.Select(axis), x.node, cast(rank, i64).node))


def total(x: Tensor, axes: Sequence[int], keep: bool = False) -> Tensor:
    return reduce(SUM, x, axes, keep)


def extent_of(x: Tensor, axes: Sequence[int]) -> int:
    return math.prod(x.shape[a] for a in axes)


def mean(x: Tensor, axes: Sequence[int], keep: bool = False) -> Tensor:
    return total(x, axes, keep) * inverse(extent_of(x, axes), x.dtype)


def inverse(n: float, dtype: DType) -> Operand:
    """1 / n, NaN of 0; of a size it is computed when the program is called."""
    if isinstance(n, Symbolic):
        return 1.0 / literal(n, dtype)
    return 1 / n if n else math.nan


def variance(x: Tensor, axes: Sequence[int], correction: float = 0, keep: bool = False) -> Tensor:
    """Two passes: the mean, then the squared deviations from it."""
    deviation = x - mean(x, axes, keep=True)
    freedom = at_least(0, extent_of(x, axes) - correction)
    squares = total(deviation * deviation, axes, keep)
    return squares * inverse(freedom, x.dtype) if freedom else squares / 0.0


def softmax(x: Tensor, axis: int, top: Tensor | None = None) -> Tensor:
    """`top` is x's maximum, if known. One division per sum (at least 1), not per element."""
    weights = scalar.exp(x - (reduce(MAX, x, (axis,), keep=True) if top is None else top))
    return weights * (1.0 / total(weights, (axis,), keep=True))


def matmul(a: Tensor, b: Tensor, finite: bool = False) -> Tensor:
    """[..., M, K] by [..., K, N] -> [..., M, N]: products over [..., M, N, K], summed along K."""
    batch = broadcast_shape(a.shape[:-2], b.shape[:-2])
    r = len(batch)
    box_shape = (*batch, a.shape[-2], b.shape[-1], a.shape[-1])
    lead_a, lead_b = range(r - a.rank + 2, r), range(r - b.rank + 2, r)
    left = broadcast_in(a, box_shape, [*lead_a, r, r + 2])
    right = broadcast_in(b, box_shape, [*lead_b, r + 2, r + 1])
    return reduce(SUM, left * right, (r + 2,), finite=finite)
