"""The tensor level: a DAG of whole tensors over a few primitives.

x = make(Input("x", TensorType(f32, (16, 64))))
r = make(Reduce(SUM, (1,)), x)                      # f32[16,1]
y = make(View((16, 64), (i0, constant(0))), r)      # broadcast: y[i0, i1] = r[i0, 0]
"""

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from weft.core.arguments import Arguments
from weft.core.node import Node, Op, op, require, substitute
from weft.core.types import DType, Symbolic, TensorType, TupleType, i64
from weft.scalar.intervals import Interval
from weft.scalar.monoid import Monoid
from weft.scalar.ops import Constant, Function, axis, checked_index, evaluate_term
from weft.scalar.sizes import differ, hint
from weft.tensor.ragged import RunOf, Runs

Shape = tuple[int, ...]


@cache
def position(i: int) -> Node:
    """The variable of an index map's i-th output axis: i0, i1, ..."""
    return axis(f"i{i}")


def positions(rank: int) -> tuple[Node, ...]:
    return tuple(position(i) for i in range(rank))


def moved(terms: tuple[Node, ...], index: tuple[Node, ...]) -> tuple[Node, ...]:
    """The terms with `index` substituted for i0, i1, ...: index maps compose so."""
    return substitute(terms, dict(zip(positions(len(index)), index, strict=True)))


def box(shape: Shape, stem: str = "i") -> dict[Node, Interval]:
    """The range of each axis variable i0, i1, ... over a shape, both ends included."""
    return {axis(f"{stem}{i}"): (0, last_of(n)) for i, n in enumerate(shape)}


def last_of(extent: int) -> int:
    """The last coordinate along an axis, 0 of an empty one; of a size that is no number, it - 1."""
    return extent - 1 if isinstance(extent, Symbolic) else max(extent - 1, 0)


def _grid(shape: Shape) -> dict[Node, Any]:
    return {position(i): c for i, c in enumerate(np.indices(shape, dtype=np.int64, sparse=True))}


@op("input")
class Input(Op):
    """A tensor that the caller passes; `tensor` has its strides, the node's type is row-major."""

    label: str
    tensor: TensorType

    def infer(self) -> TensorType:
        return TensorType(self.tensor.dtype, self.tensor.shape)


@op("scalar")
class Scalar(Op):
    """A rank-0 constant; `map` takes it beside tensors of any shape."""

    value: int | float | bool
    dtype: DType

    def infer(self) -> TensorType:
        return TensorType(self.dtype, ())

    __eq__ = Constant.__eq__
    __hash__ = Constant.__hash__
    identity = Constant.identity

    def evaluate(self) -> Any:
        return np.asarray(self.value, self.dtype.numpy)


@op("map")
class Map(Op):
    """Apply a pointwise function; operands have one shape, or rank 0.

    m = map{add}(x, y)      x: f32[16,64], y: f32[16,64] or f32[] -> m: f32[16,64]
    """

    function: Function

    def infer(self, *types: TensorType) -> TensorType:
        shapes = {t.shape for t in types if t.rank}
        told = " and ".join(sorted(map(str, shapes)))
        require(len(shapes) <= 1, f"map {self.function} of shapes {told}")
        dtype = self.function.infer_dtype(tuple(t.dtype for t in types))
        return TensorType(dtype, next(iter(shapes), ()))

    def evaluate(self, *values: Any) -> Any:
        with np.errstate(all="ignore"):
            return self.function.evaluate(*values)


