"""Facts about CPUs as data: vector width, registers, caches, rates.

t = host()              # the machine this runs on
t.lanes(4)              # f32 elements of a vector register
t.name                  # "cpu"; by hand: CPUS["avx2"], CPUS["neon"], CPUS["plain"]
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class CPU:
    """One CPU target. Rates are per core; bytes unless a unit is named."""

    name: str
    isa: str
    vector_bytes: int
    vector_registers: int
    l1: int = 32 << 10
    l2: int = 1 << 20
    l3: int = 16 << 20
    cores: int = 2
    vector_ops_per_ns: float = 5.0  # vector instructions started per nanosecond
    cache_bytes_per_ns: float = 60.0  # streaming from L2
    l3_bytes_per_ns: float = 40.0  # streaming from L3
    memory_bytes_per_ns: float = 14.0  # streaming from memory, all cores together twice this
    launch_us: float = 0.5  # one more kernel in a program
    fork_us: float = 2.0  # one more parallel region
    pairs: bool = False  # one instruction multiplies and adds pairs of bf16

    def lanes(self, element_bytes: int) -> int:
        return max(1, self.vector_bytes // element_bytes)

    @property
    def register_tile(self) -> tuple[int, int]:
        """Rows and vectors of accumulators of a contraction: rows * vectors + operands fit."""
        return (8, 2) if self.vector_registers >= 32 else (4, 2)


CPUS = {
    "avx512": CPU("cpu", "avx512", 64, 32),
    "avx512_bf16": CPU("cpu", "avx512", 64, 32, pairs=True),
    "avx2": CPU("cpu", "avx2", 32, 16),
    "neon": CPU("cpu", "neon", 16, 32),
    "plain": CPU("cpu", "plain", 16, 16),
}


def _cache_bytes(level: int, default: int) -> int:
    for index in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            kind = (index / "type").read_text().strip()
            if kind != "Instruction" and int((index / "level").read_text()) == level:
                text = (index / "size").read_text().strip()
                scale = {"K": 1 << 10, "M": 1 << 20}.get(text[-1], 1)
                return int(text.rstrip("KM")) * scale
        except (OSError, ValueError):
            continue
    return default


def _isa() -> str:
    if platform.machine().lower() in ("arm64", "aarch64"):
        return "neon"
    try:
        flags = Path("/proc/cpuinfo").read_text()
    except OSError:
        return "plain"
    known = {"avx512_bf16": "avx512_bf16", "avx512f": "avx512", "avx2": "avx2"}
    return next((isa for flag, isa in known.items() if f" {flag}" in flags), "plain")


@cache
def host() -> CPU:
    """The CPU this process runs on."""
    cpu = CPUS[_isa()]
    return replace(
        cpu,
        l1=_cache_bytes(1, cpu.l1),
        l2=_cache_bytes(2, cpu.l2),
        l3=_cache_bytes(3, cpu.l3),
        cores=os.cpu_count() or 1,
    )
