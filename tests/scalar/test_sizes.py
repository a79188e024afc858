"""Sizes that are no numbers: their arithmetic is that of ints, and what is proved of them holds."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.core.node import make
from weft.core.types import TensorType, f32, i64, row_major
from weft.scalar.affine import linear
from weft.scalar.index import TRUE, simplify
from weft.scalar.intervals import Known
from weft.scalar.nest import Buffer, Load
from weft.scalar.ops import Symbol, apply, axis, constant
from weft.scalar.sizes import Size, Undecided, at, hint, larger, smaller
from weft.scalar.symbols import least, linear_bounds


def symbol(label: str, low: int, high: int, hint: int, divisor: int = 1) -> Size:
    return Size(make(Symbol(label, low, high, hint, divisor)))


S, T = symbol("s0", 2, 4096, 13), symbol("s1", 2, 4096, 7)
X, Y, Z = axis("i0"), axis("i1"), axis("i2")


def test_arithmetic_is_canonical():
    assert S * 64 // 64 == S
    assert (S + T) * 2 == T * 2 + 2 * S
    assert (S + 1) * (S - 1) == S * S - 1
    assert S - S == 0 and type(S - S) is int
    assert S * T // T == S and S * T % T == 0
    assert (S * 8 + 5) // 8 == S and (S * 8 + 5) % 8 == 5
    assert (S * T * 8 - S * 16) // (S * T * 2 - S * 4) == 4  # whatever the sign of the divisor
    assert S * T // (T * 2) == S // 2 and S * T % (T * 2) == S % 2 * T
    assert str(S * 64) == "s0 * 64" and str(S + 4) == "s0 + 4" and str(S * T) == "s0 * s1"
    assert hint(S * T + 1) == 92


def test_what_divides_a_size():
    even = symbol("s2", 6, 4096, 12, 6)

    def plain(x: Any) -> Any:
        return Size(simplify(x.term, {}))

    assert plain(even // 3 * 3) == even and plain(even // 2 * 4 + T) == even * 2 + T
    assert (even + 6) % 3 == 0 and (even * T + 1) % 2 == 1
    assert plain(even // 4 * 4) != even and plain(T // 2 * 2) != T
    assert str(even % 4) == "s2 % 4"  # 0 or 2
    held = make(Load(Buffer("x", TensorType(i64, (1,)))), constant(0))
    third = apply("floordiv", apply("multiply", held, constant(3)), constant(3))
    whole = apply("multiply", third, constant(3))  # the product with 3 may wrap
    assert simplify(whole, {}) is whole


def test_quotients_of_negative_sizes():
    """One form for each: a pool's windows are counted from the end in its gradient."""
    for by in (2, 3, 4):
        for left in range(-5, 6):
            turned = -((S * -1 + left) // by)
            assert turned == (S - left + by - 1) // by
            for n in (2, 3, 7, 12):
                assert at(turned, {S.term: n}) == -((left - n) // by)


def test_quotients_by_products():
    batch, heads, rows = symbol("s2", 2, 512, 2), symbol("s3", 2, 512, 3), symbol("s4", 2, 512, 5)
    ranges = {X: (0, batch * heads - 1), Y: (0, rows - 1), Z: (0, T - 1)}
    place = Size(X) * rows * T + Size(Y) * T + Size(Z)
    whole = apply("floordiv", place.term, (heads * rows * T).term)
    rest = apply("floormod", place.term, (heads * rows * T).term)
    assert str(Size(simplify(whole, ranges))) == "i0 // s3"
    assert str(Size(simplify(rest, ranges))) == str(
        Size(simplify(((Size(X) % heads) * rows * T + Size(Y) * T + Size(Z)).term, ranges))
    )


def test_what_ranges_decide():
    assert S > 1 and S * T > S and not S < 2 and S <= 4096 and S * T >= S + T
    assert max(S, 1) == S and min(S, 5000) == S and bool(S)
    assert S != T and S != 13


@pytest.mark.parametrize("ask", [lambda: S > 16, lambda: S < T, lambda: range(S), lambda: int(S)])
def test_what_ranges_leave_open(ask: Any):
    with pytest.raises(Undecided, match="depends on the size"):
        ask()


def test_tensor_types():
    x = TensorType(f32, (S, T, 64))
    assert str(x) == "f32[s0,s1,64]"
    assert x.layout == row_major(x.shape) == (T * 64, 64, 1)
    assert x.size == S * T * 64 and x.span == x.size


def inside(term: Any, ranges: Any, extent: Any) -> bool:
    below = apply("lt", simplify(term, ranges), constant(extent))
    above = apply("ge", simplify(term, ranges), constant(0))
    return simplify(apply("and", above, below), ranges) is TRUE


def flat(*parts: tuple[Any, Any]) -> Any:
    """The term that is the sum of index * stride."""
    total: Any = constant(0)
    for index, stride in parts:
        total = apply("add", total, apply("multiply", index, constant(stride)))
    return total


def test_reshapes_vanish():
    ranges = {X: (0, S - 1), Y: (0, T - 1), Z: (0, 63)}
    place = flat((X, T * 64), (Y, 64), (Z, 1))
    assert simplify(apply("floordiv", place, constant(T * 64)), ranges) is X
    assert (
        simplify(apply("floormod", apply("floordiv", place, constant(64)), constant(T)), ranges)
        is Y
    )
    assert simplify(apply("floormod", place, constant(64)), ranges) is Z
    rows = {X: (0, S * T - 1)}
    row = apply("floordiv", X, constant(T))
    assert simplify(apply("floormod", row, constant(S)), rows) is row
    again = flat((row, T), (apply("floormod", X, constant(T)), 1))
    assert inside(again, rows, S * T)


def test_a_square_of_a_rest_is_no_rest():
    """x // s * s + (x % s) ** 2 is not x."""
    rest, whole = Size(X) % S, Size(X) // S * S
    ranges = {X: (0, 10000)}
    assert simplify((whole + rest).term, ranges) is X
    squared = Size(simplify((whole + rest * rest).term, ranges))
    assert at(squared, {X: 7, S.term: 4}) == 13


def test_what_lies_inside():
    ranges = {X: (0, S - 1), Y: (0, T - 1)}
    assert inside(flat((X, T), (Y, 1)), ranges, S * T)
    assert inside(apply("add", X, constant(4)), ranges, S + 4)
    assert not inside(apply("add", X, constant(4)), ranges, S + 3)
    assert not inside(flat((X, T), (Y, 1)), ranges, S * T - 1)
    assert not inside(X, ranges, T)
    half = {X: (0, S // 2 - 1)}
    assert inside(flat((X, 2)), half, S) and inside(flat((X, 2), (constant(1), 1)), half, S)


SMALL = st.integers(2, 7)


@st.composite
def polynomials(draw: Any) -> Any:
    total: Any = draw(st.integers(-9, 9))
    for _ in range(draw(st.integers(0, 4))):
        part: Any = draw(st.integers(-5, 5))
        for _ in range(draw(st.integers(0, 3))):
            part = part * draw(st.sampled_from([A, B]))
        total = total + part
    return total


A, B = symbol("a", 2, 7, 3), symbol("b", 2, 7, 4)


@given(polynomials(), polynomials(), SMALL, SMALL)
@settings(max_examples=300)
def test_of_any_polynomial(x: Any, y: Any, a: int, b: int):
    known = {A.term: a, B.term: b}

    def value(p: Any) -> int:
        return at(p, known)

    assert value(x + y) == value(x) + value(y) and value(x * y) == value(x) * value(y)
    assert value(x - y) == value(x) - value(y)
    for by in (3, A, A * B, A + 2):
        assert value(x // by) == value(x) // value(by) and value(x % by) == value(x) % value(by)
    with contextlib.suppress(Undecided):
        assert (x < y) == (value(x) < value(y))
    if isinstance(x, Size):
        low, high = linear_bounds({x.term: 1}, 0, {})
        assert low <= value(x) <= high and math.isfinite(low)


@given(polynomials(), st.integers(0, 6), st.integers(0, 48), SMALL, SMALL)
@settings(max_examples=300)
def test_of_any_index(p: Any, i: int, j: int, a: int, b: int):
    """A simplified index has the value of the one that was given, at every point of its box."""
    ranges = {X: (0, A - 1), Y: (0, A * B - 1)}
    known = {A.term: a, B.term: b, X: i % a, Y: j % (a * b)}
    place = flat((X, B), (apply("floormod", Y, constant(B)), 1), (Y, A), (constant(1), p))
    for by in (4, B, A * B, A + 1):
        for name in ("floordiv", "floormod"):
            term = apply(name, place, constant(by))
            after = simplify(term, ranges)
            assert at(Size(after), known) == at(Size(term), known)
    for name in ("lt", "ge", "minimum"):
        term = apply(name, place, constant(A * B))
        assert at(Size(simplify(term, ranges)), known) == at(Size(term), known)


def test_quotients_are_bounded_by_what_they_divide() -> None:
    a, b = symbol("a", 2, 65536, 16), symbol("b", 2, 65536, 16)
    assert smaller(a // 2, a) is not a and smaller(a // 2, a) == a // 2
    assert smaller(a // 3 + 1, a) == a // 3 + 1 and larger(a // 2 * 2, a) == a
    assert a // 2 * 12 >= 12 and a // 2 * (b // 2) >= b // 2 and a // (a // 2) > 0
    with pytest.raises(Undecided):
        bool(a // 2 + 1 < a)


def test_a_size_of_one_value_times_what_has_no_bound() -> None:
    """inf * 0 is no bound: what a size of one value exceeds it by is nothing."""
    four, unknown = symbol("c", 4, 4, 4), apply("maximum", axis("a0"), constant(0))
    product = apply("multiply", apply("multiply", unknown, four.term), constant(-1))
    assert least(linear(product), Known({})) == -math.inf