@op("reduce")
class Reduce(Op):
    """Fold `axes` with a monoid; a folded axis keeps length 1.

    r = reduce{sum, axes=(1,)}(x)        x: f32[16,64] -> r: f32[16,1]
    The result has x's dtype, or i64 where the monoid is indexed (argmax, argmin).
    A `finite` one may take 0 * x to be 0 whatever x is: ATen's attention leaves out blocks of keys.
    """

    monoid: Monoid
    axes: tuple[int, ...]
    finite: bool = False

    def infer(self, x: TensorType) -> TensorType:
        inside = all(0 <= a < x.rank for a in self.axes)
        require(inside, f"axes {self.axes} of a rank-{x.rank} tensor")
        shape = tuple(1 if i in self.axes else n for i, n in enumerate(x.shape))
        return TensorType(i64 if self.monoid.indexed else x.dtype, shape)

    def evaluate(self, x: Any) -> Any:
        with np.errstate(all="ignore"):
            wide = x.astype(np.float32) if x.dtype.kind in "fV" and x.dtype.itemsize < 4 else x
            out = self.monoid.reference(wide, self.axes)
            return out if self.monoid.indexed else out.astype(x.dtype)


@op("view")
class View(Op):
    """out[i0, i1, ...] = x[index] where `valid` holds, `fill` elsewhere.

    One index map expresses permute, expand, slice, flip, reshape, pad, unfold and their
    compositions.
    v = view{[16,64] -> (i1, i0)}(x)                        # transpose of x: f32[64,16]
    v = view{[18] -> (i0 - 1) if i0 >= 1 and ... else 0}(x) # pad
    """

    shape: Shape
    index: tuple[Node, ...]
    valid: Node | None = None
    fill: int | float | bool = 0

    def identity(self) -> tuple[object, ...]:
        return self.shape, self.index, self.valid, repr(self.fill)  # -0.0 is not 0.0, nan is nan

    __eq__ = Constant.__eq__
    __hash__ = Constant.__hash__

    def infer(self, x: TensorType) -> TensorType:
        given = len(self.index)
        require(given == x.rank, f"view with {given} indices of a rank-{x.rank} tensor")
        return TensorType(x.dtype, self.shape)

    def evaluate(self, x: Any) -> Any:
        if 0 in self.shape:  # a simplified index may name position 0 of an empty axis
            return np.empty(self.shape, x.dtype)
        env = _grid(self.shape)
        where = [np.asarray(evaluate_term(i, env)) for i in self.index]
        if self.valid is None:
            return np.broadcast_to(x[tuple(where)], self.shape)
        valid = np.asarray(evaluate_term(self.valid, env))
        if x.size == 0:
            return np.full(self.shape, self.fill, x.dtype)
        where = [np.clip(i, 0, n - 1) for i, n in zip(where, x.shape, strict=True)]
        out = np.where(valid, x[tuple(where)], np.asarray(self.fill, x.dtype))
        return np.broadcast_to(out, self.shape)


@op("index")
class Index(Op):
    """A tensor computed from its own coordinates: out[i0, ...] = term (i64 or bool)."""

    shape: Shape
    term: Node

    def infer(self) -> TensorType:
        return TensorType(self.term.type.dtype, self.shape)

    def evaluate(self) -> Any:
        return np.broadcast_to(evaluate_term(self.term, _grid(self.shape)), self.shape)


@op("gather")
class Gather(Op):
    """out[p] = x[index(p)], where tensors hold the indices along `axes`.

    g = gather{axes=(0,), rest=(1,)}(x, rows)            g[n, d] = x[rows[n, d], d]
    Operands: x, then for each axis in `axes` an i64 tensor of the output's shape. `rest` names an
    output axis for each other axis of x, which is read at that coordinate. With `wraps`, a negative
    index counts from the end. IndexOutOfRange for an index outside x.
    """

    axes: tuple[int, ...]
    rest: tuple[int, ...] = ()
    wraps: bool = False

    def infer(self, x: TensorType, *rows: TensorType) -> TensorType:
        given = len(rows)
        require(given == len(self.axes), f"gather of axes {self.axes} with {given} index tensors")
        require(len(self.axes) + len(self.rest) == x.rank, f"gather reads {x.rank} axes")
        require(all(r.dtype is i64 for r in rows), "gather needs i64 indices")
        require(len({r.shape for r in rows}) == 1, "gather needs index tensors of one shape")
        return TensorType(x.dtype, rows[0].shape)

    def evaluate(self, x: Any, *rows: Any) -> Any:
        coordinates = np.indices(rows[0].shape, dtype=np.int64, sparse=True)
        indices: list[Any] = [None] * x.ndim
        for a, r in zip(self.axes, rows, strict=True):
            row = np.where(r < 0, r + x.shape[a], r) if self.wraps else r
            indices[a] = checked_index.evaluate(row, x.shape[a])
        left = iter(self.rest)
        indices = [coordinates[next(left)] if i is None else i for i in indices]
        return np.broadcast_to(x[tuple(indices)], rows[0].shape)


