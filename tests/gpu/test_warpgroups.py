"""Products by warpgroups, pipelines of several chunks: what they compute, when, what is found."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import weft
from tests.gpu.programs import Make, bf16
from weft.core.errors import VerifyError
from weft.kernel import verify
from weft.link.simulator import arguments
from weft.options import TARGETS
from weft.sim import simulate
from weft.targets.gpu import GPUS
from weft.text import parse_program

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="the simulator needs g++")


@pytest.fixture(autouse=True)
def one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """Targets of one multiprocessor, for which small products have large tiles."""
    for name in ("cuda:sm_80", "cuda:sm_90a", "cuda:sm_120"):
        monkeypatch.setitem(TARGETS, name, replace(GPUS[name], cores=1))


def f16() -> list[torch.Tensor]:
    return [torch.randn(shape).half() for shape in ((64, 256), (256, 64))]


PRODUCTS: dict[str, tuple[Callable[..., Any], Make, str]] = {
    "by_rows": (lambda x, w: x @ w, bf16((128, 320), (320, 256)), "wgmma_bf16<256, false, true>"),
    "linear": (
        lambda x, w: F.linear(x, w),
        bf16((128, 320), (128, 320)),
        "wgmma_bf16<128, false, false>",
    ),
    "f16": (lambda x, w: (x @ w).relu(), f16, "wgmma_f16<64, false, true>"),
    "narrow": (lambda x, w: x @ w, bf16((64, 256), (256, 16)), "wgmma_bf16<16, false, true>"),
    "uneven": (lambda x, w: x @ w, bf16((100, 264), (264, 72)), "wgmma_bf16<128, false, true>"),
    "batched": (
        lambda x, w: x @ w,
        bf16((3, 64, 256), (3, 256, 64)),
        "wgmma_bf16<64, false, true>",
    ),
    "left_by_rows": (
        lambda x, w: x.mT @ w,
        bf16((256, 128), (256, 64)),
        "wgmma_bf16<64, true, true>",
    ),
    "odd_lines": (lambda x, w: x @ w, bf16((64, 257), (257, 64)), "mma("),
    "short": (lambda x, w: x @ w, bf16((64, 128), (128, 64)), "mma("),
}


def product(name: str, passes: str, target: str = "cuda:sm_90a") -> tuple[Any, str]:
    """What is compiled, checked beside float64 in the simulator; and its text."""
    function, make, _ = PRODUCTS[name]
    torch.manual_seed(0)
    args = make()
    f = weft.compile(function, target=target, simulate=True, passes=passes)
    wanted = function(*(a.double() for a in args))
    own, found = ((y.double() - wanted).norm() for y in (function(*args), f(*args)))
    assert found <= 1.01 * own
    return f, f.ir("source")


@needs_compiler
@pytest.mark.parametrize("passes", ["", "-double_buffer", "-pipeline_k_outer", "-tensorize_wgmma"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name: str, passes: str) -> None:
    _, source = product(name, passes)
    assert passes == "-tensorize_wgmma" or PRODUCTS[name][2] in source
    assert ("wgmma" in source) is (passes != "-tensorize_wgmma" and "wgmma" in PRODUCTS[name][2])


@needs_compiler
@pytest.mark.parametrize(
    ("target", "passes", "text"),
    [
        ("cuda:sm_80", "", "cp_async_wait<2>"),
        ("cuda:sm_90a", "", "done + 1 < begun"),  # two blocks have room
        ("cuda:sm_90a", "-tensorize_wgmma", "done + 1 < begun"),
        ("cuda:sm_90a", "-tma_copy", "cp_async_wait<1>"),
        ("cuda:sm_120", "", "done + 1 < begun"),
        ("cuda:sm_80", "-pipeline_k_outer", "cp_async_wait<0>"),
    ],
)
def test_chunks_ahead(target: str, passes: str, text: str) -> None:
    assert text in product("linear", passes, target)[1]


MISSING = {
    "wgmma_fence();": "usage",
    "mbarrier_wait(arrived + done % 3, done / 3 % 2);": "async",
    "wgmma_wait<0>();": "async",
    "__syncthreads();": "race",
}


@needs_compiler
def test_what_is_missing_is_found() -> None:
    f, _ = product("linear", "")
    ((symbol, launch),) = f.programs[0].artifact.levels().launches.items()
    arrays = [torch.zeros(n, dtype=torch.int16).numpy() for n in (128 * 320, 128 * 320, 128 * 128)]
    args = arguments(arrays, launch)
    where = symbol, launch.grid, launch.block, args, launch.dynamic_bytes
    assert not simulate(launch.source, *where).faults
    for text, kind in MISSING.items():
        assert text in launch.source
        found = simulate(launch.source.replace(text, ";"), *where).faults
        assert kind in {fault.kind for fault in found}, text


MATRICES = """
program kernel products
input x: bf16[64,64]

kernel y(x: bf16[4096]) -> y: f32[1]
for t0 in 0..128:  # free thread
    local x_s0: bf16[4096] in shared{swizzle}
    x_s0[t0] = load x[t0]
    for k0 in 0..64 by 64:  # reduce into sum(acc0: f32x32)
        in0 = matrix{{x_s0, rows=64, depth=64}}({left})
        in1 = matrix{{x_s0, rows=64, depth=64, by_rows=true{leading}}}(0)
        mma acc0 [in0] [in1]
    v0 = extract{{0}}(acc0)
    y[0] = v0 if t0 < 1

output y
"""


@pytest.mark.parametrize(
    ("swizzle", "left", "leading", "says"),
    [
        (" swizzle 128", "0", "", ""),
        ("", "0", "", "matrix in x_s0, which has no swizzle"),
        (" swizzle 128", "64", "", "reaches 4159"),
        (" swizzle 64", "0", ", leading=2049", "reaches 4096"),
    ],
)
def test_matrices(swizzle: str, left: str, leading: str, says: str) -> None:
    text = MATRICES.format(swizzle=swizzle, left=left, leading=leading).lstrip()
    if not says:
        verify.verify(parse_program(text, "products"))
        return
    with pytest.raises(VerifyError, match=says):
        verify.verify(parse_program(text, "products"))
