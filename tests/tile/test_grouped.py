"""block_contraction of terms in groups: tiles add up one group after another, by what each gets."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.tile.test_spread import by_all_passes

PROGRAM = """
program loop groups
input x: {x}[{m},3,5]
input codes: {x}[{n},3,5]
input scale: f16[{n},3]
input other: f32[{m},3]

kernel y({operands}) -> y: f32[{m},{n}]
for a0 in 0..{m}:  # free
    for a1 in 0..{n}:  # free
        for a2 in 0..3:  # reduce
            for a3 in 0..5:  # reduce into acc1
                in0 = load x[a0, a2, a3]
                in1 = load codes[a1, a2, a3]
                v0 = {product}(in0, in1)
                acc1 <- add(acc1, v0)
            in2 = load scale[a1, a2]
            in3 = load other[a0, a2]
            v1 = f32({total})
            v2 = f32(in2)
            v3 = multiply(v1, v2)
            v4 = multiply(v3, in3)
            acc0 <- {fold}(acc0, v4)
        y[a0, a1] = acc0

output y
"""
WORDS = {"x": "i32", "product": "dot_bytes", "total": "acc1", "fold": "add"}
CHUNKS = "for a2 in 0..3:  # scan serial"


def scheduled(m: int, n: int, **changed: str) -> str:
    words = {**WORDS, **changed}
    sides = f"x: {words['x']}[{m},3,5], codes: {words['x']}[{n},3,5]"
    operands = f"{sides}, scale: f16[{n},3], other: f32[{m},3]"
    return by_all_passes(PROGRAM.lstrip().format(m=m, n=n, operands=operands, **words))


@pytest.mark.parametrize("m, n", [(5, 40), (33, 17), (14, 1), (40, 32)])
def test_words_of_bytes(m: int, n: int, golden: Callable[[str, str], None]) -> None:
    text = scheduled(m, n)
    assert CHUNKS in text or n == 1  # of which a column is a product with a vector
    if (m, n) == (5, 40):
        golden("tile/grouped.txt", text)


def test_plain_products() -> None:
    text = scheduled(9, 40, x="f32", product="multiply")
    assert CHUNKS in text


def test_others_stay() -> None:
    assert CHUNKS not in scheduled(9, 40, fold="maximum")
    assert CHUNKS not in scheduled(1, 40)
