"""Greedy choices beside the best ones: an integer program finds those of small graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import optimize  # type: ignore[import-untyped]

from tests.captures import capture_call
from tests.search.programs import PROGRAMS
from weft.frontend.lower import to_tensor
from weft.scalar.ops import axis
from weft.search.extract import Extraction
from weft.search.laws import LAWS
from weft.search.order import plan
from weft.search.reader import Reader
from weft.search.regions import regions
from weft.search.saturate import Limits, saturate
from weft.targets.cpu import CPUS
from weft.tensor.rules import simplify

TARGET = CPUS["avx512"]


def best(extraction: Extraction) -> float:
    """The cheapest choice of all: each class that is needed has one candidate, without cycles."""
    g = extraction.g
    pairs = [(i, c) for i, row in extraction.candidates.items() for c in row]
    classes = [*extraction.candidates]
    n, m = len(pairs), len(classes)
    cost = np.concatenate([[c.us for _, c in pairs], np.zeros(m)])
    rows, low, high = [], [], []

    def require(row: dict[int, float], least: float, most: float) -> None:
        line = np.zeros(n + m)
        for at, value in row.items():
            line[at] += value
        rows.append(line)
        low.append(least)
        high.append(most)

    of = {i: [k for k, (j, _) in enumerate(pairs) if j == i] for i in classes}
    for root in extraction.roots:
        require(dict.fromkeys(of[g.find(root)], 1.0), 1, 1)
    for k, (i, c) in enumerate(pairs):
        for a in set(c.args):
            require({k: -1.0} | dict.fromkeys(of[a], 1.0), 0, np.inf)
            place = {n + classes.index(i): 1.0, n + classes.index(a): -1.0, k: -float(m)}
            require(place, 1 - m, np.inf)  # a class stands after those that it needs
    bounds = optimize.Bounds(np.zeros(n + m), np.concatenate([np.ones(n), np.full(m, m)]))
    whole = np.concatenate([np.ones(n), np.zeros(m)])
    constraints = optimize.LinearConstraint(np.array(rows), low, high)
    found = optimize.milp(cost, integrality=whole, bounds=bounds, constraints=constraints,
                          options={"time_limit": 20})  # fmt: skip
    assert found.success
    return float(found.fun)


@pytest.mark.parametrize("name", ["A@B@c", "(x@W1)@W2", "A@C+B@C", "(q@k')@v", "(x@W).mean(1)"])
def test_greedy_is_best_on_small_graphs(name: str) -> None:
    program = PROGRAMS[name]
    with torch.no_grad():
        graph = simplify(to_tensor(capture_call(program.run, program.inputs()).graph))
    for region in regions(graph):
        reader = Reader(region.outputs)
        saturate(reader.graph, LAWS, Limits(nodes=60))
        extraction = Extraction(reader.graph, TARGET, tuple(reader.roots))
        assert extraction.cheapest().us == pytest.approx(best(extraction), rel=1e-6)


def test_the_order_of_a_chain_is_the_best_one() -> None:
    """The textbook's chain of matrices: 30x35, 35x15, 15x5, 5x10, 10x20, 20x25."""
    sizes = [30, 35, 15, 5, 10, 20, 25]
    axes = [axis(f"n{i}") for i in range(7)]
    free = [frozenset(axes[i : i + 2]) for i in range(6)]
    found = plan(free, frozenset({axes[0], axes[6]}), dict(zip(axes, sizes, strict=True)))

    def members(tree: Any) -> tuple[int, ...]:
        return (
            (tree,) if isinstance(tree, int) else tuple(sorted(members(tree[0]) + members(tree[1])))
        )

    assert {members(found[0]), members(found[1])} == {(0, 1, 2), (3, 4, 5)}
