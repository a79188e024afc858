"""The device prelude and the simulator's side of it: the same functions, and what they compute."""

from __future__ import annotations

import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch

import weft
from weft.sim import simulate

PACKAGE = Path(weft.__file__).parent
DEVICE, HOST = PACKAGE / "runtime" / "gpu", PACKAGE / "sim" / "include"
# Files of the device, and those that are their other side.
SIDES = {
    "weft_cuda.cuh": ("weft_base.cuh", "weft_cuda.cuh"),
    "weft_hip.cuh": ("weft_base.cuh", "weft_hip.cuh"),
    "weft_cuda_copy.cuh": ("weft_cuda_copy.cuh",),
    "weft_cuda_mma.cuh": ("weft_cuda_mma.cuh",),
    "weft_cuda_wgmma.cuh": ("weft_cuda_wgmma.cuh",),
}


def declarations(path: Path) -> list[str]:
    """Signatures of the functions of a file, with their template heads."""
    found = re.findall(r"^(template <.*> )?WEFT_FN ([^{]*) \{", path.read_text(), re.MULTILINE)
    return [" ".join((head + signature).split()) for head, signature in found]


@pytest.mark.parametrize("name", SIDES)
def test_both_sides_declare_the_same(name: str) -> None:
    device = declarations(DEVICE / name)
    assert len(device) >= 8
    assert [line for side in SIDES[name] for line in declarations(HOST / side)] == device


def test_ptx_stands_in_the_prelude_alone() -> None:
    files = {path for path in PACKAGE.rglob("*") if path.suffix in (".py", ".h", ".cuh", ".c")}
    inline = [path for path in files if re.search(r"\basm (volatile)?\(", path.read_text())]
    assert not [path.name for path in inline if path.parent != DEVICE]


CASTS = """#include "weft_cuda.cuh"
extern "C" __global__ void casts(const f32 *x, f16 *half, bf16 *brain, f32 *tf, f32 *back) {
    i32 i = threadIdx.x;
    half[i] = cast_f32_f16(x[i]);
    brain[i] = cast_f32_bf16(x[i]);
    tf[i] = __uint_as_float(cast_f32_tf32(x[i]));
    back[i] = cast_f16_f32(half[i]);
}
"""


def test_casts() -> None:
    bits = np.random.default_rng(0).integers(0, 2**32, 1024, np.uint64).astype(np.uint32)
    x = bits.view(np.float32)
    x[:512] = np.random.default_rng(1).standard_normal(512) * 10.0 ** np.arange(-8, 8).repeat(32)
    x[:6] = [0.0, -0.0, np.inf, -np.inf, np.nan, 65519.0]
    half, brain = np.zeros(1024, np.float16), np.zeros(1024, ml_dtypes.bfloat16)
    tf, back = np.zeros(1024, np.float32), np.zeros(1024, np.float32)
    report = simulate(CASTS, "casts", 1, 1024, [x, half, brain, tf, back])
    assert not report.faults, str(report)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(half, x.astype(np.float16))
        expected = x.astype(ml_dtypes.bfloat16).astype(np.float32)
        np.testing.assert_array_equal(brain.astype(np.float32), expected)
        normal = np.isfinite(x) & (abs(x) > 1e-30) & (abs(x) < 1e38)
        assert (abs(tf - x)[normal] <= abs(x)[normal] * 2**-11).all()
    np.testing.assert_array_equal(back, half.astype(np.float32))
    assert not (tf.view(np.uint32)[normal] & 0x1FFF).any()


@pytest.mark.parametrize("d,t", [("f8e4m3fn", torch.float8_e4m3fn), ("f8e5m2", torch.float8_e5m2)])
def test_floats_of_eight_bits(d: str, t: torch.dtype) -> None:
    """As torch's, to the bit: all codes, and values between and around them."""
    head = f'extern "C" __global__ void casts(const {d} *c, const f32 *x, f32 *wide, {d} *near)'
    body = f"wide[i] = cast_{d}_f32(c[i]); near[i] = cast_f32_{d}(x[i]);"
    text = f'#include "weft_cuda.cuh"\n{head} {{ i32 i = threadIdx.x; {body} }}\n'
    codes = torch.arange(256, dtype=torch.uint8).repeat(4)
    values = codes.view(t).float()
    following = (codes + 1).view(t).float()
    x = torch.where(torch.arange(1024) < 512, values, (values + following) / 2)
    x[256:512] = torch.nextafter(x[768:], torch.tensor(torch.inf))
    x[:8] = torch.tensor([464, -480, 61439.99, 61440, 3e38, torch.inf, 1e-45, torch.nan])
    wide, near = np.zeros(1024, np.float32), np.zeros(1024, np.uint8)
    report = simulate(text, "casts", 1, 1024, [codes.numpy(), x.numpy(), wide, near])
    assert not report.faults, str(report)
    np.testing.assert_array_equal(wide, values.numpy())
    expected, nan = x.to(t).view(torch.uint8), x.isnan()
    assert torch.equal(torch.from_numpy(near)[~nan], expected[~nan])
    assert torch.from_numpy(near).view(t).float().isnan().equal(nan)
