"""The exact price of a scheduled kernel on an NVIDIA GPU, counted from the kernel level.

counts(kernel, GPUS["cuda:sm_90a"]).wavefronts     # of shared memory, of the whole launch
price(kernel, GPUS["cuda:sm_90a"])                 # Price(us=11.2, bound="far", ...)

time = launch + the longest of
    what multiprocessors do in waves of as many blocks as fit: the cycles of the busiest pipe for
    all of them, or for one and its waits, or what one warp goes through
    the bytes that move past the first-level caches, and past the last one
The facts are in rates.py and targets/. No device has confirmed the price.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from weft.core.errors import WeftError, choice
from weft.scalar.nest import Buffer, Kernel
from weft.scalar.sizes import hint
from weft.targets.gpu import GPU
from weft.targets.nvidia import REGISTERS, RESERVED, RESIDENT
from weft.tune.price.launch import Touch
from weft.tune.price.gpu_rates import LINE, RATES, SCHEDULERS, STREAMS
from weft.tune.price.walk import Walk
from weft.tune.price.warps import SECTOR

BASE, MOST = 24, 255  # registers of a thread beside its values, and at most
LOOKED_AT = 6  # iterations of a loop


@dataclass(frozen=True)
class Counts:
    """What a launch does. Instructions, requests and the like are of warps, and of all blocks.

    grid        iterations of the loops of the grid
    slots       instructions by pipe
    products    multiply-adds of tensor cores, by instruction
    unit_bytes  of shared memory, that warpgroups read and the copy engine writes
    barriers    of one block
    cycles      of one warp from its first to its last instruction, where it waits for no other
    stalled     of these, those in which all warps of its block wait: for copies, at barriers
    """

    grid: tuple[int, ...]
    threads: int
    shared_bytes: int
    registers: int
    slots: Mapping[str, float]
    products: Mapping[str, float]
    touches: tuple[Touch, ...]
    unit_bytes: float
    barriers: float
    cycles: float
    stalled: float

    @property
    def blocks(self) -> int:
        return math.prod(self.grid)

    @property
    def wavefronts(self) -> float:
        return sum(t.units for t in self.touches if t.buffer.space == "shared")

    @property
    def sectors(self) -> float:
        return sum(t.units for t in self.touches if t.buffer.space == "global")


class Price(NamedTuple):
    """Microseconds, what bounds them, and the microseconds at the machine's peak.

    bound   a pipe (fma, tensor, shared ...), "near" or "far" (bytes past the first-level caches and
            past the last one), "latency", or "launch"
    peak_us of its arithmetic (fused multiply-adds of threads, of tensor cores) or of the bytes of
            its buffers, whichever is more
    """

    us: float
    bound: str
    peak_us: float
    counts: Counts


def counts(kernel: Kernel, target: GPU, most: int = LOOKED_AT) -> Counts:
    """Count a kernel of the kernel level; of a loop, `most` iterations are looked at.

    WeftError for a target without rates.
    """
    choice("target with an exact price", target.arch, RATES)
    walk = Walk(kernel, target, most)
    shape, registers = tuple(walk.launch.grid), min(MOST, BASE + math.ceil(walk.registers))
    facts = walk.slots, walk.products, tuple(walk.touches), walk.unit_bytes
    barriers = walk.barriers / math.prod(shape)
    block = walk.emitted.block, walk.emitted.shared_bytes, registers
    return Counts(shape, *block, *facts, barriers, walk.cycles, walk.stalled)


def kernel_us(kernel: Kernel, target: GPU) -> float:
    """The predicted time of one launch in microseconds."""
    return price(kernel, target).us


def price(kernel: Kernel, target: GPU) -> Price:
    """The predicted time of one launch, and what bounds it; WeftError where no block fits."""
    found = counts(kernel, target)
    ghz, resident = _ghz(target), _resident(found, target)
    pipes = cycles_by_pipe(found, target)
    fit = target.cores * resident
    near, far = bytes_moved(found, target, fit)
    turns, waves = _turns(found.blocks, target.cores, resident), -(-found.blocks // fit)
    cycles = {name: n / found.blocks * turns for name, n in pipes.items()}
    alone = max(pipes.values()) / found.blocks + found.stalled  # of a block: others may hide it
    us = {name: n / ghz / 1e3 for name, n in (*cycles.items(), ("latency", waves * found.cycles))}
    us["near"] = near / (target.l3_bytes_per_ns * target.cores) / 1e3
    us["far"] = far / (target.memory_bytes_per_ns * target.cores * STREAMS) / 1e3
    bound = max(us, key=lambda name: us[name])
    most = max(us[bound], waves * alone / ghz / 1e3)
    bound = bound if most >= target.launch_us else "launch"
    return Price(most + target.launch_us, bound, peak_us(kernel, found, target), found)


def _turns(blocks: int, cores: int, resident: int) -> int:
    """Blocks that the busiest multiprocessor has: the last wave is not full."""
    full, rest = divmod(blocks, cores * resident)
    return full * resident + -(-rest // cores)


def _ghz(target: GPU) -> float:
    return target.vector_ops_per_ns / SCHEDULERS


def _resident(found: Counts, target: GPU) -> int:
    """Blocks that a multiprocessor has at once."""
    threads, blocks, memory = RESIDENT[target.arch]
    warps = -(-found.threads // target.warp)
    held = -(-found.registers * target.warp // 256) * 256 * warps
    fit = blocks, threads // (target.warp * warps), REGISTERS // held
    most = min(*fit, (memory << 10) // (found.shared_bytes + RESERVED))
    if not most and fit[2]:
        told = f"{found.shared_bytes} bytes of shared memory"
        raise WeftError(f"no block of {told} fits a multiprocessor of {target.arch}")
    return max(most, 1)  # with fewer registers: the compiler spills


def cycles_by_pipe(found: Counts, target: GPU) -> dict[str, float]:
    """Cycles of one multiprocessor that did all the work of a launch, by what does it."""
    rates, warp = RATES[target.arch], target.warp
    cycles = {p: found.slots.get(p, 0.0) * warp / lanes for p, lanes in rates.lanes.items()}
    cycles["issue"] = sum(found.slots.values()) / SCHEDULERS
    reach = [t for t in found.touches if t.buffer.space == "global"]
    held = sum(t.units for t in reach if t.kind != "copy") * SECTOR  # others pass by the registers
    cycles["shared"] = found.wavefronts + (found.unit_bytes + held) / LINE
    cycles["shared"] += found.slots.get("shuffle", 0.0)
    cycles["lines"] = sum(t.lines for t in reach)
    speeds = {"mma": rates.mma, "wgmma": rates.wgmma}
    cycles["tensor"] = sum(n / speeds[kind] for kind, n in found.products.items())
    return cycles


def bytes_moved(found: Counts, target: GPU, fit: int) -> tuple[float, float]:
    """Bytes past the first-level caches, and past the last one; `fit` blocks run at once.

    What a block touches again is in the first-level cache, what other blocks of its wave touch in
    the last one; all of a launch where that holds it.
    """
    near, far, wave = 0.0, dict[Buffer, list[Touch]](), min(fit, found.blocks)
    for touch in found.touches:
        if touch.buffer.space == "global":
            far.setdefault(touch.buffer, []).append(touch)
    once, again = 0.0, 0.0
    for buffer, touches in far.items():
        size, whole, more = hint(buffer.bytes), 0.0, 0.0
        for t in touches:
            parts = math.prod(found.grid[i] for i in t.moves)
            own = min(parts * t.footprint, size)
            near += min(found.blocks / parts * own, t.units * SECTOR)
            turns = _parts_of_wave(found.grid, t.moves, wave) * found.blocks / wave / parts
            whole, more = whole + own, more + own * max(turns, 1.0)
        share = _share(touches)
        once += min(whole * share, size)
        again += max(more * share, min(whole * share, size))
    return near, once if once <= target.l3 else min(again, near)


def _share(touches: Sequence[Touch]) -> float:
    """The share of what accesses of a buffer touch that another has not touched before."""
    each = sum(len(t.some) for t in touches)
    return len(frozenset[int]().union(*(t.some for t in touches))) / each if each else 1.0


def _parts_of_wave(grid: tuple[int, ...], moves: tuple[int, ...], fit: int) -> int:
    """How many different parts of a buffer the blocks of a wave touch."""
    if not moves:
        return 1
    places = np.unravel_index(np.arange(fit), grid)
    return len(np.unique(np.stack([places[i] for i in moves]), axis=1).T)


def peak_us(kernel: Kernel, found: Counts, target: GPU) -> float:
    """The time at the machine's peak: of its multiply-adds, or to move its buffers once."""
    rates = RATES[target.arch]
    cycles = found.slots.get("fma", 0.0) * target.warp / rates.lanes["fma"]
    cycles = max(cycles, sum(found.products.values()) / max(rates.mma, rates.wgmma))
    buffers = sum(hint(b.bytes) for b in {*kernel.inputs, *kernel.outputs})
    moved = buffers / (target.memory_bytes_per_ns * target.cores)
    return max(cycles / target.cores / _ghz(target), moved) / 1e3
