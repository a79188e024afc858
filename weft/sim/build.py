"""From the text of a kernel to a program that runs it on the CPU; built once, then cached.

program = build(source, "softmax")       # Program(path, shared=(("tile", 0, 4096),))
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from weft.config import config
from weft.core.errors import CompilerError
from weft.runtime.cache import Cache, digest
from weft.runtime.compiler import first_error

HERE = Path(__file__).parent
DEVICE_HEADERS = HERE.parent / "runtime" / "gpu"  # those of ours that have no other side here
FILE = "kernel.cu"
FLAGS = ("-O1", "-g1", "-std=c++17", "-pipe", "-fno-pie", "-w")
KERNEL_FLAGS = (
    "-fsanitize=thread",  # only its calls before each access: they go to sim/runtime
    "--param=tsan-instrument-func-entry-exit=0",
    "-fno-tree-sra",  # or a 16-byte access is split into the members it loads
    "-fno-toplevel-reorder",  # the gaps between shared arrays stay between them
    "-fwrapv",
    "-fno-strict-aliasing",
)


@dataclass(frozen=True)
class Program:
    """An executable, and what its symbols say of the kernel."""

    path: Path
    shared: tuple[tuple[str, int, int], ...]  # static shared arrays: name, offset, bytes
    grain: int  # bytes of its smallest access to memory, at most 4


def build(source: str, kernel: str) -> Program:
    """The program that runs `kernel` of that text; CompilerError with the line that is wrong."""
    store = Cache(config.cache, salt())

    def fill(folder: Path) -> None:
        (folder / FILE).write_text(f"{source}\nWEFT_SIMULATE({kernel})\n")
        run("g++", *FLAGS, *KERNEL_FLAGS, f"-I{HERE / 'include'}", f"-I{DEVICE_HEADERS}",
            "-xc++", FILE, "-c", "-o", "kernel.o", folder=folder)  # fmt: skip
        run("g++", "-no-pie", "kernel.o", str(simulator(store)), "-o", "kernel", folder=folder)
        arrays = shared_arrays(run("nm", "-SC", "kernel", folder=folder))
        grain = smallest_access(run("nm", "-u", "kernel.o", folder=folder))
        (folder / "symbols.json").write_text(json.dumps([arrays, grain]))

    entry = store.address("simulated", f"{kernel}\n{source}")
    if not entry.is_dir():
        store.entry("simulated", f"{kernel}\n{source}", fill)
    arrays, grain = json.loads((entry / "symbols.json").read_text())
    return Program(entry / "kernel", tuple((name, at, size) for name, at, size in arrays), grain)


def simulator(store: Cache) -> Path:
    """The object file of runtime/, the same for all kernels."""

    def fill(folder: Path) -> None:
        source = HERE / "runtime" / "simulator.cpp"
        run("g++", "-O2", *FLAGS[1:], "-c", str(source), "-o", "simulator.o", folder=folder)

    entry = store.address("simulator", "")
    if not entry.is_dir():
        store.entry("simulator", "", fill)
    return entry / "simulator.o"


@cache
def salt() -> str:
    """All that a program depends on besides the kernel's text."""
    folders = (HERE / "include", HERE / "runtime", DEVICE_HEADERS)
    files = [path for folder in folders for path in sorted(folder.iterdir())]
    version = run("g++", "--version", folder=HERE)
    return digest(version, *FLAGS, *KERNEL_FLAGS, *[path.read_text() for path in files])


def shared_arrays(symbols: str) -> list[tuple[str, int, int]]:
    """Name, offset and bytes of each static shared array, from what nm prints."""
    start = re.search(r"^(\w+) . __start_weft_shared$", symbols, re.MULTILINE)
    stop = re.search(r"^(\w+) . __stop_weft_shared$", symbols, re.MULTILINE)
    if not start or not stop:
        return []
    begin, end = int(start[1], 16), int(stop[1], 16)
    found = re.findall(r"^(\w+) (\w+) . (?:.*::)?(\w+)$", symbols, re.MULTILINE)
    return [
        (name, int(at, 16) - begin, int(size, 16))
        for at, size, name in found
        if begin <= int(at, 16) < end and not name.startswith("weft_gap_")
    ]


def smallest_access(undefined: str) -> int:
    """Bytes of the smallest access among the hooks that a kernel calls, at most 4."""
    hooks = re.findall(r"__tsan_\w*?(?:read|write)(\d+|_range)$", undefined, re.MULTILINE)
    return min([4, *(int(size) if size.isdigit() else 1 for size in hooks)])


def lines_of(program: Program, addresses: list[int]) -> dict[int, int]:
    """The kernel's line of each return address; 0 where there is none."""
    asked = [f"{address - 1:x}" for address in addresses]
    path = str(program.path)
    printed = run("addr2line", "-a", "-i", "-e", path, *asked, folder=program.path.parent)
    lines: dict[int, int] = {}
    for part in re.split(r"^0x", printed, flags=re.MULTILINE)[1:]:
        address, *places = part.splitlines()
        found = [place.partition(FILE + ":")[2].split()[0] for place in places if FILE in place]
        lines[int(address, 16) + 1] = int(found[0]) if found and found[0].isdigit() else 0
    return lines


def run(tool: str, *arguments: str, folder: Path) -> str:
    """What a tool prints; CompilerError with its first error, or when it is missing."""
    path = shutil.which(tool)
    if path is None:
        raise CompilerError(f"simulating a kernel needs {tool}: install it with `apt install g++`")
    environment = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(
        [path, *arguments], capture_output=True, text=True, cwd=folder, env=environment
    )
    if done.returncode != 0:
        message = first_error(done.stderr) or f"exit status {done.returncode}"
        raise CompilerError(f"{tool} refused the kernel: {message}")
    return done.stdout
