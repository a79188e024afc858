"""Narrow integers widened on a CPU: all their values, and a vector of them at a time."""

from __future__ import annotations

import platform
import re
from pathlib import Path

import pytest
import torch

import weft
from weft.runtime.compiler import HEADERS, find_compiler

NARROW = (torch.uint8, torch.int8, torch.int16)
WIDE = (torch.float32, torch.float64, torch.bfloat16, torch.int16, torch.int32, torch.int64)


@pytest.mark.parametrize("length", [256, 45])
@pytest.mark.parametrize("narrow", NARROW)
@pytest.mark.parametrize("wide", WIDE)
def test_every_value_is_kept(narrow: torch.dtype, wide: torch.dtype, length: int) -> None:
    x = torch.arange(length * 3, dtype=torch.int64).mul(257).to(narrow)
    got = weft.compile(lambda x: (x.to(wide), x.to(wide) + 1))(x)
    torch.testing.assert_close(got, (x.to(wide), x.to(wide) + 1), rtol=0, atol=0)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="reads x86 assembly")
@pytest.mark.parametrize("dtype", ["u8", "i8"])
def test_bytes_in_memory_are_widened_a_vector_at_a_time(dtype: str, tmp_path: Path) -> None:
    """From memory gcc 12 would load, and insert, each lane by itself."""
    source, assembly = tmp_path / "y.c", tmp_path / "y.s"
    source.write_text(f"""
#include "weft.h"
#define WEFT_LANES 8
#include "weft_math.h"
void widen(const {dtype} *restrict x, f32 *restrict y) {{
    store_f32x8(y, cast_{dtype}_f32x8(load_{dtype}x8(x)));
}}
""")
    compiler = find_compiler()
    flags = [f for f in compiler.flags if not f.startswith("-march")]
    arguments = ["-I", str(HEADERS), *flags, "-march=x86-64-v3", "-S", str(source)]
    compiler.run([*arguments, "-o", str(assembly)], source)
    single = re.findall(r"\b(?:v?pinsr\w|movz[bw]\w|movs[bw]\w)\b", assembly.read_text())
    assert not single
