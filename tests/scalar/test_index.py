"""The index simplifier: exact on every point of the box, idempotent, and as strong as it says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.work import calls
from weft.core.node import Node, postorder
from weft.scalar.index import FALSE, TRUE, bounds, narrow, simplify
from weft.scalar.ops import FUNCTIONS, apply, axis, constant

A, B, C = axis("a"), axis("b"), axis("c")


def evaluate(term: Node, env: dict[Node, Any]) -> Any:
    done = dict(env)
    for node in postorder(term):
        if node not in done:
            done[node] = node.op.evaluate(*(done[a] for a in node.args))
    return done[term]


def points(ranges: dict[Node, tuple[int, int]]) -> dict[Node, Any]:
    grids = np.meshgrid(*(np.arange(a, b + 1) for a, b in ranges.values()), indexing="ij")
    return {v: g.astype(np.int64) for v, g in zip(ranges, grids, strict=True)}


def read(text: str) -> Node:
    """A term from Python text over a, b, c."""

    class Term:
        def __init__(self, node: Node) -> None:
            self.node = node

        def of(self, name: str, other: Any) -> Term:
            return Term(
                apply(name, self.node, other.node if isinstance(other, Term) else number(other))
            )

        __add__ = lambda s, o: s.of("add", o)  # noqa: E731
        __sub__ = lambda s, o: s.of("subtract", o)  # noqa: E731
        __mul__ = lambda s, o: s.of("multiply", o)  # noqa: E731
        __floordiv__ = lambda s, o: s.of("floordiv", o)  # noqa: E731
        __mod__ = lambda s, o: s.of("floormod", o)  # noqa: E731
        __lt__ = lambda s, o: s.of("lt", o)  # noqa: E731
        __le__ = lambda s, o: s.of("le", o)  # noqa: E731
        __ge__ = lambda s, o: s.of("ge", o)  # noqa: E731
        __gt__ = lambda s, o: s.of("gt", o)  # noqa: E731
        __and__ = lambda s, o: s.of("and", o)  # noqa: E731

    def number(value: int) -> Node:
        return constant(value)

    names: dict[str, Any] = {"a": Term(A), "b": Term(B), "c": Term(C)}
    names |= {"min_": lambda x, y: Term(x).of("minimum", y)}
    result = eval(text, {}, names)
    return result.node if isinstance(result, Term) else constant(result)


BOX = {A: (0, 7), B: (0, 15), C: (0, 999)}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("(c // 8 % 8) * 8 + c % 8", "c % 64"),
        ("(c // 64) * 64 + (c // 8 % 8) * 8 + c % 8", "c"),
        ("(c // 8) * 8 + c % 8", "c"),
        ("(c // 64) * 8 + c // 8 % 8", "c // 8"),
        ("(b * 8 + a) // 8", "b"),
        ("(b * 8 + a) % 8", "a"),
        ("(b * 8 + a) // 16", "b // 2"),
        ("(b * 8 + a) // 16 * 16 + (b * 8 + a) % 16", "b * 8 + a"),
        ("(c % 64) % 8", "c % 8"),
        ("(c % 64) // 8", "c // 8 % 8"),
        ("(c // 8) // 4", "c // 32"),
        ("(b * 12 + a) // 8 * 8 + (b * 12 + a) % 8", "b * 12 + a"),
        ("(a * -1 + 7) // 8", "0"),
        ("a - a", "0"),
        ("(c + 8) % 8", "c % 8"),
        ("c * 0", "0"),
        ("a - 1 >= 0", "a >= 1"),
        ("b // 4 < 2", "b < 8"),
        ("a * 2 < 5", "a < 3"),
        ("(a + b) <= (b + 3)", "a < 4"),
        ("(a < 4) & (a < 4)", "a < 4"),
    ],
)
def test_simplifies_to(before: str, after: str) -> None:
    assert simplify(read(before), BOX) is read(after)


def test_comparisons_are_decided_by_bounds() -> None:
    assert simplify(read("a * 16 + b < 128"), BOX) is TRUE
    assert simplify(read("a > b + 7"), BOX) is FALSE
    assert simplify(read("(a < 8) & (b >= 3)"), BOX) is read("b >= 3")


def test_unknown_integers_may_wrap() -> None:
    """a + 1 > a is false at the greatest i64, and (a * 8) // 8 is not a there."""
    for text in ("a + 1 > a", "(a * 8) // 8"):
        assert simplify(read(text), {}) is read(text)


