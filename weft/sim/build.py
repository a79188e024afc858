"""From CUDA text to a program that runs its kernels on the CPU; built once, then cached.

program = build(source, "sm_90a")
program.path, program.variables     # an executable; (("shared", "softmax", "part", 4242432, 16),)
"""

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from weft.config import config
from weft.core.errors import CompilerError, WeftError
from weft.runtime.cache import Cache, digest
from weft.runtime.compiler import first_error

HERE = Path(__file__).parent
DEVICE_HEADERS = HERE.parent / "runtime" / "gpu"  # those of ours that have no other side here
INCLUDE = (f"-I{HERE / 'include'}", f"-I{DEVICE_HEADERS}")
FILE = "kernel.cu"
GAP = "weft_gap_"
FLAGS = ("-O1", "-g1", "-std=c++17", "-pipe", "-fno-pie", "-ffp-contract=off", "-w")
KERNEL_FLAGS = (
    "-fsanitize=thread",  # only its calls before each access: they go to sim/runtime
    "--param=tsan-instrument-func-entry-exit=0",
    "-fno-tree-sra",  # or a 16-byte access is split into the members it loads
    "-fno-toplevel-reorder",  # the gaps between shared arrays stay between them
    "-fwrapv",
    "-fno-strict-aliasing",
)


KERNEL = re.compile(
    r"__global__\s+(?:void\s+)?(?:__launch_bounds__\s*\([^)]*\)\s*)?(?:void\s+)?(\w+)\s*\(([^)]*)\)"
)


# A kernel's head and shared arrays in Metal as CUDA's; include/metal_stdlib says the rest.
METAL = (
    (
        r"\[\[kernel, max_total_threads_per_threadgroup\((\d+)\)\]\] void",
        r'extern "C" __global__ void __launch_bounds__(\1)',
    ),
    (r", u32 weft_(block|thread) \[\[\w+\]\]", ""),
    (r" \[\[buffer\(\d+\)\]\]", ""),
    (r"\bconstant (\w+) &", r"const \1 "),
    (r"\bthreadgroup ((?:__attribute__\S+ )?\w+ \w+\[\d+\];)", r"__shared__ \1"),
)


@dataclass(frozen=True)
class Program:
    """An executable, and what its symbols say."""

    path: Path
    # of the kernel: shared, gap or other; function, name, address, bytes
    variables: tuple[tuple[str, str, str, int, int], ...]
    grain: int  # bytes of the smallest access to memory, at most 4


def as_cuda(source: str) -> str:
    """A text of Metal as g++ takes it, line by line; others as they are."""
    for metal, cuda in METAL if '#include "weft_metal.h"' in source else ():
        source = re.sub(metal, cuda, source)
    return source


def kernels_of(source: str) -> dict[str, list[str]]:
    """The kernels of a text, with the names of their parameters."""
    code = re.sub(r"//[^\n]*|/\*.*?\*/", "", source, flags=re.DOTALL)
    return {
        name: [
            re.findall(r"\w+", part)[-1]
            for part in re.sub(r"<[^<>]*>", "", parameters).split(",")
            if part.strip()
        ]
        for name, parameters in KERNEL.findall(code)
    }


def build(source: str, arch: str) -> Program:
    """The program for all kernels of a text; CompilerError with the line that is wrong."""
    store = Cache(config.cache, salt())

    def fill(folder: Path) -> None:
        table = "".join(f"WEFT_KERNEL({name})\n" for name in kernels_of(source))
        text = f"{source}\nWEFT_KERNELS_BEGIN\n{table}WEFT_KERNELS_END\n"
        (folder / FILE).write_text(text)
        flags = (*FLAGS, *KERNEL_FLAGS, *arch_flags(arch))
        ready = (*precompiled(store, source, flags), *INCLUDE)
        run("g++", *flags, *ready, "-xc++", FILE, "-c", "-o", "kernel.o", folder=folder)
        parts = ("-no-pie", "kernel.o", str(simulator(store)), "-o", "kernel")
        run("g++", *linker(), *parts, folder=folder)
        own = run("objdump", "-tC", "kernel.o", folder=folder)
        found = variables(own, run("objdump", "-tC", "kernel", folder=folder))
        (folder / "symbols.json").write_text(json.dumps([found, smallest_access(own)]))

    entry = store.entry("simulated", f"{arch}\n{source}", fill)
    found, grain = json.loads((entry / "symbols.json").read_text())
    return Program(entry / "kernel", tuple(tuple(variable) for variable in found), grain)


