"""Calls of programs that write to their inputs."""

from __future__ import annotations

import sys

import pytest
import torch

from weft.library.calls import WROTE
from weft.runtime import Buffer, Call, Extern, ProgramSpec, build
from weft.runtime.toolchain import Toolchain

SOURCES = {
    name: f"""#include "weft.h"
void {name}(const float *x, float *out) {{
    for (int i = 0; i < 256; i++) out[i] = {expression};
}}
"""
    for name, expression in {"twice": "2 * x[i]", "next": "x[i] + 1"}.items()
}


def test_a_call_that_writes_without_python_text(tools: Toolchain) -> None:
    """Overlap is asked about where tensors lie elsewhere, and again after it was found."""
    kinds = {"x": ("input", 0), "y": ("input", 1), "out": ("output", 0)}
    buffers = [Buffer(b, "f32", (16, 16), (16, 1), *kind) for b, kind in kinds.items()]  # type: ignore[arg-type]
    steps = [
        Call("twice", ("x", "out")),
        Call("next", ("x", "y")),
        Extern(WROTE, ([{"tensor": "y"}],)),
    ]
    spec, asked = ProgramSpec(tuple(buffers), tuple(steps), ("out",)), list[bool]()
    program, _ = build(spec, SOURCES, tools)
    assert program.run.direct is None

    def apart(x: torch.Tensor, y: torch.Tensor) -> bool:
        asked.append(x.data_ptr() != y.data_ptr())
        return asked[-1]

    call = program.run.writing(apart, lambda x, y: "elsewhere")
    x, y, z = (torch.full((16, 16), float(i)) for i in range(3))
    before, versions = y._version, (x._version, z._version)
    for _ in range(3):
        assert (call(x, y)[0] == 2 * x).all() and (y == x + 1).all()
    assert asked == [True] and y._version == before + 3
    for _ in range(2):
        assert call(z, z) == "elsewhere"
    assert (z == 2).all() and (x._version, z._version) == versions
    assert (call(z, y)[0] == 2 * z).all() and (y == 3).all() and asked[-1]
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        assert (call(x, y)[0] == 2 * x).all() and call(y, y) == "elsewhere"
    with pytest.raises(TypeError, match="fewer tensors"):
        call(x)
    assert sys.getrefcount(x) == sys.getrefcount(y) == sys.getrefcount(z) == 2