@op("scan")
class Scan(Op):
    """Running fold along one axis: out[..., i, ...] folds elements 0 to i, both included.

    `result` counts what the monoid projects to: the position, then the value of an indexed one.
    Scans of one tensor that differ in it alone are one kernel.
    """

    monoid: Monoid
    axis: int
    result: int = 0

    def infer(self, x: TensorType) -> TensorType:
        require(0 <= self.axis < x.rank, f"scan along axis {self.axis} of a rank-{x.rank} tensor")
        return TensorType(i64 if self.monoid.indexed and not self.result else x.dtype, x.shape)

    def evaluate(self, x: Any) -> Any:
        return self.monoid.scan(x, self.axis)[self.result]  # type: ignore[misc]


def _put_last(out: Any, place: Any, x: Any) -> None:
    """In order along each axis, where NumPy's own assignment promises none."""
    order = np.full(out.shape, -1)
    np.maximum.at(order, place, np.arange(x.size).reshape(x.shape))
    out[...] = np.where(order < 0, out, x.reshape(-1)[np.maximum(order, 0)])


# How each monoid folds x into places of `out`.
SCATTERED: dict[str, Any] = {
    "sum": np.add.at,
    "product": np.multiply.at,
    "max": np.maximum.at,
    "min": np.minimum.at,
    "last": _put_last,
}


@op("scatter")
class Scatter(Op):
    """Fold each value into the element of a base that its index selects.

    out = base, then out[.., index[p], ..] = combine(out[.., index[p], ..], x[p]) for p in order
    Operands: base, index (i64) and values x; index and x have one shape. `axis` is the indexed
    axis; along every other axis all three have one length. IndexOutOfRange for an index outside it.
    An index may be `beyond` it, by less than so much: that value is left out.
    """

    monoid: Monoid
    axis: int
    beyond: int = 0

    def infer(self, base: TensorType, index: TensorType, x: TensorType) -> TensorType:
        fits = base.rank == index.rank and index.shape == x.shape and self.axis < base.rank
        sizes = zip(base.shape, x.shape, strict=False)
        fits = fits and not any(differ(a, b) for d, (a, b) in enumerate(sizes) if d != self.axis)
        require(fits, f"scatter of {x} at {index} along axis {self.axis} of {base}")
        require(index.dtype is i64 and base.dtype == x.dtype, f"scatter of {x} at {index}")
        require(self.beyond >= 0, f"scatter to {self.beyond} rows beyond {base}")
        return TensorType(base.dtype, base.shape)

    def evaluate(self, base: Any, index: Any, x: Any) -> Any:
        rows, place = base.shape[self.axis], list(np.indices(index.shape, sparse=True))
        place[self.axis] = checked_index.evaluate(index, rows + self.beyond)
        after = [(0, self.beyond * (d == self.axis)) for d in range(base.ndim)]
        out = np.pad(base, after) if self.beyond else base.copy()
        SCATTERED[self.monoid.name](out, tuple(place), x)
        return out.take(np.arange(rows), self.axis) if self.beyond else out


