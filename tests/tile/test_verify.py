"""What the tile level's verifier refuses: loops bound to units that cannot do what they say."""

from __future__ import annotations

from functools import cache

import pytest
import torch

import weft
from weft.core.errors import VerifyError
from weft.text import parse_program
from weft.tile.verify import verify


@cache
def product(target: str, side: int) -> str:
    x, y = (torch.empty(side, side, dtype=torch.bfloat16) for _ in range(2))
    f = weft.compile(lambda x, y: x @ y, target=target, simulate=True)
    f.prepare(x, y)
    return f.ir("tile")


COPY = """\
program tile copies
input x: f32[64,32]

kernel y(x: f32[64,32]) -> y: f32[64,32]
for m0 in 0..64:  # free box
    for n0 in 0..32:  # free box
        in0 = load x[m0, n0]
        y[m0, n0] = in0

output y
"""
BAD: dict[str, tuple[str, str, str]] = {
    "f32": ("bf16", "f32", "a loop bound to mma adds up, in f32, products of 16-bit elements"),
    "short": (
        "u0 + 16:",
        "u0 + 8:",
        "bound to mma has 16 iterations, to warpgroup a multiple: 8",
    ),
    "few threads": (
        "for w0 in b0..b0 + 32 by 32:  # free thread",
        "for w0 in b0..b0 + 32 by 32:  # free serial",
        "a loop bound to mma is inside of 4 thread loops or more",
    ),
    "one row": ("a0 - b0, a2 - k0]", "0, a2 - k0]", "goes over results that x_s0 is for"),
}


@pytest.mark.parametrize("name", BAD)
def test_products(name: str) -> None:
    before, after, message = BAD[name]
    text = product("cuda:sm_80", 256)
    assert before in text
    verify(parse_program(text, "product"))
    with pytest.raises(VerifyError, match=message):
        verify(parse_program(text.replace(before, after), "product"))


def test_products_of_warpgroups() -> None:
    text = product("cuda:sm_90a", 1024)
    assert "reduce warpgroup" in text
    verify(parse_program(text, "product"))
    with pytest.raises(VerifyError, match="slabs whose lines are a swizzle long"):
        verify(parse_program(text.replace(" swizzle 128", ""), "product"))


def test_boxes_are_copied_into_slabs() -> None:
    with pytest.raises(VerifyError, match="two loops bound to box copy a box of a tensor"):
        verify(parse_program(COPY, "copies"))
