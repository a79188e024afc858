"""simplify on whole graphs: values kept, origins kept, a fixpoint, and quick."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rules.samples import relu, samples, tensor
from tests.rules.terms import assert_rewritten, rounds
from tests.work import calls
from weft.core.node import Graph, postorder
from weft.core.rules import RuleSet
from weft.core.types import f32, i64
from weft.interpret.tensors import evaluate
from weft.scalar import ops as functions
from weft.scalar.monoid import MAX, PRODUCT, SUM
from weft.tensor import build
from weft.tensor.build import Tensor
from weft.tensor.ops import Input, Map, Reduce, Scalar, Scan, View
from weft.tensor.rules import RULES, TENSORS, simplify
from weft.tensor.verify import verify

PARTS = 8  # of the samples
X, Y = tensor("x", f32, 16, 64), tensor("y", f32, 16, 64)


def graph(*outputs: Tensor) -> Graph:
    nodes = tuple(t.node for t in outputs)
    inputs = tuple(n for n in postorder(*nodes) if isinstance(n.op, Input))
    return Graph("tensor", "main", inputs, nodes)


def ops(g: Graph) -> Counter[str]:
    """How many of each op and function the graph has."""
    return Counter(n.op.function.name if isinstance(n.op, Map) else n.op.name for n in g.nodes())


@pytest.mark.parametrize("part", range(PARTS))
def test_every_sample_keeps_its_values_and_is_a_fixpoint(part: int) -> None:
    for seed, outputs in [*enumerate(samples())][part::PARTS]:
        before = graph(*map(Tensor, outputs))
        after = simplify(before)
        verify(after)
        assert_rewritten(before, after, seed, rounds=True)
        trace: Counter[str] = Counter()
        simplify(after, trace)
        assert not trace, f"{outputs} is simplified again by {trace}"


@pytest.mark.parametrize("part", range(PARTS))
def test_exact_rules_alone_keep_every_bit(part: int) -> None:
    exact = RuleSet(TENSORS, [rule for rule in RULES.rules if not rounds(rule)])
    for seed, outputs in [*enumerate(samples())][part::PARTS]:
        before = graph(*map(Tensor, outputs))
        after = exact.rewrite(before)
        monoids = {n.op.monoid for n in before.nodes() if isinstance(n.op, Reduce | Scan)}
        in_any_order = monoids.isdisjoint((SUM, PRODUCT))  # else in NumPy's, of each shape
        assert_rewritten(before, after, seed, rounds=not in_any_order)


def test_identities() -> None:
    assert simplify(graph((X * 1 - 0) / 1)).outputs == (X.node,)
    assert simplify(graph(build.transpose(build.transpose(X)))).outputs == (X.node,)
    assert simplify(graph(relu(relu(X)))).outputs == (relu(X).node,)


def test_zero_is_not_dropped_from_float_sums() -> None:
    assert ops(simplify(graph(X + 0.0)))["add"] == 1  # -0.0 + 0.0 is 0.0


def test_a_chain_of_reshapes_is_one_view() -> None:
    heads = build.permute(build.reshape(X, (2, 8, 4, 16)), (0, 2, 1, 3))
    back = build.reshape(build.permute(heads, (0, 2, 1, 3)), (16, 64))
    assert simplify(graph(back)).outputs == (X.node,)
    assert ops(simplify(graph(build.reshape(heads, (64, 16)))))["view"] == 1


def test_constants_fold_and_stay_scalars() -> None:
    ones = build.full((16, 64), 1.0, f32)
    after = simplify(graph(X * (ones + ones * 2)))
    assert ops(after) == {"input": 1, "scalar": 1, "multiply": 1}
    (three,) = (n.op.value for n in after.nodes() if isinstance(n.op, Scalar))
    assert three == 3.0


def test_maps_are_computed_before_the_broadcast() -> None:
    row = tensor("r", f32, 64)
    after = simplify(graph(functions.exp(build.broadcast(row, (16, 64)) * 2)))
    (out,) = after.outputs
    assert isinstance(out.op, View) and out.args[0].type.shape == (64,)


def test_reductions_merge_through_squeezes() -> None:
    twice = build.total(build.total(X, (1,)), (0,))
    assert ops(simplify(graph(twice)))["reduce"] == 1
    assert ops(simplify(graph(build.reduce(MAX, build.broadcast(X, (5, 16, 64)), (0,))))) == {
        "input": 1
    }


def test_a_reduction_of_some_columns_makes_no_others() -> None:
    g = simplify(graph(build.total(build.slice_(X, 1, 0, 8), (0,))))
    assert [n.args[0].type.shape for n in g.nodes() if isinstance(n.op, Reduce)] == [(16, 8)]


def test_a_causal_mask_is_one_index_term() -> None:
    i, j = build.iota((8, 8), 0), build.iota((8, 8), 1)
    after = simplify(graph((j <= i) & (i < 100)))
    assert ops(after) == {"index": 1}


def test_origins_and_names_follow_the_nodes() -> None:
    before = graph(X * 2 + X * 3)
    (out,) = before.outputs
    before.origin[out], before.names[out] = "model.py line 7", "y"
    after = simplify(before)
    assert after.origin[after.outputs[0]] == "model.py line 7"
    assert after.names[after.outputs[0]] == "y"


def test_five_hundred_nodes_are_quick() -> None:
    z = X
    for _ in range(30):
        z = build.softmax(build.transpose(build.reshape(build.transpose(z), (16, 64))), 1) + 0.5
        z = build.reshape(z * 1 + build.literal(0.25, f32), (16, 64))
    before = graph(z)
    assert len(list(before.nodes())) > 300
    assert calls(lambda: simplify(before)) < 200_000


@st.composite
def programs(draw: Any) -> Tensor:
    """A random program of maps, views and folds over two inputs."""
    dtype = draw(st.sampled_from([f32, i64]))
    shape = (draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([1, 3, 6])))
    pool = [tensor("x", dtype, *shape), tensor("y", dtype, *shape), tensor("r", dtype, shape[1])]
    for _ in range(draw(st.integers(1, 8))):
        pool.append(draw(_grown(pool)))
    return pool[-1]


@st.composite
def _grown(draw: Any, pool: list[Tensor]) -> Tensor:
    x = draw(st.sampled_from(pool))
    kind = draw(st.sampled_from(["map", "number", "view", "view", "fold", "where", "unary"]))
    if kind in ("map", "where"):
        fits = [t for t in pool if t.shape == x.shape]
        y = draw(st.sampled_from(fits))
        if kind == "where":
            return functions.where(x < y, x, draw(st.sampled_from(fits)))
        return draw(st.sampled_from([x + y, x - y, x * y, functions.maximum(x, y)]))
    if kind == "number":
        n = draw(st.sampled_from([0, 1, -1, 2, 3]))
        return draw(st.sampled_from([x + n, x - n, x * n, functions.minimum(x, n)]))
    if kind == "unary":
        return draw(st.sampled_from([-x, abs(x), relu(x), x * x]))
    if kind == "fold":
        axes = [a for a in range(x.rank) if draw(st.booleans())]
        monoid = draw(st.sampled_from([MAX, SUM]))
        return build.reduce(monoid, x, axes, keep=draw(st.booleans()))
    return draw(_viewed(x))


@st.composite
def _viewed(draw: Any, x: Tensor) -> Tensor:
    kind = draw(st.sampled_from(["permute", "flat", "grow", "pad", "slice", "flip", "unsqueeze"]))
    if x.rank == 0:
        return build.full((2,), 1, x.dtype) * x
    axis = draw(st.integers(0, x.rank - 1))
    if kind == "permute":
        return build.permute(x, draw(st.permutations(range(x.rank))))
    if kind == "flat":
        return build.reshape(x, (-1, draw(st.sampled_from([1, x.shape[-1]]))))
    if kind == "grow" and x.rank < 4:
        return build.broadcast(x, (draw(st.sampled_from([1, 2])), *x.shape))
    if kind == "pad":
        pads = [(draw(st.integers(0, 1)), draw(st.integers(-1, 1))) for _ in x.shape]
        pads = [(a, max(b, 1 - n)) for (a, b), n in zip(pads, x.shape, strict=True)]
        return build.pad(x, pads, draw(st.sampled_from([0, 1])))
    if kind == "slice":
        return build.slice_(x, axis, 0, (x.shape[axis] + 1) // 2, 1)
    return build.flip(x, (axis,)) if kind == "flip" else build.unsqueeze(x, axis)


@settings(max_examples=250)
@given(programs(), st.integers(0, 1000))
def test_random_programs_keep_their_values(program: Tensor, seed: int) -> None:
    before = graph(program)
    verify(before)
    after = simplify(before)
    verify(after)
    random = np.random.default_rng(seed)
    inputs = [
        random.integers(-3, 4, n.type.shape).astype(n.type.dtype.numpy) for n in before.inputs
    ]
    np.testing.assert_array_equal(evaluate(after, inputs)[0], evaluate(before, inputs)[0])
    trace: Counter[str] = Counter()
    simplify(after, trace)
    assert not trace
