"""Small graphs that structural rules fire on: views, reductions, coordinates, any function."""

from __future__ import annotations

from collections.abc import Iterator

from weft.core.node import Node, make
from weft.core.types import DType, TensorType, bf16, boolean, f16, f32, f64, i8, i32, i64, u8
from weft.scalar.index import TRUE
from weft.scalar.monoid import ALL, ANY, MAX, MIN, MONOIDS, PRODUCT, SUM
from weft.scalar.ops import CASTS, FUNCTIONS, apply, constant
from weft.scalar.ops import add as add_function
from weft.scalar.ops import eq as eq_function
from weft.scalar.ops import lt as lt_function
from weft.tensor import build
from weft.tensor.build import Tensor
from weft.tensor.ops import Gather, Index, Input, Map, Reduce, Scan, View, position

relu = FUNCTIONS["relu"]
NUMBERS = (f32, f16, bf16, f64, i64, i32, i8, u8)


def tensor(label: str, dtype: DType, *shape: int) -> Tensor:
    return Tensor(make(Input(label, TensorType(dtype, shape))))


def samples() -> Iterator[tuple[Node, ...]]:
    for family in (_views, _masks, _maps, _reductions, _casts, _coordinates, _scaled):
        yield from family()


def _node(op: object, *args: Tensor) -> Tensor:
    return Tensor(make(op, *(a.node for a in args)))  # type: ignore[arg-type]


def _views() -> Iterator[tuple[Node, ...]]:
    i, j, k = position(0), position(1), position(2)
    for dtype in NUMBERS:
        x = tensor("x", dtype, 4, 6)
        yield (_node(View((4, 6), (i, j)), x).node,)
        yield (_node(View((4, 6), (apply("floormod", i, constant(4)), j)), x).node,)
        yield (_node(View((4, 6), (j, i)), _node(View((6, 4), (j, i)), x)).node,)
        wide = _node(View((4, 6, 5), (i, j)), x)
        yield (_node(View((5, 4), (j, constant(2), i)), wide).node,)
        flat = apply("add", apply("multiply", i, constant(6)), j)
        rows = _node(View((24,), _unravelled(position(0), 6)), x)
        yield (_node(View((4, 6), (flat,)), rows).node,)
        yield (_node(View((2, 3, 4), (_sum(i, j, k),)), rows).node,)


def _sum(i: Node, j: Node, k: Node) -> Node:
    left = apply("multiply", i, constant(12))
    return apply("add", apply("add", left, apply("multiply", j, constant(4))), k)


def _unravelled(flat: Node, n: int) -> tuple[Node, Node]:
    return apply("floordiv", flat, constant(n)), apply("floormod", flat, constant(n))


def _masks() -> Iterator[tuple[Node, ...]]:
    for dtype in NUMBERS:
        x = tensor("x", dtype, 4, 6)
        zero, one = _padded(x, 1, 0), _padded(x, 2, 1)
        yield (_padded(zero, 1, 0).node,)
        yield (_padded(zero, 1, 1).node,)  # other fill: stays two views
        yield (_node(View((4, 6), (_shift(0, 1), _shift(1, 1))), zero).node,)
        yield (relu(one).node if dtype.kind != "bool" else one.node,)
        yield ((zero + _padded(x * 2, 1, 0)).node,)
        value = build.literal(1, dtype)
        yield (_node(View((5,), (), _below(3), 1), value).node,)
        yield (_node(View((5,), (), _below(0), 1), value).node,)
        yield (_node(View((4, 6), (position(0), position(1)), TRUE, 3), x).node,)


def _shift(axis: int, by: int) -> Node:
    return apply("add", position(axis), constant(by))


def _below(limit: int) -> Node:
    return apply("lt", position(0), constant(limit))


def _padded(x: Tensor, by: int, fill: int) -> Tensor:
    return build.pad(x, [(by, by)] * x.rank, fill)


def _maps() -> Iterator[tuple[Node, ...]]:
    for dtype in NUMBERS:
        x, y = tensor("x", dtype, 4, 6), tensor("y", dtype, 4, 6)
        row, column, one = tensor("r", dtype, 6), tensor("c", dtype, 4, 1), tensor("o", dtype)
        yield ((build.transpose(x) * build.transpose(y)).node,)
        yield ((build.reshape(x, (24,)) + 3).node,)
        yield (_node(Map(add_function), x, build.full((4, 6), 2, dtype)).node,)
        spread = _node(View((4, 6), ()), one)
        yield (_node(Map(add_function), x, spread).node,)
        yield (_node(Map(add_function), spread, spread).node,)
        wide = build.broadcast(row, (4, 6))
        yield ((wide * build.broadcast(row + 1, (4, 6))).node,)
        tall = build.broadcast(column, (4, 6))
        three = build.broadcast_in(row, (3, 4, 6), (2,))
        yield ((build.broadcast_in(column, (3, 4, 6), (1, 2)) - three).node,)
        yield ((tall + tall * 2).node,)
        yield (_node(Map(add_function), build.literal(2, dtype), build.literal(3, dtype)).node,)


