"""A round looks at what is new alone, and misses nothing by that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest

from weft.core.node import make
from weft.core.types import TensorType, f32
from weft.scalar.ops import axis
from weft.search.egraph import EGraph, Term
from weft.search.laws import LAWS
from weft.search.saturate import Limits, saturate
from weft.tensor.ops import Input

I, J, K, L = (axis(n) for n in "ijkl")  # noqa: E741
AXES = {I: 8, J: 8, K: 8, L: 8, axis("k'"): 8}
WIDE = Limits(nodes=5000, rounds=40, applied=5000, matches=5000)


def leaf(g: EGraph, name: str, *index: object) -> int:
    tensor = make(Input(name, TensorType(f32, (8,) * len(index))))
    return g.leaf(tensor, index)  # type: ignore[arg-type]


def chain(g: EGraph) -> int:
    inner = g.sum({K}, g.mul((leaf(g, "a", I, K), leaf(g, "b", K, J))))
    return g.sum({J}, g.mul((inner, leaf(g, "c", J, L))))


def shared(g: EGraph) -> int:
    two = (g.sum({K}, g.mul((leaf(g, n, I, K), leaf(g, "c", K, J)))) for n in "ab")
    return g.add((*two, leaf(g, "d", I, J)))


def scaled(g: EGraph) -> int:
    mean = g.mul((g.const(Fraction(1, 8)), g.sum({K}, leaf(g, "a", I, K))))
    less = g.add((leaf(g, "a", I, J), g.mul((g.const(-1), mean))))
    return g.sum({J}, g.mul((less, leaf(g, "b", J, L), leaf(g, "e", I))))


def logarithm(g: EGraph) -> int:
    total = g.sum({K}, g.fn("exp", leaf(g, "a", I, K)))
    return g.fn("log", g.mul((g.fn("exp", leaf(g, "a", I, J)), g.fn("reciprocal", total))))


@pytest.mark.parametrize("build", [chain, shared, scaled, logarithm])
def test_laws_find_nothing_in_what_has_been_looked_at(build: Callable[[EGraph], int]) -> None:
    g = EGraph(dict(AXES))
    build(g)
    assert 1 < saturate(g, LAWS, WIDE) < WIDE.rounds
    size, unions = len(g.ids), len(g.unions)
    assert unions
    saturate(g, LAWS, WIDE)  # which starts with every term
    assert (len(g.ids), len(g.unions)) == (size, unions)


def test_a_law_that_paused_ends_the_search_once_it_finds_nothing_new() -> None:
    g = EGraph(dict(AXES))
    chain(g)
    assert 3 < saturate(g, LAWS, replace(WIDE, matches=1)) < WIDE.rounds
    size = len(g.ids)
    saturate(g, LAWS, WIDE)
    assert len(g.ids) == size


def test_what_a_law_finds_is_seen_by_those_after_it_in_the_same_round() -> None:
    """Flattened in the second round, the product is ordered in that one: the third finds nothing"""
    g = EGraph(dict(AXES))
    chain(g)
    assert saturate(g, LAWS, Limits()) == 3


def test_what_is_learnt_of_a_class_is_learnt_of_those_above_it() -> None:
    """t = p c is positive as p = exp(r) and c = p exp(s) are, whose second term is newer than t."""
    g = EGraph(dict(AXES))
    p, q, r, s = (leaf(g, n, I) for n in "pqrs")
    c = g.fn("reciprocal", q)
    t = g.mul((p, c))
    given = Term("leaf", None)
    g.union(c, g.mul((p, g.fn("exp", s))), "given", given)
    g.rebuild()
    g.union(p, g.fn("exp", r), "given", given)
    g.rebuild()
    assert g.facts[g.find(c)].positive and g.facts[g.find(t)].positive
