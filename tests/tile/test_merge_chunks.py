"""Rows of which a cache holds few: kernels merged over chunks of their columns, on a CPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.tile.test_merge_rows import check_attention
from weft.scalar.blocks import loops_in
from weft.scalar.nest import Program
from weft.text import parse_program, print_program
from weft.tile.passes.programs import merge_rows

CAUSAL = """
program loop attention
input q: f32[2,{rows},8]
input k: f32[2,96,8]
input v: f32[2,96,20]

kernel s(q: f32[2,{rows},8], k: f32[2,96,8]) -> s: f32[2,{rows},96]
for a0 in 0..2:  # free
    for a1 in 0..{rows}:  # free
        for a2 in 0..96:  # free
            for a3 in 0..8:  # reduce
                in0 = load q[a0, a1, a3]
                in1 = load k[a0, a2, a3]
                v0 = multiply(in0, in1)
                acc0 <- add(acc0, v0)
            s[a0, a1, a2] = acc0

kernel w(s: f32[2,{rows},96]) -> (w: f32[2,{rows},96], t: f32[2,{rows},1])
for a0 in 0..2:  # free
    for a1 in 0..{rows}:  # free
        for a2 in 0..96:  # reduce
            in0 = load s[a0, a1, a2]
            v0 = ge(a1, a2)
            v1 = where(v0, in0, -inf)
            acc0 <- maximum(acc0, v1)
        for a3 in 0..96:  # reduce
            in1 = load s[a0, a1, a3]
            v2 = ge(a1, a3)
            v3 = where(v2, in1, -inf)
            v4 = subtract(v3, acc0)
            v5 = exp(v4)
            acc1 <- add(acc1, v5)
        t[a0, a1, 0] = acc1
        for a4 in 0..96:  # free
            in2 = load s[a0, a1, a4]
            v6 = ge(a1, a4)
            v7 = where(v6, in2, -inf)
            v8 = subtract(v7, acc0)
            v9 = exp(v8)
            w[a0, a1, a4] = v9

kernel y(w: f32[2,{rows},96], v: f32[2,96,20], t: f32[2,{rows},1]) -> y: f32[2,{rows},20]
for a0 in 0..2:  # free
    for a1 in 0..{rows}:  # free
        in0 = load t[a0, a1, 0]
        for a2 in 0..20:  # free
            for a3 in 0..96:  # reduce
                in1 = load w[a0, a1, a3]
                in2 = load v[a0, a3, a2]
                v0 = multiply(in1, in2)
                acc0 <- finite add(acc0, v0)
            v1 = divide(acc0, in0)
            y[a0, a1, a2] = v1

output y
"""
CACHE = {"l2": 2 << 10, "l3": 128 << 10}  # of scores 5 rows


def by_chunks(program: Program) -> bool:
    return any(loop.role == "scan" for k in program.kernels for loop in loops_in(k.body))


@pytest.mark.parametrize("rows", [96, 75])
@pytest.mark.parametrize("chunk", [32, 40])
@pytest.mark.parametrize("isa", ["avx512", "avx2"])
def test_attention_over_chunks(
    rows: int, chunk: int, isa: str, monkeypatch: pytest.MonkeyPatch,
    golden: Callable[[str, str], None],
) -> None:  # fmt: skip
    """96 columns are three chunks of 32; the third one of 40 has 16. Blocks of 48 or 38 rows."""
    monkeypatch.setattr(merge_rows, "CHUNK", chunk)
    monkeypatch.setattr(merge_rows, "better", lambda *kernels: True)  # whatever it costs
    merged = check_attention(parse_program(CAUSAL.format(rows=rows)), isa, CACHE)
    assert by_chunks(merged)
    if (rows, chunk, isa) == (96, 32, "avx2"):
        golden("tile/merge_chunks.txt", print_program(merged))
