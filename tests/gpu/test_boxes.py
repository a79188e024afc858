"""Slabs that the copy engine fills: which are boxes of a tensor, what they compute, faults."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import weft
from tests.gpu.programs import Make, bf16, f32
from tests.gpu.simulated_device import simulated
from weft.core.errors import VerifyError, WeftError
from weft.emit.gpu import emit_gpu
from weft.emit.languages import LANGUAGES
from weft.kernel import verify
from weft.link.simulator import arguments
from weft.scalar.index import simplify
from weft.scalar.nest import For, Program
from weft.scalar.text.terms import show_term
from weft.sim import simulate
from weft.text import parse_program
from weft.tile.analysis.boxes import box_of

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="the simulator needs g++")

FILL = """
program tile copies
input x: {type}

kernel y(x: {type}) -> y: f32[64]
for b0 in 0..64 by 16:  # free grid
    local x_s0: f32[16,32] in shared
    for m0 in b0..b0 + 16:  # free thread
        for n0 in 0..32:  # free thread
            in0 = load x[{index}]{mask}
            x_s0[m0 - b0, n0] = in0
    for a0 in b0..b0 + 16:  # free thread
        in1 = load x_s0[a0 - b0, 3]
        y[a0] = in1

output y
"""


def region_of(type_: str, index: str, mask: str = "") -> str | None:
    program = parse_program(FILL.format(type=type_, index=index, mask=mask).lstrip(), "copies")
    (grid,) = program.kernels[0].body
    assert isinstance(grid, For)
    box = box_of(grid.body[1])
    assert box is not None
    region = box.region()
    if region is None:
        return None
    sizes, strides, sides = zip(*((d.size, d.stride, d.side) for d in region), strict=True)
    starts = ", ".join(show_term(simplify(d.start, {})) for d in region)
    return f"{sizes} by {strides}: {sides} from {starts}"


@pytest.mark.parametrize(
    ("type_", "index", "mask", "expected"),
    [
        ("f32[64,32]", "m0, n0", "", "(64, 32) by (32, 1): (16, 32) from b0, 0"),
        ("f32[90,40]", "m0 + 9, n0 + 8", "",
         "(90, 40) by (40, 1): (16, 32) from b0 + 9, 8"),
        ("f32[64,32]{36,1}", "m0, n0", "", "(64, 32) by (36, 1): (16, 32) from b0, 0"),
        ("f32[2,3,64,32]", "1, 2, m0, n0", "",
         "(6, 64, 32) by (2048, 32, 1): (1, 16, 32) from 5, b0, 0"),
        ("f32[5,64,32]{0,32,1}", "4, m0, n0", "",
         "(64, 32) by (32, 1): (16, 32) from b0, 0"),  # an expanded dimension
        ("f32[60,28]", "m0, n0", " if m0 < 60 and n0 < 28 else 0.0",
         "(60, 28) by (28, 1): (16, 32) from b0, 0"),
        ("f32[64,32]", "m0 - 3, n0", " if m0 >= 3 else 0.0",
         "(64, 32) by (32, 1): (16, 32) from b0 - 3, 0"),
    ],
)  # fmt: skip
def test_boxes_of_a_tensor(type_: str, index: str, mask: str, expected: str) -> None:
    assert region_of(type_, index, mask) == expected


@pytest.mark.parametrize(
    ("type_", "index", "mask"),
    [
        ("f32[64,30]", "m0, min(n0, 29)", ""),  # not evenly
        ("f32[64,33]", "m0, n0", ""),  # lines begin at 4 bytes
        ("f32[64,64]", "m0, n0 * 2", ""),
        ("f32[64,32]{1,64}", "m0, n0", ""),  # lines lie across
        ("f32[2,2,64,32]{4096,9999,32,1}", "1, 1, m0, n0", ""),  # four dimensions
        ("f32[60,32]", "m0, n0", " if m0 < 50 else 0.0"),  # others are left out
        ("f32[60,32]", "m0, n0", " if m0 < 60 else 1.0"),
        ("f32[60,32]", "m0, n0", " if m0 + n0 < 60 else 0.0"),
        ("i32[64,32]", "m0, n0", ""),
    ],
)
def test_no_boxes_of_a_tensor(type_: str, index: str, mask: str) -> None:
    mask = mask if type_.startswith("f32") else mask.replace(".0", "")
    text = FILL if type_.startswith("f32") else FILL.replace("f32[", "i32[")
    program = parse_program(text.format(type=type_, index=index, mask=mask).lstrip(), "copies")
    (grid,) = program.kernels[0].body
    assert isinstance(grid, For)
    box = box_of(grid.body[1])
    assert box is not None and box.region() is None


PRODUCTS: dict[str, tuple[Callable[..., Any], Make, str]] = {
    "both": (lambda x, w: x @ w, f32((64, 256), (256, 64)), "tma_load_2d"),
    "uneven": (lambda x, w: x @ w, f32((50, 260), (260, 68)), "tma_load_2d"),
    "linear": (lambda x, w: F.linear(x, w), f32((40, 200), (90, 200)), "swizzle<128, 4>"),
    "batched": (lambda x, w: x @ w, f32((3, 2, 40, 196), (3, 2, 196, 72)), "tma_load_3d"),
    "bf16": (lambda x, w: F.linear(x, w), bf16((64, 256), (256, 256)), "swizzle<128, 2>"),
    "pieces": (lambda x, w: x @ w, bf16((1024, 256), (256, 1024)), "wgmma_bf16<128, false, true>"),
    "part": (lambda x, w: x[8:60, 16:272] @ w[16:272, 8:72], f32((64, 300), (300, 80)), "tma_load"),
    "odd_lines": (lambda x, w: x @ w, f32((64, 255), (255, 64)), "cp_async_4"),  # one side alone
}


@needs_compiler
@pytest.mark.parametrize("passes", ["", "-tma_copy", "-split_inner_for_swizzle"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name: str, passes: str) -> None:
    function, make, text = PRODUCTS[name]
    torch.manual_seed(0)
    args = make()
    f = weft.compile(function, target="cuda:sm_90a", simulate=True, passes=passes)
    wanted = function(*(a.double() for a in args))
    own, found = ((y.double() - wanted).norm() for y in (function(*args), f(*args)))
    assert found <= 2 * own
    source = f.ir("source")
    assert passes or text in source
    assert ("tma_load" in source) is (passes != "-tma_copy")
    assert passes == "" or "swizzle<" not in source


@needs_compiler
def test_a_wait_that_is_missing_is_found() -> None:
    x, w = torch.randn(64, 256), torch.randn(256, 64)
    f = weft.compile(torch.matmul, target="cuda:sm_90a", simulate=True)
    f(x, w)
    launches = f.programs[0].artifact.levels().launches
    symbol, launch = next((s, k) for s, k in launches.items() if k.maps)
    parts = np.zeros(64 * 64 * 16, np.float32)  # of results, as many as the sum may be split in
    args = arguments([x.numpy().ravel(), w.numpy().ravel(), parts], launch)
    where = symbol, launch.grid, launch.block, args, launch.dynamic_bytes

    def kinds(text: str) -> set[str]:
        return {fault.kind for fault in simulate(text, *where).faults}

    assert not kinds(launch.source)
    waits = "mbarrier_wait(&arrived, phase);"
    assert waits in launch.source
    assert "async" in kinds(launch.source.replace(waits, ""))
    fence = "mbarrier_init_fence();"
    assert "proxy" in kinds(launch.source.replace(fence, ""))


@needs_compiler
def test_maps_follow_the_tensors() -> None:
    """Each call has addresses of its own; those that come again are recorded, maps as well."""

    def three(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return ((x @ w).relu() @ w).relu() @ w

    w = torch.randn(256, 256) / 16
    inputs = [torch.randn(64, 256) for _ in range(3)]
    with simulated():
        f = weft.compile(three, target="cuda:sm_90a")
        for x in (*inputs, *inputs):
            torch.testing.assert_close(f(x, w), three(x, w), rtol=1e-4, atol=1e-5)
        again = weft.compile(three, target="cuda:sm_90a")
        torch.testing.assert_close(again(inputs[0], w), f(inputs[0], w))
    assert again.report.cached and "tma_load" in f.ir("source")


COPY = """
program kernel copies
input x: f32[64,32]