def test_an_axis_of_one_value_is_that_value() -> None:
    assert simplify(read("a * 4 + b"), {A: (3, 3), B: (0, 1)}) is read("b + 12")


def test_narrowed_ranges_hold_under_the_condition() -> None:
    known = narrow(simplify(read("(a + b - 1 >= 0) & (a + b - 1 < 16)"), BOX), BOX)
    assert bounds(simplify(read("a + b - 1"), known), known) == (-1, 21)
    assert simplify(read("(a + b - 1) // 16"), known) is constant(0)


def test_reshape_chains_are_fast() -> None:
    """Hundreds of reshape-of-permute-of-reshape terms, as attention over many layers makes."""

    def every() -> None:
        for n in range(200):
            chain(n)

    def chain(n: int) -> None:
        i, j, k, m = (axis(f"i{x}") for x in range(4))
        box = {i: (0, 3), j: (0, 15), k: (0, 31 + n), m: (0, 63)}
        row = (32 + n) * 64
        flat = apply(
            "add", apply("multiply", i, constant(16 * row)), apply("multiply", j, constant(row))
        )
        flat = apply("add", flat, apply("add", apply("multiply", k, constant(64)), m))
        rows = apply("floormod", apply("floordiv", flat, constant(64)), constant(32 + n))
        assert simplify(rows, box) is k
        assert simplify(apply("floordiv", flat, constant(16 * row)), box) is i

    assert calls(every) < 1_000_000


@st.composite
def terms(draw: Any, depth: int = 4) -> Node:
    if depth == 0 or draw(st.integers(0, 5)) == 0:
        leaf = draw(st.sampled_from([A, B, C, None]))
        return constant(draw(st.integers(-20, 70))) if leaf is None else leaf
    name = draw(st.sampled_from(["add", "subtract", "multiply", "floordiv", "floormod"] * 3 + RARE))
    left = draw(terms(depth - 1))
    if name == "where":
        compare = draw(st.sampled_from(["lt", "le", "eq", "ge"]))
        condition = apply(compare, left, draw(terms(depth - 1)))
        return apply("where", condition, draw(terms(depth - 1)), draw(terms(depth - 1)))
    if name in ("multiply", "floordiv", "floormod"):
        return apply(name, left, constant(draw(st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16, 64]))))
    return apply(name, left, draw(terms(depth - 1)))


RARE = ["minimum", "maximum", "where"]


@st.composite
def conditions(draw: Any) -> Node:
    parts = [
        apply(
            draw(st.sampled_from(["lt", "le", "gt", "ge", "eq", "ne"])),
            draw(terms(3)),
            draw(terms(2)),
        )
        for _ in range(draw(st.integers(1, 3)))
    ]
    total = parts[0]
    for part in parts[1:]:
        total = apply(draw(st.sampled_from(["and", "and", "or"])), total, part)
    return total


ranges = st.tuples(*(st.tuples(st.integers(-4, 8), st.integers(0, 9)) for _ in range(3))).map(
    lambda r: {v: (low, low + n) for v, (low, n) in zip((A, B, C), r, strict=True)}
)


@settings(max_examples=400)
@given(st.one_of(terms(), terms(5), conditions()), ranges)
def test_exact_on_the_whole_box(term: Node, box: dict[Node, tuple[int, int]]) -> None:
    simple = simplify(term, box)
    env = points(box)
    before, after = np.broadcast_arrays(evaluate(term, env), evaluate(simple, env))
    np.testing.assert_array_equal(after, before)
    assert simplify(simple, box) is simple
    if term.type.dtype is constant(0).type.dtype:
        low, high = bounds(simple, box)
        assert low <= after.min() and after.max() <= high


@settings(max_examples=200)
@given(conditions(), terms(), ranges)
def test_exact_where_the_condition_holds(
    condition: Node, term: Node, box: dict[Node, tuple[int, int]]
) -> None:
    condition = simplify(condition, box)
    env = points(box)
    simple = simplify(term, narrow(condition, box))
    holds = np.broadcast_to(evaluate(condition, env), env[A].shape)
    before, after = (np.broadcast_to(evaluate(t, env), env[A].shape) for t in (term, simple))
    np.testing.assert_array_equal(after[holds], before[holds])


def test_the_functions_of_index_terms_are_in_the_table() -> None:
    assert {"add", "subtract", "multiply", "floordiv", "floormod", *RARE} <= FUNCTIONS.keys()
