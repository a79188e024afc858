"""What threads of a block keep to themselves: attention in registers, and what may not go there."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import weft
from tests.gpu.programs import Make
from weft.kernel import verify
from weft.kernel.own_elements import own_elements
from weft.text import parse_program, print_program

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="the simulator needs g++")


def qkv(queries: int, keys: int, depth: int, dtype: torch.dtype = torch.bfloat16) -> Make:
    shapes = [(1, 2, n, depth) for n in (queries, keys, keys)]
    return lambda: tuple(torch.randn(s).to(dtype) for s in shapes)


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v)


def attend_before(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


ATTENTION: dict[str, tuple[Callable[..., Any], Make, bool]] = {
    "plain": (attend, qkv(128, 128, 64), True),
    "causal": (attend_before, qkv(192, 192, 128), True),
    "uneven": (attend, qkv(100, 150, 64), True),
    "f16": (attend, qkv(64, 128, 64, torch.float16), True),
    "f32": (attend, qkv(64, 128, 64, torch.float32), False),  # no matrix units
}


@needs_compiler
@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90a", "cuda:sm_120"])
@pytest.mark.parametrize("name", ATTENTION)
def test_attention(name: str, target: str) -> None:
    function, make, in_registers = ATTENTION[name]
    torch.manual_seed(0)
    args = make()
    wanted = function(*(a.double() for a in args))
    own = (function(*args).double() - wanted).norm()
    for passes in ("", "-own_rows"):
        f = weft.compile(function, target=target, simulate=True, passes=passes)
        assert (f(*args).double() - wanted).norm() <= 1.05 * own + 1e-5
        handed = [s for s in f.ir("kernel").splitlines() if "local acc3_rows" in s]
        assert len(handed) == 1 or not in_registers
        assert all(("in shared" in s) is bool(passes or not in_registers) for s in handed)


KERNEL = """
program kernel handed
input x: f32[64]

kernel y(x: f32[64]) -> y: f32[32]
for t0 in 0..32:  # free thread
    local s: f32[{size}] in shared
    {loop}
        in0 = load x[t0]
        s[{store}] = in0{mask}
    {other}
        y[t0] = load s[{load}]

output y
"""
ROLLED = "for u0 in 0..2:  # free serial"
UNROLLED = "for u0 in 0..2:  # free unroll"
ONCE = "for o0 in 0..1:  # free serial"


@pytest.mark.parametrize(
    ("store", "load", "loops", "slots"),
    [
        ("t0", "t0", (ONCE, ONCE), 1),
        ("t0 * 2", "t0 * 2 + 1", (ONCE, ONCE), 2),
        ("u0 * 32 + t0", "u0 * 32 + t0", (UNROLLED, UNROLLED), 2),
        ("t0 // 4 * 8 + t0 % 4 + u0 * 4", "t0 // 4 * 8 + t0 % 4 + 4", (UNROLLED, ONCE), 2),
        ("t0 // 4", "t0 // 4", (ONCE, ONCE), 1),  # each of the neighbours
        ("t0", "t0 + 1", (ONCE, ONCE), None),  # the next thread's
        ("t0", "31 - t0", (ONCE, ONCE), None),
        ("t0", "0", (ONCE, ONCE), None),
        ("t0 * 2 + u0", "t0 * 2 + u0", (ROLLED, ROLLED), None),  # registers have no addresses
        ("t0 // 4", "t0 // 8", (ONCE, ONCE), None),
    ],
)
def test_own_elements(store: str, load: str, loops: tuple[str, str], slots: int | None) -> None:
    mask = " if t0 % 4 == 0" if store == "t0 // 4" else ""
    places = {"store": store, "load": load, "loop": loops[0], "other": loops[1]}
    text = KERNEL.format(size=65, mask=mask, **places).lstrip()
    program = parse_program(text, "handed")
    verify.verify(program)
    after = program.map_kernels("kernel", lambda kernel: own_elements(kernel, None))
    verify.verify(after)
    found = print_program(after)
    assert ("in shared" in found) is (slots is None)
    assert slots is None or f"local s: f32[{slots}]\n" in found
    assert "t0 % 4" not in found or slots is None


def test_neighbours_that_differ_are_told_apart() -> None:
    """One of four stores under a condition of its own: the others have not what it has."""
    places = {"store": "t0 // 4", "load": "t0 // 4", "loop": ONCE, "other": ONCE}
    for mask, is_shared in (("t0 % 4 == 1", True), ("t0 // 4 == 0", False)):
        text = KERNEL.format(size=65, mask=f" if {mask}", **places).lstrip()
        program = parse_program(text, "handed")
        after = program.map_kernels("kernel", lambda kernel: own_elements(kernel, None))
        found = print_program(after)
        assert ("in shared" in found) is is_shared
        assert "if v0" in found  # all four, or none


def test_chunks_beyond_a_mask_are_left_out() -> None:
    """Also where the scores are masked in the kernel that computes them."""
    args = [torch.empty(1, 32, 1024, 128, dtype=torch.bfloat16)] * 3
    f = weft.compile(attend_before, target="cuda:sm_90a", fallback="error")
    f.prepare(*args)
    assert "in 0..min(1024, a1 + 128) by 64:  # scan" in f.ir("tile")
