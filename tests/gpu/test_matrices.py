"""Fragments by ldmatrix, and products in scans whose sides arrive ahead."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import weft
from tests.gpu.programs import Make, bf16
from weft.emit.gpu import emit_gpu
from weft.targets.gpu import GPUS
from weft.text import parse_program

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="the simulator needs g++")


def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x @ y


# whether a fragment lies along the lines of its slab, or across them: of the left side, the right
PRODUCTS: dict[str, tuple[Callable[..., Any], Make, set[str]]] = {
    "plain": (product, bf16((64, 96), (96, 128)), {"8", "4, across=true"}),
    "transposed": (lambda x, y: x @ y.t(), bf16((64, 96), (128, 96)), {"8", "4"}),
    "both": (
        lambda x, y: x.t() @ y,
        bf16((96, 64), (96, 128)),
        {"8, across=true", "4, across=true"},
    ),
    "odd": (product, bf16((77, 90), (90, 55)), {"8"}),
}


@needs_compiler
@pytest.mark.parametrize("name", PRODUCTS)
def test_fragments_are_matrices(name: str) -> None:
    function, make, kinds = PRODUCTS[name]
    torch.manual_seed(0)
    args = make()
    wanted = function(*(a.double() for a in args))
    f = weft.compile(function, target="cuda:sm_80", simulate=True)
    assert (f(*args).double() - wanted).norm() <= 2**-8 * wanted.norm()
    assert {*re.findall(r"load_matrices\{\w+, lanes=(.*?)\}", f.ir("kernel"))} == kinds


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v)


SCANS: dict[str, tuple[Callable[..., Any], Make]] = {
    "tall": (attend, bf16((1, 2, 256, 64), (1, 2, 192, 64), (1, 2, 192, 64))),
    "uneven": (attend, bf16((1, 2, 130, 64), (1, 2, 77, 64), (1, 2, 77, 64))),
    "across": (
        lambda q, k, v: attend(q, k.mT, v.mT),
        bf16((1, 2, 128, 64), (1, 2, 64, 160), (1, 2, 64, 160)),
    ),
    "masked": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        bf16(*[(1, 2, 300, 32)] * 3),
    ),
    "gathered": (
        lambda q, k, v, i: attend(q, k[:, :, i], v[:, :, i]),
        lambda: (*bf16(*[(1, 2, 130, 64)] * 3)(), torch.arange(90) * 7 % 130),
    ),
    "of values": (  # what is staged is computed, not copied
        lambda q, k, v: attend(q * 0.5, k, v + 1),
        bf16(*[(1, 2, 128, 64)] * 3),
    ),
}


@needs_compiler
@pytest.mark.parametrize("name", SCANS)
def test_sides_that_arrive_ahead(name: str) -> None:
    function, make = SCANS[name]
    torch.manual_seed(0)
    args = make()
    wanted = function(*(a.double() if a.is_floating_point() else a for a in args))
    for passes in ("", "-stage_scans", "-sum_in_place"):
        f = weft.compile(function, target="cuda:sm_90a", simulate=True, passes=passes)
        assert (f(*args).double() - wanted).norm() <= 2**-8 * wanted.norm(), passes


def test_a_chunk_has_one_barrier() -> None:
    """Queries are staged once; keys and values of the next chunk arrive in this one."""
    args = [torch.empty(1, 32, 1024, 64, dtype=torch.bfloat16) for _ in range(3)]
    f = weft.compile(attend, target="cuda:sm_90a", fallback="error")
    f.prepare(*args)
    before, scan, inside = f.ir("kernel").partition("for a6 in 0..1024 by 64:  # scan")
    depth = len(before) - len(before.rstrip(" "))
    body = inside.partition("\n" + " " * depth + "for ")[0]
    assert scan and body.count("barrier block") == 1
    assert "load{8} q[" in before and "load{8} q[" not in body
    assert "load{8} k[" in body and "load{8} v[" in body


def test_sums_begin_at_what_they_are_added_to() -> None:
    args = [torch.empty(1, 32, 1024, 64, dtype=torch.bfloat16) for _ in range(3)]
    f = weft.compile(attend, target="cuda:sm_90a", fallback="error")
    f.prepare(*args)
    assert re.search(r"acc3 <- finite partial add\(acc3, v\d+\)", f.ir("tile"))


@pytest.mark.parametrize("columns", [36, 56, 120])
@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90a", "cuda:sm_120"])
def test_what_stays_in_shared_memory_fits(target: str, columns: int) -> None:
    """So many columns are no warp tiles of 32: threads do not have the results to themselves."""
    q, k = (torch.empty(8, 16, 2048, 128, dtype=torch.bfloat16) for _ in range(2))
    f = weft.compile(attend, target=target, fallback="error")
    f.prepare(q, k, torch.empty(8, 16, 2048, columns, dtype=torch.bfloat16))
    for kernel in parse_program(f.ir("kernel"), "attention").kernels:
        assert emit_gpu(kernel, "k").shared_bytes <= GPUS[target].shared
