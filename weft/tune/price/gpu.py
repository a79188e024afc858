"""The exact price of a scheduled kernel on an NVIDIA GPU, counted from the kernel level.

counts(kernel, GPUS["cuda:sm_90a"]).wavefronts     # of shared memory, of the whole launch
price(kernel, GPUS["cuda:sm_90a"])                 # Price(us=11.2, bound="memory", ...)

time = launch + the longest of
    what multiprocessors do in waves of as many blocks as fit: the cycles of the busiest pipe for
    all of them, or for one and its waits, or what one warp goes through
    the bytes that move past the first-level caches, and past the last one
The facts are in rates.py and targets/. No device has confirmed the price.
"""

import math
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from weft.core.errors import WeftError, choice
from weft.scalar.nest import Buffer, Kernel
from weft.scalar.sizes import hint
from weft.targets.gpu import GPU
from weft.targets.nvidia import REGISTERS, RESERVED, RESIDENT
from weft.tune.price.gpu_rates import LINE, RATES, SCHEDULERS, STREAMS
from weft.tune.price.launch import Touch
from weft.tune.price.walk import Counts, Walk
from weft.tune.price.warps import SECTOR

MOST = 255  # registers of a thread
NEAR = 1.25  # times what else bounds a kernel, up to which its latency is told as that
LOOKED_AT = 6  # iterations of a loop


