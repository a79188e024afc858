"""Of processes that compile one program at once, one runs the C compiler for each file of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from weft.runtime.toolchain import open_toolchain

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = """
import sys
from pathlib import Path
from weft.runtime.toolchain import open_toolchain
root, compiler = sys.argv[1:]
tools = open_toolchain(Path(root) / "cache", compiler)
print("ready", flush=True)
sys.stdin.readline()
texts = {f"f{n}": f"int f{n}(void) {{ return {n}; }}\\n" for n in range(3)}
path, facts = tools.build("a program", texts, {"kernels": 3})
print(path, facts)
"""


def test_one_process_compiles_for_all(tmp_path: Path) -> None:
    """A compiler that takes its time writes what it is asked for: three files, and one link."""
    real = shutil.which(open_toolchain(tmp_path / "other").compiler.command[0])
    slow, log = tmp_path / "cc", tmp_path / "log"
    slow.write_text(
        f'#!/bin/sh\ncase "$*" in\n*-o*) echo "$*" >> {log}; sleep 0.2;;\nesac\nexec {real} "$@"\n'
    )
    slow.chmod(0o755)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", BUILD, str(tmp_path), str(slow)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    ranks = [subprocess.Popen(command, env=environment, **pipes) for _ in range(2)]
    try:
        for rank in ranks:
            assert rank.stdout is not None and rank.stdout.readline() == "ready\n"
        log.unlink(missing_ok=True)  # what finding the compiler asked
        said = [rank.communicate("go\n", timeout=60)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert len({*said}) == 1 and "{'kernels': 3}" in said[0]
    asked = log.read_text().splitlines()
    assert sum(" -c " in line for line in asked) == 3
    assert sum("-shared" in line for line in asked) == 1
