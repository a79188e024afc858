"""CUDA text to machine code by NVRTC, with no driver and no GPU; cached on disk.

cubin = compile_cubin(source, "sm_90a", Cache(config.cache))
cubin.kernels["softmax"].registers     # 30; also spill_bytes, stack_bytes, shared_bytes
cubin.path.read_bytes()
"""

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from weft.core.errors import CompilerError
from weft.runtime.cache import Cache, digest
from weft.runtime.compiler import run_all
from weft.runtime.nvidia import nvrtc

HEADERS = Path(__file__).parent / "gpu"
FLAGS = (
    "--std=c++17",
    "--fmad=false",  # what is to be one fma says so
    "--ptxas-options=-v",
    "--diag-suppress=186",  # unsigned x < 0, in what is written for all integers
    f"--include-path={HEADERS}",
)
FILE = "kernel.cu"


@dataclass(frozen=True)
class Resources:
    """What ptxas says that a kernel takes: per thread, and shared memory per block."""

    registers: int
    spill_bytes: int  # stores and loads
    stack_bytes: int
    shared_bytes: int  # static


@dataclass(frozen=True)
class Cubin:
    """Machine code for one architecture, and the resources of each kernel in it."""

    path: Path
    kernels: dict[str, Resources]


def compile_cubin(source: str, arch: str, store: Cache) -> Cubin:
    """Compile for "sm_80", "sm_90a", "sm_120" ...; CompilerError names the line that is wrong."""
    key = f"{digest(headers(), version(), *FLAGS)}\n{arch}\n{source}"

    def fill(folder: Path) -> None:
        code, log = compile_text(source, arch)
        kernels = {name: asdict(used) for name, used in resources(log).items()}
        (folder / "kernel.cubin").write_bytes(code)
        (folder / "resources.json").write_text(json.dumps(kernels))

    entry = store.entry("cubins", key, fill)
    kernels = json.loads((entry / "resources.json").read_text())
    return Cubin(
        entry / "kernel.cubin", {name: Resources(**used) for name, used in kernels.items()}
    )


def compile_all(texts: Iterable[str], arch: str, store: Cache) -> dict[str, Cubin]:
    """Every text's cubin, by text; those that are new are compiled side by side."""
    new = list(dict.fromkeys(texts))
    made = run_all(partial(compile_cubin, text, arch, store) for text in new)
    return dict(zip(new, made, strict=True))


@cache
def version() -> str:
    return str(nvrtc().nvrtcVersion())


@cache
def headers() -> str:
    """What an emitted kernel can include, for cache keys."""
    return "\n".join(path.read_text() for path in sorted(HEADERS.iterdir()))


def compile_text(source: str, arch: str) -> tuple[bytes, str]:
    """The cubin, and the log with what ptxas says of each kernel."""
    library = nvrtc()
    program = check(library.nvrtcCreateProgram(source.encode(), FILE.encode(), 0, [], []))
    try:
        options = [f"--gpu-architecture={arch}".encode(), *[flag.encode() for flag in FLAGS]]
        (status,) = library.nvrtcCompileProgram(program, len(options), options)
        log = fetch(library.nvrtcGetProgramLogSize, library.nvrtcGetProgramLog, program).decode()
        if status != library.nvrtcResult.NVRTC_SUCCESS:
            raise refusal(log, source, arch, status.name)
        return fetch(library.nvrtcGetCUBINSize, library.nvrtcGetCUBIN, program), log
    finally:
        library.nvrtcDestroyProgram(program)


def check(result: tuple[Any, ...]) -> Any:
    """The value of an NVRTC call; its first part is the status."""
    status, *values = result
    if status != nvrtc().nvrtcResult.NVRTC_SUCCESS:
        raise CompilerError(f"NVRTC failed: {status.name}")
    return values[0] if values else None


def fetch(size: Callable[[Any], Any], get: Callable[[Any, bytes], Any], program: Any) -> bytes:
    """A text or an image, which NVRTC writes into bytes that it is given."""
    buffer = bytes(check(size(program)))
    check(get(program, buffer))
    return buffer


def refusal(log: str, source: str, arch: str, status: str) -> CompilerError:
    """The first error of the log: its kernel, and the line of the text it is about."""
    lines = source.splitlines()
    found = re.search(rf"^{re.escape(FILE)}\((\d+)\): (?:catastrophic )?error: (.*)$", log, re.M)
    if found:
        at = int(found[1])
        name = kernel_at("\n".join(lines[:at])) or kernel_at(source) or "a kernel"
        where = f"line {at}: {lines[at - 1].strip()}"
        return CompilerError(f"NVRTC refused {name} for {arch}: {found[2]}", where)
    other = re.search(r"(?:error|fatal)\s*:\s*(.*)", log)
    told = other[1] if other else status
    shared = re.search(r"'(\w+)' uses too much shared data \(0x(\w+) bytes, 0x(\w+) max\)", told)
    if shared:
        taken, limit = (int(number, 16) for number in shared.groups()[1:])
        told = f"{taken} bytes of shared memory in arrays, and {limit} is the most"
        return CompilerError(f"NVRTC refused kernel {shared[1]} for {arch}: {told}")
    return CompilerError(f"NVRTC refused {kernel_at(source) or 'a kernel'} for {arch}: {told}")


def kernel_at(text: str) -> str:
    """`kernel softmax`: the last one that begins in the text."""
    found = re.findall(
        r"__global__ (?:void )?(?:__launch_bounds__\([^)]*\) )?(?:void )?(\w+)\(", text
    )
    return f"kernel {found[-1]}" if found else ""


def resources(log: str) -> dict[str, Resources]:
    """Each kernel's part of what `ptxas -v` prints."""
    parts = re.split(r"Compiling entry function '(\w+)' for '\w+'", log)
    return {
        name: resources_of(name, text) for name, text in zip(parts[1::2], parts[2::2], strict=True)
    }


def resources_of(name: str, text: str) -> Resources:
    own = text.partition(f"Function properties for {name}\n")[2]

    def number(what: str) -> int:
        found = re.search(rf"(\d+) {what}", own)
        return int(found[1]) if found else 0

    spills = number("bytes spill stores") + number("bytes spill loads")
    return Resources(number("registers"), spills, number("bytes stack frame"), number("bytes smem"))
