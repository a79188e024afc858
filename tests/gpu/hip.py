"""HIP text compiled by Debian's hipcc, which needs no GPU."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path

import weft
from weft.core.errors import CompilerError

HEADERS = Path(weft.__file__).parent / "runtime" / "gpu"


def spills_of(text: str, arch: str) -> list[int]:
    """Vector registers that each kernel spills to memory; CompilerError where it is refused.

    What gfx90a keeps in its accumulation registers instead takes none.
    """
    flags = [f"--offload-arch={arch}", "--cuda-device-only", "-O3", "-std=c++17", f"-I{HEADERS}"]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "all.hip").write_text(text)
        done = subprocess.run(
            ["hipcc", *flags, "-S", "-o", "all.s", "all.hip"],
            cwd=folder, env={**os.environ, "HIP_PLATFORM": "amd"}, capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode:
            told = re.search(r"error: .*", done.stderr)
            raise CompilerError(f"hipcc refused a kernel: {told[0] if told else done.stderr}")
        told = Path(folder, "all.s").read_text()
    memory = re.findall(r"\.private_segment_fixed_size: (\d+)", told)
    spills = re.findall(r"\.vgpr_spill_count: (\d+)", told)
    return [min(int(m), int(count)) for m, count in zip(memory, spills, strict=True)]