kernel y(x: f32[2048]) -> y: f32[64]
for b0 in 0..4:  # free grid
    for t0 in 0..32:  # free thread
        local x_s0: f32[1024] in shared{swizzle}
        in0 = box{{x, sizes=(64, 32), strides=(32, 1), sides=(16, 32)}}(b0 * 16, 0)
        {copy}
        wait async
        barrier block
        in1 = load x_s0[t0]
        y[b0 * 16 + t0] = in1 if t0 < 16

output y
"""
WHOLE = "x_s0{512}[0] = in0 async"


def copies(copy: str, swizzle: str = "") -> Program:
    return parse_program(COPY.format(copy=copy, swizzle=swizzle).lstrip(), "copies")


def test_a_box_is_stored_as_a_whole() -> None:
    verify.verify(copies(WHOLE))


@pytest.mark.parametrize(
    ("copy", "says"),
    [
        ("x_s0{512}[0] = in0", "a box is stored async, as a whole"),
        ("x_s0{512}[0] = in0 count 8 async", "a box is stored async, as a whole"),
        ("x_s0{512}[0] = add(in0, in0) async", "nothing else is done with it"),
        ("x_s0{512}[600] = in0 async", "reaches 1111"),
        ("x_s0{256}[0] = in0 async", "a box is stored async, as a whole"),
    ],
)
def test_a_box_that_is_not(copy: str, says: str) -> None:
    with pytest.raises(VerifyError, match=says):
        verify.verify(copies(copy))


@pytest.mark.parametrize("name", ["hip", "opencl", "metal"])
@pytest.mark.parametrize(("copy", "swizzle"), [(WHOLE, ""), ("x_s0[0] = 1.0", " swizzle 128")])
def test_languages_without_a_copy_engine_refuse(name: str, copy: str, swizzle: str) -> None:
    (kernel,) = copies(copy, swizzle).kernels
    with pytest.raises(WeftError, match=r"needs boxes, which .* has not"):
        emit_gpu(kernel, "k_y", LANGUAGES[name])
