"""What the cost model and the passes ask of any machine, CPU or GPU.

A GPU is described in the same words: a core is a multiprocessor, a vector register a warp's.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Rates are per core; bytes unless a unit is named."""

    vector_bytes: int
    vector_registers: int = 32
    l2: int = 1 << 20  # what one core has to itself
    l3: int = 16 << 20  # what the cores share
    cores: int = 2
    vector_ops_per_ns: float = 5.0  # vector instructions started per nanosecond
    cache_bytes_per_ns: float = 60.0  # streaming from L2
    l3_bytes_per_ns: float = 40.0  # streaming from L3
    memory_bytes_per_ns: float = 14.0  # streaming from memory, all cores together twice this
    sector: int = 1  # bytes that memory moves at least, where a price counts them
    table: int | None = None  # most elements of a table that a scatter changes; None: any number
    launch_us: float = 0.5  # one more kernel in a program
    fork_us: float = 2.0  # one more parallel region
    body: float = 512.0  # vector instructions of an iteration that are fetched as fast as they run
    operands: int = 64  # buffers of a kernel that share their bandwidth well
    pairs: bool = False  # one instruction multiplies and adds pairs of bf16

    def lanes(self, element_bytes: int) -> int:
        return max(1, self.vector_bytes // element_bytes)

    @property
    def register_tile(self) -> tuple[int, int]:
        """Rows and vectors of accumulators of a contraction: rows * vectors + operands fit."""
        return (8, 2) if self.vector_registers >= 32 else (4, 2)
