"""Every row of gradients in float64 beside finite differences, of first and of second order.

A gradient graph is verified as it is made and as it is simplified, and both give the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from weft.core.errors import UnsupportedOpError
from weft.core.node import Graph, Node, make
from weft.core.types import TensorType, bf16, f32, f64, i64
from weft.interpret.tensors import evaluate
from weft.scalar import ops as s
from weft.scalar.monoid import LAST, LAST_MAX, LOGSUMEXP, MONOIDS, PRODUCT
from weft.scalar.ops import CASTS, FUNCTIONS, Function, apply, constant
from weft.tensor import build as b
from weft.tensor.build import Tensor, affine, position, view
from weft.tensor.grad import gradients
from weft.tensor.marks import plain
from weft.tensor.ops import Gather, Input, Scatter, Sort
from weft.tensor.rules import simplify
from weft.tensor.slopes import FLAT
from weft.tensor.verify import verify

Array = Any
STEP, DIRECTIONS = 1e-5, 3


def given(name: str, array: Array) -> Tensor:
    dtype = i64 if array.dtype.kind == "i" else f64
    return Tensor(make(Input(name, TensorType(dtype, array.shape))))


@dataclass
class Check:
    """Gradients of f(*xs, *more) by xs, each summed with random weights before the next order."""

    f: Callable[..., Tensor]
    xs: Sequence[Array]
    more: Sequence[Array] = ()
    graphs: list[Graph] = field(default_factory=list[Graph])

    def run(self, orders: int = 2, tolerance: float = 1e-5) -> list[Graph]:
        xs = [given(f"x{i}", x) for i, x in enumerate(self.xs)]
        more = [given(f"n{i}", x) for i, x in enumerate(self.more)]
        level, arrays = self.f(*xs, *more), [*self.xs, *self.more]
        inputs = tuple(t.node for t in (*xs, *more))
        for order in range(orders):
            weights = np.random.default_rng(order).normal(size=level.shape)
            weight = given(f"w{order}", weights)
            inputs, arrays = (*inputs, weight.node), [*arrays, weights]
            loss = b.total(level * weight, range(level.rank))
            one = b.full((), 1, f64).node
            found = gradients((loss.node,), (one,), tuple(x.node for x in xs))
            self.compare(inputs, arrays, loss.node, found, tolerance)
            flat = [b.reshape(Tensor(g), (-1,)) for g in found]
            level = b.concat(flat, 0)
        return self.graphs

    def compare(
        self, inputs: tuple[Node, ...], arrays: list[Array], loss: Node, found: Any, most: float
    ) -> None:
        graph = Graph("tensor", "gradient", inputs, plain((loss, *found)))
        verify(graph)
        short = simplify(graph)
        verify(short)
        self.graphs.append(short)
        values = evaluate(graph, arrays)
        for value, again in zip(values, evaluate(short, arrays), strict=True):
            np.testing.assert_allclose(value, again, rtol=1e-9, atol=1e-9)
        alone, count = Graph("tensor", "loss", inputs, plain((loss,))), len(self.xs)
        for seed in range(DIRECTIONS):
            random = np.random.default_rng(100 + seed)
            way = [random.normal(size=x.shape) for x in self.xs]
            ends = [
                evaluate(
                    alone,
                    [x + sign * STEP * d for x, d in zip(arrays, way, strict=False)]
                    + arrays[count:],
                )[0]
                for sign in (1, -1)
            ]
            slope = (ends[0] - ends[1]) / (2 * STEP)
            told = sum((g * d).sum() for g, d in zip(values[1:], way, strict=True))
            assert abs(slope - told) <= most * max(1, abs(slope)), (slope, told)


RANDOM = np.random.default_rng(1)


def normal(*shape: int) -> Array:
    return RANDOM.normal(size=shape)


def below(n: int, *shape: int) -> Array:
    return RANDOM.integers(0, n, size=shape)


# --- scalar functions -----------------------------------------------------------------------------

DOMAINS = {
    **dict.fromkeys("log log2 log10 sqrt rsqrt reciprocal divide".split(), (0.3, 3)),
    "log1p": (-0.5, 3),
    "asin": (-0.8, 0.8),
    "acos": (-0.8, 0.8),
    "power": (0.3, 2),
    "lgamma": (-3.7, 6),
    "digamma": (0.3, 6),
    "ndtri": (0.1, 0.9),
    "erfinv": (-0.8, 0.8),
    **{f"{w}modified_bessel_k{n}": (0.3, 3) for w in ("", "scaled_") for n in (0, 1)},
    **dict.fromkeys("bessel_y0 bessel_y1".split(), (0.3, 3)),
    "fmod": (1.1, 2),
    "floormod": (1.1, 2),
}
ROUNDS = {*s.ROUNDS.values(), *CASTS.values()}
OTHERS = {*ROUNDS, s.where, *(FUNCTIONS[name] for name in (*s.PACKS, *s.DOTS))}
BY_LAST = {FUNCTIONS[name] for name in ("zeta", "gammainc", "gammaincc")}
NONE = {f for f in FUNCTIONS.values() if "polynomial" in f.name or f.name == "airy_ai"}  # torch's
KNOWN = FLAT | OTHERS | BY_LAST | NONE
SMOOTH = [f for f in FUNCTIONS.values() if f not in KNOWN]


@pytest.mark.parametrize("function", SMOOTH, ids=str)
def test_scalar_function(function: Function) -> None:
    low, high = DOMAINS.get(function.name, (-2, 2))
    xs = [RANDOM.uniform(low, high, size=7) for _ in range(function.arity)]
    Check(lambda *x: b.map_(function, *x), xs).run()


@pytest.mark.parametrize("function", sorted(BY_LAST, key=str), ids=str)
def test_function_of_a_number_and_a_tensor(function: Function) -> None:
    xs = [RANDOM.uniform(0.5, 3, size=7)]
    Check(lambda x: b.map_(function, 2.5, x), xs).run()
    with pytest.raises(UnsupportedOpError, match="first operand"):
        Check(lambda a, x: b.map_(function, a, x), xs * 2).run()


@pytest.mark.parametrize("function", sorted(NONE, key=str), ids=str)
def test_function_without_a_derivative(function: Function) -> None:
    xs = [RANDOM.uniform(0.5, 0.9, size=7) for _ in range(function.arity)]
    with pytest.raises(UnsupportedOpError, match="has no derivative"):
        Check(lambda *x: b.map_(function, *x), xs).run()


# --- primitives -----------------------------------------------------------------------------------


def div(by: int, axis: int) -> Node:
    return apply("floordiv", position(axis), constant(by))


def clamped(axis: int, by: int, most: int) -> Node:
    low = apply("maximum", affine({axis: 1}, -by), constant(0))
    return apply("minimum", low, constant(most))


def masked(x: Tensor, shape: tuple[int, ...], coefficients: dict[int, int], offset: int) -> Tensor:
    term = affine(coefficients, offset)
    return view(x * x, shape, (position(0), term), b.within(term, x.shape[1]))


X = normal(4, 5)
ZEROS = X * (np.abs(X) > 0.5)
# name -> function, and whether only a scatter can do it
VIEWS: dict[str, tuple[Callable[[Tensor], Tensor], Array, bool]] = {
    "permute": (lambda x: b.permute(x * x, (1, 0)), X, False),
    "reshape": (lambda x: b.reshape(x * x, (2, 10)), X, False),
    "reshape across": (lambda x: b.reshape(x * x, (8, 3)), normal(6, 4), False),
    "reshape, permute": (
        lambda x: b.reshape(b.permute(b.reshape(x * x, (2, 3, 4)), (2, 0, 1)), (8, 3)),
        normal(6, 4),
        False,
    ),
    "slice": (lambda x: b.slice_(x * x, 1, 1, 2, 2), X, False),
    "flip": (lambda x: b.flip(x * x, [0, 1]), X, False),
    "pad": (lambda x: b.pad(x * x, [(1, 2), (0, -1)], 3.0), X, False),
    "broadcast": (lambda x: b.broadcast_in(x * x, (4, 5, 3), (0, 1)), X, False),
    "unit axes": (lambda x: b.unsqueeze(b.squeeze(x * x, (1,)), 0), normal(4, 1), False),
    "windows": (lambda x: view(x * x, (4, 3, 3), (position(0), affine({1: 1, 2: 1}))), X, False),
    "windows, strided, dilated": (
        lambda x: view(x * x, (4, 4, 3), (position(0), affine({1: 2, 2: 3}))),
        normal(4, 14),
        False,
    ),
    "windows beyond the ends": (lambda x: masked(x, (4, 5, 3), {1: 1, 2: 1}, -1), X, False),
    "diagonal": (lambda x: view(x * x, (4,), (position(0), position(0))), X, False),
    "differences": (lambda x: view(x * x, (5, 4), (affine({0: 1, 1: -1}, 3),)), normal(8), False),
    "enlarged twice": (lambda x: view(x * x, (8, 10), (div(2, 0), div(2, 1))), X, False),
    "enlarged, an odd end": (lambda x: view(x * x, (7,), (div(2, 0),)), normal(4), False),
    "repeated": (
        lambda x: view(x * x, (4, 13), (position(0), apply("floormod", position(1), constant(5)))),
        X,
        False,
    ),
    "one place": (lambda x: view(x * x, (4, 3), (position(0), constant(2))), X, False),
    "enlarged by 8 / 5": (
        lambda x: view(
            x * x,
            (4, 8),
            (
                position(0),
                apply("floordiv", apply("multiply", position(1), constant(5)), constant(8)),
            ),
        ),
        X,
        True,
    ),
    "edges": (lambda x: view(x * x, (8, 9), (clamped(0, 2, 3), clamped(1, 2, 4))), X, True),
}


@pytest.mark.parametrize("name", VIEWS)
def test_view(name: str) -> None:
    f, x, scatters = VIEWS[name]
    first = Check(f, [x]).run()[0]
    assert scatters == any(isinstance(n.op, Scatter) for n in first.nodes())


@pytest.mark.parametrize("name", "sum max min product welford sumexp logsumexp".split())
@pytest.mark.parametrize("axes", [(0,), (0, 2)])
def test_reduce(name: str, axes: tuple[int, ...]) -> None:
    Check(lambda x: b.reduce(MONOIDS[name], x * 1.5, axes), [normal(3, 2, 4)]).run()


@pytest.mark.parametrize("name", "sum max min product logsumexp".split())
def test_scan(name: str) -> None:
    Check(lambda x: b.scan(MONOIDS[name], x, 1), [X]).run(tolerance=2e-5)


def test_running_maximum() -> None:
    Check(lambda x: b.scan(LAST_MAX, x, 1, 1), [X]).run()


@pytest.mark.parametrize("fold", [b.reduce, b.scan])
def test_products_with_zeros(fold: Callable[..., Tensor]) -> None:
    assert (ZEROS == 0).sum(1).max() > 1
    Check(lambda x: fold(PRODUCT, x, (1,) if fold is b.reduce else 1), [ZEROS]).run()


def test_logsumexp_of_minus_infinity() -> None:
    x = Tensor(make(Input("x", TensorType(f64, (3,)))))
    y = b.total(b.scan(LOGSUMEXP, x, 0) * b.cast(b.iota((3,), 0), f64), (0,))
    found = gradients((y.node,), (b.full((), 1, f64).node,), (x.node,))
    with np.errstate(all="ignore"):
        g = evaluate(Graph("tensor", "g", (x.node,), found), [np.array([-np.inf, 0.0, 1.0])])[0]
    p = 1 / (1 + np.e)  # torch gives the same
    np.testing.assert_allclose(g, [0, 1 + 2 * p, 2 * (1 - p)])


GATHERS = {
    "rows": ((0,), (1,), X, [np.broadcast_to(below(4, 6, 1), (6, 5)).copy()]),
    "rows of several axes": ((0,), (2,), X, [below(4, 2, 3, 5)]),
    "from the end": ((1,), (0,), X, [below(10, 4, 6) - 5]),
    "a part": ((1,), (0,), X, [below(5, 3, 6)]),
    "one of each row": ((1,), (0,), X, [below(5, 4, 1)]),
    "places": ((0, 1), (), X, [below(4, 7), below(5, 7)]),
    "places, lines": ((0, 2), (1,), normal(3, 4, 5), [below(3, 7, 4), below(5, 7, 4)]),
    "places, a part": ((0, 2), (1,), normal(3, 4, 5), [below(3, 7, 2), below(5, 7, 2)]),
}


@pytest.mark.parametrize("name", GATHERS)
def test_gather(name: str) -> None:
    axes, rest, x, rows = GATHERS[name]

    def f(x: Tensor, *rows: Tensor) -> Tensor:
        return Tensor(make(Gather(axes, rest, True), (x * x).node, *(r.node for r in rows)))

    graphs = Check(f, [x], rows).run()
    scatters = any(isinstance(n.op, Scatter) for n in graphs[0].nodes())
    assert scatters == (name != "one of each row")


@pytest.mark.parametrize("name", "sum max min product last".split())
def test_scatter(name: str) -> None:
    def f(base: Tensor, x: Tensor, index: Tensor) -> Tensor:
        return b.scatter(MONOIDS.get(name, LAST), base * 1.5, 1, index, x * 0.5)

    Check(f, [X, normal(4, 7)], [below(5, 4, 7)]).run()


def test_scattered_products_with_zeros() -> None:
    """Mixed second derivatives of two zeros of one place are not 0."""

    def f(base: Tensor, x: Tensor, index: Tensor) -> Tensor:
        return b.scatter(PRODUCT, base * 1.5, 1, index, x * 0.5)

    x = normal(4, 9)
    Check(f, [ZEROS[:, :3], x * (np.abs(x) > 0.9)], [below(3, 4, 9)]).run()


def test_a_number_beside_a_tensor() -> None:
    Check(lambda x, y: x * y + y, [normal(3, 4), np.asarray(1.7)]).run()


def test_contractions_stay_contractions() -> None:
    """No gradient of a product of matrices is wider than the product, and none is scattered."""
    graphs = Check(lambda x, y: s.tanh(b.matmul(x, y)), [normal(4, 5), normal(5, 3)]).run(1)
    assert max(n.type.size for n in graphs[0].nodes()) == 4 * 5 * 3


def test_what_has_no_gradient() -> None:
    x = Tensor(make(Input("x", TensorType(f64, (4,)))))
    y = b.total(b.cast(b.cast(x, i64), f64) + s.floor(x), (0,))
    (g,) = gradients((y.node,), (b.full((), 1, f64).node,), (x.node,))
    assert evaluate(Graph("tensor", "g", (x.node,), (g,)), [normal(4)])[0].tolist() == [0] * 4


def test_roundings_round_a_gradient_too() -> None:
    x = Tensor(make(Input("x", TensorType(f32, (2,)))))
    y = b.total(s.ROUNDS[bf16](x) * np.pi, (0,))
    (g,) = gradients((y.node,), (b.full((), 1, f32).node,), (x.node,))
    found = evaluate(Graph("tensor", "g", (x.node,), (g,)), [np.ones(2, np.float32)])[0]
    assert found.tolist() == [3.140625, 3.140625]


def test_a_function_without_a_derivative_is_named() -> None:
    x = Tensor(make(Input("x", TensorType(bf16, (4,)))))
    pair = b.map_(s.pack_bf16, x, x)
    dot = b.total(b.map_(s.dot_bf16, pair, pair), (0,))
    with pytest.raises(UnsupportedOpError, match="dot_bf16 has no derivative at the tensor level"):
        gradients((dot.node,), (b.full((), 1, f32).node,), (x.node,))


# --- sorts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("descending", [False, True])
def test_sort(descending: bool) -> None:
    def both(x: Tensor, y: Tensor) -> Tensor:
        op = Sort(1, descending)
        keys, moved = (
            Tensor(make(replace(op, result=i), (x * x).node, (x * y).node)) for i in (0, 1)
        )
        first = Tensor(make(replace(op, first=2), x.node))
        return b.total(keys * moved * moved, (0, 1)) + b.total(first * first, (0, 1))

    Check(both, [normal(3, 5), normal(3, 5)]).run()
