"""What is known of axes inside loops bounds indices over them."""

from __future__ import annotations

import pytest

from weft.core.node import Node
from weft.scalar.affine import linear
from weft.scalar.nest import For
from weft.scalar.ops import apply, axis, constant
from weft.scalar.reach import known_inside
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