def _casts() -> Iterator[tuple[Node, ...]]:
    types = (*NUMBERS, boolean)
    for source in types:
        x = tensor("x", source, 9)
        yield (_node(Map(CASTS[source]), x).node,)
        for inner in types:
            for outer in types:
                yield (_node(Map(CASTS[outer]), _node(Map(CASTS[inner]), x)).node,)


def _coordinates() -> Iterator[tuple[Node, ...]]:
    i, j = (_node(Index((4, 6), position(a))) for a in (0, 1))
    yield ((i * 2 + j).node,)
    yield ((i <= j).node,)
    yield (_node(Map(eq_function), i, build.literal(3, i64)).node,)
    yield (_node(View((6, 4), (position(1), position(0))), i).node,)
    yield (_node(View((9,), (position(0), constant(0)), _below(4), 7), i).node,)
    yield (_node(Index((4, 1), apply("multiply", position(1), constant(5)))).node,)
    yield (_node(Index((4, 6), apply("floordiv", position(0), constant(2)))).node,)
    yield (_node(Index((4, 6), apply("floormod", position(0), constant(8)))).node,)
    yield ((_node(Map(lt_function), i, build.broadcast(tensor("n", i64, 6), (4, 6)))).node,)


def _within(x: Tensor, low: int, high: int) -> Tensor:
    return build.map_(FUNCTIONS["minimum"], build.map_(FUNCTIONS["maximum"], x, low), high)


def _scaled() -> Iterator[tuple[Node, ...]]:
    """Coordinates that are computed as floats, and what is read there."""
    for dtype in (f64, f32, f16, bf16):
        for extent in (2, 3, 7, 40, 300):
            x, at = tensor("x", dtype, 4, extent), _node(Index((4, extent), position(1)))
            for slope in (0.5, 0.25, 2 / 3, 0.7, 1.0, 0.1, 0.013, 2.5):
                for offset in (0.0, 0.5, -0.5):
                    line = (build.cast(at, dtype) + 0.5) * slope + offset
                    yield (build.cast(line, i64).node,)
                    index = _within(build.cast(line, i64), 0, extent - 1)
                    yield (_node(Gather((1,), (0,)), x, index).node,)
                    yield (build.cast(line * line, i64).node,)  # no line
    rows, thirds = tensor("r", f32, 4, 3), apply("floordiv", _shift(1, 4), constant(3))
    yield (_node(Gather((0,), (1,)), rows, _node(Index((5, 3), thirds))).node,)
    yield (_node(Gather((1, 0), ()), rows, *(_node(Index((3,), position(0))),) * 2).node,)
    back = _node(Index((5, 3), _shift(0, -2)))
    yield (_node(Gather((0,), (1,), True), rows, back).node,)


def _reductions() -> Iterator[tuple[Node, ...]]:
    for dtype in NUMBERS:
        x = tensor("x", dtype, 4, 6, 1)
        row = tensor("r", dtype, 6)
        names = ("sum", "product", "max", "min", "argmax", "argmin")
        for monoid in (MONOIDS[n] for n in names):
            if not monoid.indexed:
                yield (_node(Reduce(monoid, ()), x).node,)
                yield (_node(Reduce(monoid, (0,)), tensor("e", dtype, 0, 3)).node,)
            yield (_node(Reduce(monoid, (2,)), x).node,)
            yield (_node(Reduce(monoid, (1, 2)), x).node,)
            inner = _node(Reduce(monoid, (1,)), x)
            yield (_node(Reduce(monoid, (0,)), inner).node,)
            permuted = build.permute(x, (1, 2, 0))
            yield (_node(Reduce(monoid, (0,)), permuted).node,)
            yield (_node(Reduce(monoid, (0, 2)), permuted).node,)
            yield (_node(Reduce(monoid, (1,)), build.squeeze(x, (2,))).node,)
            yield (_node(Reduce(monoid, (0, 1)), build.broadcast(row, (4, 6))).node,)
            yield (_node(Reduce(monoid, (0,)), build.broadcast(row, (4, 6))).node,)
            padded = build.broadcast_in(_padded(row, 1, 1), (5, 8), (1,))
            yield (_node(Reduce(monoid, (0,)), padded).node,)
        yield (_node(Reduce(SUM, (0,)), x * 3).node,)
        yield (_node(Reduce(SUM, (0, 1)), x * 0.25 if dtype.is_float else x).node,)
        yield (_node(Reduce(SUM, (0, 1)), -x).node,)
        yield (_node(Reduce(MAX, (0, 1)), -x).node,)
        for monoid in (SUM, PRODUCT, MAX, MIN):
            yield (_node(Scan(monoid, 2), x).node,)
    flags = tensor("f", boolean, 4, 6)
    for monoid in (ANY, ALL):
        yield (_node(Reduce(monoid, (0,)), _node(Reduce(monoid, (1,)), flags)).node,)
        yield (_node(Reduce(monoid, (0,)), build.broadcast(tensor("g", boolean, 6), (4, 6))).node,)
