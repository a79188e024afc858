"""nest_sums: factors that groups of terms share leave the sums over those groups."""

from __future__ import annotations

import numpy as np
import pytest

from tests.rules.samples import tensor
from weft.core.node import Graph, postorder
from weft.core.types import bf16, f32, i8
from weft.interpret.tensors import evaluate
from weft.tensor import build
from weft.tensor.build import Tensor
from weft.tensor.inner_sums import nest_sums
from weft.tensor.ops import Input, Reduce
from weft.tensor.rules import simplify
from weft.tensor.verify import verify


def product(rows: int, group: int, dtype=f32, *, kept: bool = False) -> Graph:
    """x[rows, 96] by codes[5, 96] with a scale for each group of terms."""
    x, codes = tensor("x", f32, rows, 96), tensor("codes", i8, 5, 96 // group, group)
    scale = tensor("scale", f32, 5, 96 // group)
    each = build.broadcast(build.unsqueeze(scale, 2), (5, 96 // group, group))
    w = build.cast(codes, f32) * each
    w = build.cast(build.cast(w, dtype), f32) if dtype is not f32 else w
    y = build.matmul(x, build.transpose(build.reshape(w, (5, 96))), finite=kept)
    inputs = tuple(n for n in postorder(y.node) if isinstance(n.op, Input))
    return simplify(Graph("tensor", "main", inputs, (y.node,)))


def sums(graph: Graph) -> list[tuple[int, ...]]:
    return [n.args[0].type.shape for n in graph.nodes() if isinstance(n.op, Reduce)]


@pytest.mark.parametrize("rows, group", [(1, 32), (3, 8), (2, 48)])
def test_a_scale_leaves_the_sum_of_its_group(rows: int, group: int) -> None:
    before = product(rows, group)
    after = nest_sums(before)
    verify(after)
    groups = 96 // group
    assert sums(after) == [(rows, 5, groups, group), (rows, 5, groups, 1)]
    draw = np.random.default_rng(0)
    values = [
        (draw.standard_normal(n.type.shape) * 9).astype(n.type.dtype.numpy) for n in before.inputs
    ]
    want, got = (evaluate(g, values, widen=True)[0] for g in (before, after))
    np.testing.assert_allclose(got, want, rtol=1e-12)


def test_a_rounding_of_the_product_goes() -> None:
    after = nest_sums(product(1, 32, bf16))
    assert len(sums(after)) == 2
    assert not any(n.type.dtype is bf16 for n in after.nodes())


@pytest.mark.parametrize(
    "graph",
    [product(12, 32), product(1, 1), product(1, 96), product(1, 32, kept=True)],
    ids=["many rows", "groups of one", "one group", "a finite sum"],
)
def test_others_stay(graph: Graph) -> None:
    assert nest_sums(graph) is graph


def test_nothing_without_groups() -> None:
    x, w = tensor("x", f32, 1, 96), tensor("w", f32, 96, 5)
    y = build.matmul(x, Tensor(w.node))
    graph = Graph("tensor", "main", (x.node, w.node), (y.node,))
    assert nest_sums(graph) is graph
