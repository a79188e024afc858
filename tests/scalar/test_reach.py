"""What is known of axes inside loops bounds indices over them."""

from __future__ import annotations

import pytest

from weft.core.node import Node
from weft.scalar.affine import linear
from weft.scalar.nest import For
from weft.scalar.ops import apply, axis, constant
from weft.scalar.reach import axis_range, known_inside
from weft.scalar.symbols import least, negative

P, B = axis("p0"), axis("b0")


def loop(a: Node, lo: Node, hi: Node, step: int = 1) -> For:
    return For(a, lo, hi, (), step, "free", "serial", ())


def blocks(whole: int, size: int, unit: int, shorter: int) -> dict[Node, For]:
    """p0 counts shares of `size` elements, b0 blocks of `shorter` that `unit` leaves of a share."""
    at = apply("multiply", P, constant(size))
    lo = apply("minimum", at, constant(whole))
    end = apply("minimum", apply("add", at, constant(size)), constant(whole))
    length = apply("maximum", apply("subtract", end, lo), constant(0))

    def full(by: int) -> Node:
        turns = apply("floordiv", length, constant(by))
        return apply("add", apply("multiply", turns, constant(by)), lo)

    first = full(unit) if unit else lo
    return {P: loop(P, constant(0), constant(2)), B: loop(B, first, full(shorter), shorter)}


@pytest.mark.parametrize(("whole", "size", "unit", "shorter"), [
    (555, 512, 0, 32), (8, 256, 32, 8), (555, 512, 32, 8),
])  # fmt: skip
def test_full_blocks_of_a_share_end_where_the_whole_does(
    whole: int, size: int, unit: int, shorter: int
) -> None:
    known = known_inside(blocks(whole, size, unit, shorter))
    last = apply("add", B, constant(shorter - 1))
    assert least(linear(B), known) >= 0 and -least(negative(linear(last)), known) == whole - 1


def test_a_block_starts_once_in_what_is_shorter() -> None:
    """Of b0 in p0..min(p0 + 64, min(p0 + 128, 8)) by 16, where p0 is 0, there is one at 0."""
    ends = [apply("add", P, constant(size)) for size in (64, 128)]
    end = apply("minimum", ends[0], apply("minimum", ends[1], constant(8)))
    assert axis_range(loop(B, P, end, 16), {P: (0, 0)}) == (0, 0)
    assert axis_range(loop(B, P, end, 16), {P: (0, 5)}) == (0, 7)
    assert axis_range(loop(B, P, end, 3), {P: (0, 0)}) == (0, 6)


def test_blocks_of_a_part_end_where_the_share_does() -> None:
    """Of b0 in s1..min(s1 + 8192, the full blocks of 64), in parts s1 of a share, by 64."""
    whole, s1 = 100_003, axis("s1")
    share = blocks(whole, 50_176, 0, 64)
    start, full = share[B].lo, share[B].hi
    cut = apply("minimum", apply("add", s1, constant(8192)), full)
    part = loop(s1, start, constant(whole), 8192)
    known = known_inside({P: share[P], s1: part, B: loop(B, s1, cut, 64)})
    last = apply("add", B, constant(63))
    assert -least(negative(linear(last)), known) == whole - 1


def test_where_is_one_of_its_values() -> None:
    first = apply("where", apply("lt", P, constant(3)), B, apply("add", B, constant(5)))
    loops = {P: loop(P, constant(0), constant(9)), B: loop(B, constant(0), constant(64))}
    inner = axis("b1")
    known = known_inside({**loops, inner: loop(inner, first, constant(64))})
    assert least(linear(apply("subtract", inner, B)), known) == 0