class Price(NamedTuple):
    """Microseconds, what bounds them, and the microseconds at the machine's peak.

    bound   a pipe (fma, tensor cores, shared memory ...), "L1" (lines that it looks up), "L2" or
            "memory" (bytes from there), "atomics" (of L2), "latency", or "launch"
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
    choice("target with an exact price", getattr(target, "arch", "a CPU"), RATES)
    return Walk(kernel, target, most).counts


def price(kernel: Kernel, target: GPU, most: int = LOOKED_AT) -> Price:
    """The predicted time of one launch, and what bounds it; WeftError where no block fits."""
    found = counts(kernel, target, most)
    resident, mhz = _resident(found, target), _mhz(target)
    pipes = cycles_by_pipe(found, target)
    fit = target.cores * resident
    near, far = bytes_moved(found, target, fit)
    turns, waves = _turns(found.blocks, target.cores, resident), -(-found.blocks // fit)
    cycles = {name: n / found.blocks * turns for name, n in pipes.items()}
    alone = max(pipes.values()) / found.blocks + found.stalled  # of a block: others may hide it
    us = {name: n / mhz for name, n in cycles.items()}
    us["L2"] = near / (target.l3_bytes_per_ns * target.cores) / 1e3
    us["atomics"] = atomic_cycles(found, target) / mhz
    us["memory"] = far / (target.memory_bytes_per_ns * target.cores * STREAMS) / 1e3
    bound, latency = max(us, key=lambda name: us[name]), waves * found.cycles / mhz
    longest = max(us[bound], latency, waves * alone / mhz)
    bound = bound if latency <= NEAR * us[bound] else "latency"
    bound = bound if longest >= target.launch_us else "launch"
    peak = max(arithmetic_us(found, target), bytes_us((*kernel.inputs, *kernel.outputs), target))
    return Price(longest + target.launch_us, bound, peak, found)


def _mhz(target: GPU) -> float:
    return 1e3 * target.vector_ops_per_ns / SCHEDULERS


def _turns(blocks: int, cores: int, resident: int) -> int:
    """Blocks that the busiest multiprocessor has: the last wave is not full."""
    full, rest = divmod(blocks, cores * resident)
    return full * resident + -(-rest // cores)


def _resident(found: Counts, target: GPU) -> int:
    """Blocks that a multiprocessor has at once."""
    threads, blocks, memory = RESIDENT[target.arch]
    warps = -(-found.threads // target.warp)
    registers = min(MOST, math.ceil(found.registers))
    held = -(-registers * target.warp // 256) * 256 * warps
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
    cycles["shared memory"] = found.wavefronts + (found.unit_bytes + held) / LINE
    cycles["shared memory"] += found.slots.get("shuffle", 0.0)
    cycles["L1"] = sum(t.lines for t in reach)
    speeds = {"mma": rates.mma, "wgmma": rates.wgmma}
    cycles["tensor cores"] = sum(n / speeds[kind] for kind, n in found.products.items())
    return cycles


def bytes_moved(found: Counts, target: GPU, fit: int) -> tuple[float, float]:
    """Bytes past the first-level caches, and past the last one; `fit` blocks run at once.

    What a statement touches again, or one beside it, is in the first-level cache; what others touch
    again as well, where that holds all. What other blocks of a wave touch is in the last one.
    """
    of_buffers, wave = dict[Buffer, list[Touch]](), min(fit, found.blocks)
    for touch in found.touches:
        if touch.buffer.space == "global":
            of_buffers.setdefault(touch.buffer, []).append(touch)
    near, new, block, once, again = 0.0, 0.0, 0.0, 0.0, 0.0
    for buffer, touches in of_buffers.items():
        size, whole, more, share = hint(buffer.bytes), 0.0, 0.0, _share(touches)
        places = {t.place for t in touches}
        near_by = {p: _share([t for t in touches if t.place == p]) for p in places}
        for t in touches:
            parts = math.prod(found.grid[i] for i in t.moves)
            own = min(parts * t.footprint, size)
            moved = min(found.blocks / parts * own, t.units * SECTOR)
            turns = _parts_of_wave(found.grid, t.moves, wave) * found.blocks / wave / parts
            near, new = near + moved * near_by[t.place], new + moved * share
            block += t.footprint * share
            whole, more = whole + own, more + own * max(turns, 1.0)
        ways = 1 + any(t.kind == "atomic" for t in touches)  # read, and written again
        once += ways * min(whole * share, size)
        again += ways * max(more * share, min(whole * share, size))
    fits = fit / target.cores * (block + found.shared_bytes) <= RATES[target.arch].l1
    near = new if fits else near
    return near, once if once <= target.l3 else min(again, near)


def _share(touches: Sequence[Touch]) -> float:
    """The share of what accesses of a buffer touch that another has not touched before."""
    each = sum(len(t.some) for t in touches)
    return len(frozenset[int]().union(*(t.some for t in touches))) / each if each else 1.0


def _parts_of_wave(grid: Sequence[int], moves: tuple[int, ...], fit: int) -> int:
    """How many different parts of a buffer the blocks of a wave touch."""
    if not moves:
        return 1
    places = np.unravel_index(np.arange(fit), grid)
    return len(np.unique(np.stack([places[i] for i in moves]), axis=1).T)


def atomic_cycles(found: Counts, target: GPU) -> float:
    """Cycles of the slices of L2 for atomic stores, of the busiest where a buffer is small."""
    total = 0.0
    for t in found.touches:
        if t.kind == "atomic" and t.buffer.space == "global":
            total += t.turns / min(RATES[target.arch].slices, -(-hint(t.buffer.bytes) // SECTOR))
    return total


def arithmetic_us(found: Counts, target: GPU) -> float:
    """The time of a launch's multiply-adds at the machine's peak, of threads or of tensor cores."""
    rates = RATES[target.arch]
    cycles = found.slots.get("fma", 0.0) * target.warp / rates.lanes["fma"]
    cycles = max(cycles, sum(found.products.values()) / max(rates.mma, rates.wgmma))
    return cycles / target.cores / _mhz(target)


def bytes_us(buffers: Collection[Buffer], target: GPU) -> float:
    """The time to move buffers once at the peak bandwidth of the memory."""
    whole = sum(hint(b.bytes) for b in set(buffers))
    return whole / (target.memory_bytes_per_ns * target.cores) / 1e3