@op("sort")
class Sort(Op):
    """The key, or a payload, in ascending order of the keys along an axis; equals stay in order.

    s = sort{axis=1}(key)                               key: f32[16,64] -> s: f32[16,64]
    p = sort{axis=1, result=1}(key, index{[16,64] -> i1})   # i64[16,64]: where each one was
    NaN is the greatest, and equal to itself; -0.0 equals 0.0. `result` counts operands, which have
    one shape. Sorts that differ in it alone are computed together. With `first`, only so many
    elements from the beginning on are kept.
    """

    axis: int
    descending: bool = False
    result: int = 0
    first: int = 0

    def infer(self, key: TensorType, *payload: TensorType) -> TensorType:
        fits = 0 <= self.axis < key.rank and all(t.shape == key.shape for t in payload)
        told = " and ".join(map(str, (key, *payload)))
        require(fits, f"sort of {told} along axis {self.axis}")
        require(0 <= self.result <= len(payload), f"result {self.result} of a sort of {told}")
        require(self.first >= 0, f"sort of {told} keeps {self.first} elements")
        shape = (self.first or n if a == self.axis else n for a, n in enumerate(key.shape))
        return TensorType((key, *payload)[self.result].dtype, tuple(shape))

    def evaluate(self, key: Any, *payload: Any) -> Any:
        wide = key.astype(np.float32) if key.dtype.kind == "V" else key
        if self.descending:  # from the end, so that of equals the first comes last
            order = np.argsort(np.flip(wide, self.axis), self.axis, kind="stable")
            order = key.shape[self.axis] - 1 - np.flip(order, self.axis)
        else:
            order = np.argsort(wide, self.axis, kind="stable")
        out = np.take_along_axis((key, *payload)[self.result], order, self.axis)
        return out.take(np.arange(self.first), self.axis) if self.first else out


@op("select")
class Select(Op):
    """Where the element of a rank is along an axis, in ascending order of the keys.

    p = select{axis=1}(key, rank)               # key: f32[16,64], rank: i64[16,1] -> i64[16,1]
    The order is that of a sort, whose first element has rank 0; of its equals it is the first in
    the row. A rank before the first is the first one, beyond the last the last one.
    """

    axis: int

    def infer(self, key: TensorType, rank: TensorType) -> TensorType:
        require(0 <= self.axis < key.rank, f"selection along axis {self.axis} of {key}")
        shape = tuple(1 if a == self.axis else n for a, n in enumerate(key.shape))
        fits = rank.dtype is i64 and rank.shape == shape and key.shape[self.axis] != 0
        require(fits, f"selection of the rank {rank} from {key} along axis {self.axis}")
        return TensorType(i64, shape)

    def evaluate(self, key: Any, rank: Any) -> Any:
        wide = key.astype(np.float32) if key.dtype.kind == "V" else key
        at = np.clip(rank, 0, wide.shape[self.axis] - 1)
        value = np.take_along_axis(np.sort(wide, self.axis), at, self.axis)
        same = (wide == value) | ((wide != wide) & (value != value))
        return np.argmax(same, self.axis, keepdims=True).astype(np.int64)


ALONE = Scan | Scatter | Runs | RunOf | Sort | Select  # each has nests of its own


@dataclass(frozen=True)
class LibraryCall(Op):
    """A call of the ATen op `target`, as in aten.sort.default."""

    target: str
    arguments: Arguments
    results: tuple[TensorType, ...]

    def infer(self, *types: TensorType) -> Any:
        return self.results[0] if len(self.results) == 1 else TupleType(self.results)


@op("extern")
class Extern(LibraryCall):
    """An ATen op that torch runs; `reason` says why weft generates no code for it.

    The last operand of a random op is the random op before it: draws stay in order.
    """

    reason: str = field(default="", compare=False)


@op("part")
class Part(Op):
    """One result of a call or of a recurrence, which have several."""

    number: int

    def infer(self, whole: TupleType) -> TensorType:
        inside = 0 <= self.number < len(whole.parts)
        require(inside, f"part {self.number} of a call with {len(whole.parts)} results")
        return whole.parts[self.number]

    def evaluate(self, whole: Any) -> Any:
        return whole[self.number]


def sources(node: Node) -> set[Node]:
    """The operands of a node, each view replaced by the tensors that it reads."""
    return set[Node]().union(*(sources(a) if isinstance(a.op, View) else {a} for a in node.args))


def is_expansion(node: Node) -> bool:
    """Whether a map has more elements than its sources together, as a contraction's product has."""
    if not isinstance(node.op, Map):
        return False
    return hint(node.type.size) > sum(hint(s.type.size) for s in sources(node))
