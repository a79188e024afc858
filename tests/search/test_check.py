"""The bound of rounding errors refuses what floats do not bear, and takes what they do."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from weft.core.node import make
from weft.core.types import TensorType, f32, i32
from weft.scalar.ops import axis
from weft.search.check import Rounded, compare, judged
from weft.search.egraph import EGraph
from weft.search.extract import Extraction
from weft.search.writer import Expression
from weft.targets.cpu import CPUS
from weft.tensor.ops import Input

A, B, C = (make(Input(n, TensorType(f32, (64, 64)))) for n in "abc")
I, J, K = (axis(n) for n in "ijk")  # noqa: E741
N = 64
Build = Callable[[EGraph], int]


def squares(g: EGraph, x: int, axes: set[object]) -> int:
    return g.sum(axes, g.mul((x, x)))  # type: ignore[arg-type]


def less(g: EGraph, x: int, y: int) -> int:
    return g.add((x, g.mul((g.const(-1), y))))


def distance(g: EGraph) -> int:
    return squares(g, less(g, g.leaf(A, (I, K)), g.leaf(B, (J, K))), {K})


def expanded_distance(g: EGraph) -> int:
    x, y = g.leaf(A, (I, K)), g.leaf(B, (J, K))
    cross = g.mul((g.const(-2), g.sum({K}, g.mul((x, y)))))
    return g.add((squares(g, x, {K}), squares(g, y, {K}), cross))


def variance(g: EGraph) -> int:
    x, share = g.leaf(A, (I, K)), g.const(Fraction(1, N))
    return squares(g, less(g, x, g.mul((share, g.sum({K}, x)))), {K})


def moments(g: EGraph) -> int:
    """sum (x - s t)^2 = sum x^2 - 2 s t^2 + n s^2 t^2, where t is the sum of x."""
    x, share = g.leaf(A, (I, K)), g.const(Fraction(1, N))
    total = g.sum({K}, x)
    cross = g.mul((g.const(-2), share, total, total))
    last = g.mul((g.extent(K), share, share, total, total))
    return g.add((squares(g, x, {K}), cross, last))


def left(g: EGraph) -> int:
    inner = g.sum({K}, g.mul((g.leaf(A, (I, K)), g.leaf(B, (K, J)))))
    return g.sum({J}, g.mul((inner, g.leaf(C, (J,)))))


def right(g: EGraph) -> int:
    inner = g.sum({J}, g.mul((g.leaf(B, (K, J)), g.leaf(C, (J,)))))
    return g.sum({K}, g.mul((g.leaf(A, (I, K)), inner)))


def sides(old: Build, new: Build) -> tuple[list[Expression], list[Expression], EGraph]:
    g = EGraph({I: N, J: N, K: N})
    roots = old(g), new(g)
    plan = Extraction(g, CPUS["avx512"], roots).cheapest()
    return [plan.expressions[0]], [plan.expressions[1]], g


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (distance, expanded_distance, "error x"),
        (variance, moments, "error x"),
        (left, distance, "not equal modulo a prime"),
        (left, right, ""),
        (right, left, ""),
        (expanded_distance, distance, ""),
    ],
)
def test_the_verdict(old: Build, new: Build, why: str) -> None:
    before, after, g = sides(old, new)
    verdict = compare(before, after, g.extents, f32)
    assert verdict.why.startswith(why) and bool(verdict.why) == bool(why), verdict


def test_integers_are_exact_in_any_order() -> None:
    before, after, g = sides(distance, expanded_distance)
    assert not compare(before, after, g.extents, i32).why


@pytest.mark.parametrize(
    ("old", "new", "refused"),
    [(1.0, 1.0, False), (1.0, 99.0, True), (1.0, np.nan, True), (1.0, np.inf, True),
     (np.inf, np.inf, False), (np.inf, np.nan, False)],
)  # fmt: skip
def test_a_variance_beyond_any_number_is_refused_where_the_old_one_is_none(
    old: float, new: float, refused: bool
) -> None:
    sides = ([Rounded(np.asarray(1.0), np.asarray(1.0), np.asarray(v))] for v in (old, new))
    with np.errstate(invalid="ignore"):  # as `compare` has it
        assert bool(judged(*sides, 1e-38)[0]) is refused
