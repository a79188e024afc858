"""Facts about CPUs as data: vector width, registers, caches, rates.

t = host()              # the CPU of this process
t.lanes(4)              # f32 elements of a vector register
CPUS["avx2"]            # another one; also CPUS["avx512"], CPUS["neon"], CPUS["plain"]
"""

import os
import platform
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from weft.targets.machine import Machine


@dataclass(frozen=True, kw_only=True)
class CPU(Machine):
    """One CPU target. Its C is for `isa`, by Linux's name, where this machine has that."""

    language: str = "c"
    isa: str = ""  # none: all that this machine has


# oneDNN multiplies tiles of bf16 where a CPU has AMX, several times as fast as vectors of pairs.
TILED = tuple(f"aten.{n}.default" for n in "mm addmm bmm baddbmm linear matmul convolution".split())

CPUS = {
    "avx512": CPU(vector_bytes=64, isa="avx512f"),
    "avx512_bf16": CPU(vector_bytes=64, pairs=True, quads=True, isa="avx512_bf16"),
    "avx2": CPU(vector_bytes=32, vector_registers=16, isa="avx2"),
    "neon": CPU(vector_bytes=16),
    "plain": CPU(vector_bytes=16, vector_registers=16),
}


def _cache_bytes(level: int, default: int) -> int:
    """The size of the cache of level 2 or 3. In sysfs index0 and index1 are both of level 1."""
    try:
        text = Path(f"/sys/devices/system/cpu/cpu0/cache/index{level}/size").read_text().strip()
        return int(text.rstrip("KM")) * {"K": 1 << 10, "M": 1 << 20}.get(text[-1:], 1)
    except (OSError, ValueError):
        return default


def cpu_facts() -> dict[str, str]:
    """The first processor's entry of /proc/cpuinfo, with its "model name"; empty without one."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return {}
    parts = (line.partition(":") for line in reversed(lines))
    return {name.strip(): value.strip() for name, _, value in parts}


def cpu_flags(facts: dict[str, str]) -> set[str]:
    """The instruction set extensions, by the names of Linux: "avx2", "asimd"."""
    return set((facts.get("flags") or facts.get("Features", "")).split())


def isa_name() -> str:
    """The row of CPUS for this machine."""
    if platform.machine().lower() in ("arm64", "aarch64"):
        return "neon"
    flags = cpu_flags(cpu_facts())
    return next((n for n in ("avx512_bf16", "avx512", "avx2") if CPUS[n].isa in flags), "plain")


@cache
def host() -> CPU:
    """The CPU this process runs on."""
    cpu, cores = CPUS[isa_name()], os.cpu_count() or 1
    caches = {"l2": _cache_bytes(2, cpu.l2), "l3": _cache_bytes(3, cpu.l3)}
    tiled = TILED if "amx_bf16" in cpu_flags(cpu_facts()) else ()
    return replace(cpu, **caches, cores=cores, isa="", tiled=tiled)
