"""Windows over rows: the rows whose windows lie inside ask nothing of the rows."""

from __future__ import annotations

import pytest

from tests.tile.test_panels import CONVOLUTION, schedule

POOL = """
program loop pool
input x: f32[10,40]

kernel y(x: f32[10,40]) -> y: f32[10,40]
for a0 in 0..10:  # free
    for a1 in 0..40:  # free
        for a2 in 0..3:  # reduce
            for a3 in 0..3:  # reduce
                v0 = ge(a0 + a2, 1)
                v1 = lt(a0 + a2, 11)
                v2 = and(v0, v1)
                v3 = ge(a1 + a3, 1)
                v4 = and(v2, v3)
                v5 = lt(a1 + a3, 41)
                v6 = and(v4, v5)
                in0 = load x[a0 + a2 - 1, a1 + a3 - 1] if v6 else -inf
                acc0 <- maximum(acc0, in0)
        y[a0, a1] = acc0

output y
"""


@pytest.mark.parametrize("isa", ["avx512", "avx2"])
def test_rows_split_where_windows_leave_the_image(isa: str) -> None:
    body = schedule(POOL, isa)["split_ranges"].split("kernel y")[1]
    first, inside, last = (part.split("\n", 1) for part in body.split("\nfor ")[1:])
    assert [part[0].split(" in ")[1] for part in (first, inside, last)] == [
        f"0..{n}:  # free" for n in (1, 8, 1)
    ]
    assert inside[1].count("ge(") == inside[1].count("lt(") == 1  # of columns alone
    assert first[1].count("ge(") == 2 == last[1].count("lt(")


def test_products_stay_whole() -> None:
    text = schedule(CONVOLUTION.format(h=14, w=12, n=20), "avx512")["split_ranges"]
    assert text.count("acc0 <-") == 1