def arch_flags(arch: str) -> list[str]:
    """What NVRTC defines for sm_80, sm_90a ...: CUDA's text and prelude ask for it."""
    if not arch or arch.startswith("gfx"):
        return []
    found = re.fullmatch(r"sm_(\d+)(a?)", arch)
    if not found:
        raise WeftError(f"the simulator knows architectures such as sm_90a and gfx90a, not {arch}")
    special = [f"-D__CUDA_ARCH_FEAT_SM{found[1]}_ALL"] if found[2] else []
    return [f"-D__CUDA_ARCH__={found[1]}0", *special]


def precompiled(store: Cache, source: str, flags: tuple[str, ...]) -> list[str]:
    """Where g++ finds the header that a text begins with, parsed: four fifths of compiling one.

    Nothing may stand before it, which could give it another meaning.
    """
    first = re.match(r'#include "(weft_\w+\.\w+)"\n', source)
    ours = [folder / first[1] for folder in (HERE / "include", DEVICE_HEADERS)] if first else []
    header = next(filter(Path.exists, ours), None)
    if header is None:
        return []

    def fill(folder: Path) -> None:
        out = ("-o", f"{header.name}.gch")
        run("g++", *flags, *INCLUDE, "-xc++-header", str(header), *out, folder=folder)

    return [f"-I{store.entry('parsed', ' '.join([header.name, *flags]), fill)}"]


@cache
def linker() -> tuple[str, ...]:
    """gold, where there is one: it reads libstdc++ in a third of the time."""
    return ("-fuse-ld=gold",) if shutil.which("ld.gold") else ()


def simulator(store: Cache) -> Path:
    """The object file of runtime/, the same for all kernels."""

    def fill(folder: Path) -> None:
        source = HERE / "runtime" / "simulator.cpp"
        flags = ("-O2", "-std=c++17", "-fno-pie")
        run("g++", *flags, "-c", str(source), "-o", "simulator.o", folder=folder)

    return store.entry("simulator", "", fill) / "simulator.o"


@cache
def salt() -> str:
    """All that a program depends on besides the kernel's text."""
    folders = (HERE / "include", HERE / "runtime", DEVICE_HEADERS)
    files = [path for folder in folders for path in sorted(folder.iterdir())]
    version = run("g++", "--version", folder=HERE)
    return digest(version, *FLAGS, *KERNEL_FLAGS, *[path.read_text() for path in files])


def variables(own: str, all: str) -> list[tuple[str, str, str, int, int]]:
    """The kernel's variables, from the symbols of its object file and of the program.

    A function's static variables are shared arrays if there are gaps between them; see __shared__
    in include/cuda_language.h. Others are __device__ or __constant__.
    """
    line = re.compile(
        r"^(\w+) .{6}O \.(?:bss|data)\S*\s+(\w+)\s+((?:(\w+).*::)?(\w+))$", re.MULTILINE
    )
    names = {match[3] for match in line.finditer(own)}
    found = [match for match in line.finditer(all) if match[3] in names]
    functions = {match[4] for match in found if match[5].startswith(GAP)} - {None}
    if [m for m in found if not m[4] and m[5].startswith(GAP) and m[5] != f"{GAP}last"]:
        raise CompilerError("a simulated text has a __shared__ array outside of any function")
    return [
        (
            "gap" if m[5].startswith(GAP) else "shared" if m[4] in functions else "other",
            m[4] or "", m[5], int(m[1], 16), int(m[2], 16),
        )
        for m in found
    ]  # fmt: skip


def smallest_access(symbols: str) -> int:
    """Bytes of the smallest access among the hooks that a kernel calls, at most 4."""
    hooks = re.findall(r"__tsan_\w*?(?:read|write)(\d+|_range)$", symbols, re.MULTILINE)
    byte = [1] if re.search(r"weft_mem(cpy|set)$", symbols, re.MULTILINE) else []
    return min([4, *byte, *(int(size) if size.isdigit() else 1 for size in hooks)])


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
    """What a tool prints; CompilerError with the line it refuses, or when it is missing."""
    path = shutil.which(tool)
    if path is None:
        raise CompilerError(f"simulating a kernel needs {tool}: install it with `apt install g++`")
    environment = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(
        [path, *arguments], capture_output=True, text=True, cwd=folder, env=environment
    )
    if done.returncode == 0:
        return done.stdout
    wrong = re.search(rf"^{re.escape(FILE)}:(\d+):\d+: (?:fatal )?error: (.*)$", done.stderr, re.M)
    if not wrong:
        message = first_error(done.stderr) or f"exit status {done.returncode}"
        raise CompilerError(f"{tool} refused a simulated kernel: {message}")
    line = (folder / FILE).read_text().splitlines()[int(wrong[1]) - 1].strip()
    raise CompilerError(
        f"{tool} refused a simulated kernel: {wrong[2]}", f"line {wrong[1]}: {line}"
    )
