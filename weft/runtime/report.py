"""The report of a compiled program: kernels, library calls, memory, seconds per stage.

print(f.report)                  # a table of kernels, then externs with their reasons
f.report.kernels[0].predicted_us
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class LaunchReport:
    """How a GPU kernel is launched, and per thread and block what it takes.

    What the compiler tells is None without one.
    """

    grid: int
    block: int
    peak_bytes_per_us: float
    shared_bytes: int | None = None
    registers: int | None = None
    spill_bytes: int | None = None
    occupancy: float | None = None  # of a multiprocessor's threads


@dataclass
class KernelReport:
    """One kernel: times in microseconds; `measured_us` is None until it was profiled.

    `flops` and `bytes` are what it has to compute and to move, as explain/work.py counts them.
    """

    name: str
    symbol: str
    predicted_us: float
    measured_us: float | None = None
    origin: tuple[str, ...] = ()
    launch: LaunchReport | None = None
    flops: int = 0
    bytes: int = 0
    rows: int = 1  # of operands that one launch goes over

    @property
    def percent_of_peak(self) -> float | None:
        """How much of the memory's bandwidth it reaches."""
        if self.launch is None or not self.measured_us:
            return None
        return 100 * self.bytes / self.launch.peak_bytes_per_us / self.measured_us


@dataclass
class Report:
    """What was made, and `seconds` per stage: capture, the six levels, compiler (and cache).

    `externs` are (op, reason, torch source line); `extern_us` their times once profiled.
    """

    name: str
    kernels: list[KernelReport] = field(default_factory=list[KernelReport])
    externs: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    arena_bytes: int = 0
    sizes: list[str] = field(default_factory=list[str])  # that are free: range, size first seen
    cached: bool = False
    reasons: list[str] = field(default_factory=list[str])
    extern_us: list[float] = field(default_factory=list[float])
    # of each program: what its calls keep of constants, bytes by address
    holds: list[Callable[[], Mapping[int, int]]] = field(default_factory=list[Any])

    @property
    def kept_bytes(self) -> int:
        """Bytes that calls keep of parameters and buffers (`freeze`), which programs share."""
        found: dict[int, int] = {}
        for held in self.holds:
            found |= held()
        return sum(found.values())

    @property
    def distinct(self) -> int:
        """How many kernels were compiled: those of one structure are one."""
        return len({kernel.symbol for kernel in self.kernels})

    def measure(self, kernels: Sequence[float], externs: Sequence[float]) -> None:
        """Keep the times of a profiled call."""
        for kernel, spent in zip(self.kernels, kernels, strict=True):
            kernel.measured_us = spent
        self.extern_us = list(externs[: len(self.externs)])  # what follows writes inputs back

    def __str__(self) -> str:
        total = sum(self.seconds.values())
        how = "from the cache" if self.cached else "compiled"
        counts = f"{len(self.kernels)} kernels, {len(self.externs)} externs"
        lines = [f"{self.name}: {counts}, {how} in {total:.3f} s"]
        width = max((len(k.name) for k in self.kernels), default=0)
        for k in self.kernels:
            measured = "" if k.measured_us is None else f"  measured {k.measured_us:10.1f} us"
            rows = f"  {k.rows} rows" if k.rows > 1 else ""
            spent = f"predicted {k.predicted_us:10.1f} us{measured}"
            lines.append(f"  {k.name:<{width}}  {spent}{rows}")
        lines += [
            f"  extern {op}: {reason}" + (f" ({at})" if at else "")
            for op, reason, at in self.externs
        ]
        lines += [f"  size {size}" for size in self.sizes]
        lines += [f"  in eager: {reason}" for reason in self.reasons]
        stages = ", ".join(f"{k} {v:.3f}" for k, v in self.seconds.items())
        memory = f"arena {self.arena_bytes} bytes, kept {self.kept_bytes}"
        return "\n".join([*lines, f"  {memory}; seconds: {stages}"])


def merged(reports: Sequence[Report], reasons: Sequence[str]) -> Report:
    """One report for all graphs of a callable (signatures, forward and backward)."""
    out = Report(reports[0].name if reports else "nothing compiled yet")
    for r in reports:
        out.kernels += r.kernels
        out.externs += r.externs
        out.extern_us += r.extern_us
        out.sizes += r.sizes
        out.holds += r.holds
        out.arena_bytes = max(out.arena_bytes, r.arena_bytes)
        for stage, spent in r.seconds.items():
            out.seconds[stage] = out.seconds.get(stage, 0.0) + spent
    out.cached = bool(reports) and all(r.cached for r in reports)
    out.reasons = list(reasons)
    return out
