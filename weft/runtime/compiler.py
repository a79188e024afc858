"""The C compiler: finding it, its flags, and turning C files into one shared object.

compiler = find_compiler()                     # gcc or clang on PATH, or $WEFT_CC, or $CC
compiler.compile(Path("k.c"), Path("k.o"))     # CompilerError carries the first error line
compiler.link([Path("k.o")], Path("k.so"))
"""

import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

from weft.config import config
from weft.core.errors import CompilerError, NoCompiler
from weft.targets.cpu import cpu_facts, cpu_flags

T = TypeVar("T")

HEADERS = Path(__file__).parent
FLAGS = (  # -fwrapv: integers wrap, as in torch; what is to be one fma says so
    "-O3 -fPIC -pipe -std=gnu11 -fno-math-errno -fno-trapping-math -ffp-contract=off -fwrapv "
    "-Wno-psabi -fno-semantic-interposition -fvisibility=hidden"
).split()
# Each loop has registers of its own; gcc would let what lives across a hot loop spill inside of it.
# No function is in two sections: gcc would leave loops around a check's fault in the cold one, with
# two jumps for each turn.
GCC_FLAGS = ("-fira-region=all", "-fno-reorder-blocks-and-partition")
ISAS = {  # flags for instruction sets by Linux's names, as many as gcc and clang have levels for
    "avx2": ("-march=x86-64-v3",),
    "avx512f": ("-march=x86-64-v4",),
    "avx512_bf16": ("-march=x86-64-v4", "-mavx512bf16"),
}
INSTALL = (
    "install one with `xcode-select --install`"
    if sys.platform == "darwin"
    else "install one with `apt install gcc` (or your system's gcc or clang package)"
)


@dataclass(frozen=True)
class Compiler:
    """A C compiler: the command, what it says its version is, and the flags it is given."""

    command: tuple[str, ...]
    version: str
    flags: tuple[str, ...]

    @property
    def identity(self) -> str:
        """All that the machine code depends on besides the source, for cache keys."""
        return "\n".join([*self.command, self.version, *self.flags])

    def compile(self, source: Path, output: Path) -> None:
        """Compile one C file to an object; a refusal names the file, which is left in place."""
        self.run(["-I", str(HEADERS), *self.flags, "-c", str(source), "-o", str(output)], source)

    def preprocess(self, source: Path) -> str:
        """A C file after its directives, without line markers."""
        return self.run(["-I", str(HEADERS), *self.flags, "-E", "-P", str(source)], source)

    def link(self, objects: Sequence[Path], output: Path) -> None:
        """Link objects into a shared object."""
        self.run(["-shared", "-pthread", "-o", str(output), *map(str, objects), "-lm"], output)

    def run(self, arguments: list[str], where: Path) -> str:
        """What the compiler prints; CompilerError with its first error line when it fails."""
        try:
            done = subprocess.run(
                [*self.command, *arguments], capture_output=True, text=True, errors="replace"
            )
        except OSError as e:
            raise NoCompiler(f"cannot run {self.command[0]}: {e.strerror}", str(where)) from e
        if done.returncode != 0:
            message = first_error(done.stderr) or f"exit status {done.returncode}"
            raise CompilerError(
                f"{self.command[0]} refused a generated file: {message}", str(where)
            )
        return done.stdout


def first_error(stderr: str) -> str:
    """The first line that says `error`, else the first line that says anything."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line.lower()), lines[0] if lines else "")


def find_compiler(override: str | None = config.compiler, isa: str = "") -> Compiler:
    """The compiler to use: `override` ($WEFT_CC), else $CC, else gcc, clang or cc on PATH.

    It compiles for `isa` (one of ISAS) where this machine has that, else for this machine.
    """
    return inspect_compiler(locate(override or os.environ.get("CC")), isa)


def locate(override: str | None) -> tuple[str, ...]:
    """The compiler's command with an absolute path; NoCompiler when there is none."""
    if override:
        name, *rest = shlex.split(override)
        path = shutil.which(name)
        if path is None:
            raise NoCompiler(
                f"the C compiler {name!r} set by WEFT_CC or CC is not on PATH: {INSTALL}"
            )
        return (path, *rest)
    for name in ("gcc", "clang", "cc"):
        path = shutil.which(name)
        if path is not None:
            return (path,)
    raise NoCompiler(f"weft needs a C compiler and found neither gcc nor clang: {INSTALL}")


@cache
def inspect_compiler(command: tuple[str, ...], isa: str = "") -> Compiler:
    """Ask a compiler for its version and which flag selects this machine; once per process."""
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as e:
        raise NoCompiler(f"cannot run {command[0]}: {INSTALL}") from e
    if done.returncode != 0:
        raise NoCompiler(f"`{command[0]} --version` failed: {first_error(done.stderr)}")
    version = done.stdout.splitlines()[0] if done.stdout else "unknown"
    own = GCC_FLAGS if "Free Software Foundation" in done.stdout else ()
    machine = ISAS[isa] if isa in cpu_flags(cpu_facts()) else native_flag(command)
    return Compiler(command, version, (*FLAGS, *own, *machine))


def native_flag(command: tuple[str, ...]) -> tuple[str, ...]:
    """The flag for this machine's instruction set: -march=native, -mcpu=native, or none."""
    if platform.machine() in ("x86_64", "AMD64"):
        return ("-march=native",)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.c")
        source.write_text("int probe;\n")
        for flag in ("-march=native", "-mcpu=native"):
            arguments = [*command, "-Werror", flag, "-c", str(source), "-o", f"{folder}/probe.o"]
            if subprocess.run(arguments, capture_output=True).returncode == 0:
                return (flag,)
    return ()


@cache
def cpu_features() -> str:
    """The machine's instruction set extensions in one line: what -march=native depends on."""
    facts = cpu_facts()
    named = [facts[name] for name in ("CPU implementer", "CPU part", "model name") if name in facts]
    words = sorted(cpu_flags(facts))
    return " ".join([platform.machine(), *(named or [platform.processor()]), *words])


def run_all(jobs: Iterable[Callable[[], T]]) -> list[T]:
    """Run compile jobs side by side, one per processor this process may use; results in order.

    The first failure is raised once the jobs already running have ended.
    """
    with ThreadPoolExecutor(processors()) as pool:  # which starts no thread that has no job
        return list(pool.map(lambda job: job(), jobs))


def processors() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
