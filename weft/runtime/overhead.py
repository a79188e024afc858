"""What calling a compiled program costs beyond its kernel: `python -m weft.runtime.overhead`.

program with 2 inputs and 1 output of 16x16:  0.95 us per call, of which 0.05 us is the kernel
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch

from weft.runtime.program import Program, build
from weft.runtime.spec import Buffer, Call, Output, ProgramSpec
from weft.runtime.timing import measure
from weft.runtime.toolchain import open_toolchain

ADD = """\
#include "weft.h"

void add(const float *restrict x, const float *restrict y, float *restrict out) {
    for (int i = 0; i < 256; i++) out[i] = x[i] + y[i];
}
"""


def add_program(root: Path) -> Program:
    """out = x + y over 16x16, one kernel."""
    layout = ((16, 16), (16, 1))
    buffers = (
        Buffer("x", "f32", *layout, "input", 0),
        Buffer("y", "f32", *layout, "input", 1),
        Buffer("out", "f32", *layout, "output"),
    )
    spec = ProgramSpec(buffers, (Call("add", ("x", "y", "out")),), (Output("out"),))
    return build(spec, {"add": ADD}, open_toolchain(root))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        program = add_program(Path(folder))
        inputs = [torch.randn(16, 16), torch.randn(16, 16)]
        x, y = inputs
        calls = {"weft": lambda: program.run(inputs), "eager": lambda: x + y, "empty": lambda: None}
        times = measure(calls, rounds=20, min_time=0.2)
        ((_, kernel),) = program.profile(inputs, rounds=1000)
    call = (times["weft"].median - times["empty"].median) * 1e3
    print("program with 2 inputs and 1 output of 16x16:")
    print(f"  {call:.2f} us per call, of which {kernel:.2f} us is the kernel (clock included)")
    print(f"  {(times['eager'].median - times['empty'].median) * 1e3:.2f} us for eager x + y")


if __name__ == "__main__":
    main()
