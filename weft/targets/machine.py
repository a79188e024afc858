"""The facts about a machine, CPU or GPU, that the cost model and the passes use.

Of a GPU a core is a multiprocessor, and a vector register is a register of all threads of a warp.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Facts about a machine. Rates are per core; sizes are in bytes unless a unit is named."""

    vector_bytes: int
    vector_registers: int = 32
    l2: int = 1 << 20  # cache of one core
    l3: int = 16 << 20  # cache that the cores share
    cores: int = 2
    vector_ops_per_ns: float = 5.0  # vector instructions started per nanosecond
    cache_bytes_per_ns: float = 60.0  # streaming from L2
    l3_bytes_per_ns: float = 40.0  # streaming from L3
    memory_bytes_per_ns: float = 14.0  # streaming from memory; twice this on the two default cores
    line_ns: float = 11.0  # a cache line that nothing fetches ahead, from L3 or memory
    sector: int = 1  # bytes of the smallest transfer from memory; 1: prices ignore it
    table_elements: int | None = None  # most of a table that a scatter updates; None: no limit
    atomics: tuple[tuple[str, str], ...] = ()  # how threads combine values in memory, of dtypes
    launch_us: float = 0.5  # one more kernel in a program
    fork_us: float = 2.0  # one more parallel region
    collective_us: float = 300.0  # one more collective: gloo between processes of one machine
    network_bytes_per_ns: float = 0.3  # a collective's data, as gloo moves it there
    kernel_instructions: float = 512.0  # most of an iteration, in vectors: more miss the caches
    kernel_buffers: int = 64  # most buffers of a kernel: with more, bandwidth drops
    operands: int | None = None  # most that a launch takes; None: no limit
    library: tuple[str, ...] = ()  # scatters that ATen's kernels do faster than tables
    tabled: tuple[str, ...] = ()  # more of these, where stores combine no floats
    tiled: tuple[str, ...] = ()  # products that ATen computes of bf16 in tiles, for which no C is
    pairs: bool = False  # one instruction multiplies and adds pairs of bf16
    quads: bool = False  # one instruction multiplies and adds four bytes by four

    def transfer_us(self, size: int) -> float:
        """Microseconds of a collective that moves so many bytes."""
        return self.collective_us + size / self.network_bytes_per_ns / 1e3

    def lanes(self, element_bytes: int) -> int:
        return max(1, self.vector_bytes // element_bytes)

    @property
    def register_tile(self) -> tuple[int, int]:
        """Rows and vectors of a contraction's accumulators, which leave registers for operands."""
        return (8, 2) if self.vector_registers >= 32 else (6, 2)
