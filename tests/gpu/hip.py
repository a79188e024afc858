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
    """Vector registers that each kernel spills; CompilerError where it is refused."""
    flags = [f"--offload-arch={arch}", "--cuda-device-only", "-O3", "-std=c++17", f"-I{HEADERS}"]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "all.hip").write_text(text)
        done = subprocess.run(
            ["hipcc", *flags, "-S", "-o", "all.s", "all.hip"],
            cwd=folder, env={**os.environ, "HIP_PLATFORM": "amd"}, capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode:
            raise CompilerError(f"hipcc refused a kernel: {done.stderr.strip()[:400]}")
        found = re.findall(r"\.vgpr_spill_count: (\d+)", Path(folder, "all.s").read_text())
    return [int(count) for count in found]
