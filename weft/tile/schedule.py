"""The steps from a loop nest to a scheduled kernel, in order."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from weft.core.errors import WeftError, choice
from weft.scalar.blocks import loops_in, nodes
from weft.scalar.nest import Kernel, Program
from weft.targets.cpu import CPU
from weft.targets.gpu import GPU
from weft.targets.machine import Machine
from weft.tile.passes.both.block_sums import block_sums
from weft.tile.passes.both.collapse_loops import collapse_loops
from weft.tile.passes.cpu.block_contraction import block_contraction
from weft.tile.passes.cpu.parallelize_loops import parallelize_loops
from weft.tile.passes.cpu.prefetch_rows import prefetch_rows
from weft.tile.passes.cpu.skip_masked import skip_masked
from weft.tile.passes.cpu.split_ranges import split_ranges
from weft.tile.passes.cpu.split_reduction import split_reduction
from weft.tile.passes.cpu.stage_rows import stage_rows
from weft.tile.passes.cpu.stage_transposes import stage_transposes
from weft.tile.passes.cpu.stream_stores import stream_stores
from weft.tile.passes.cpu.tile_dot_products import tile_dot_products
from weft.tile.passes.cpu.vectorize_loops import vectorize_loops
from weft.tile.passes.cpu.widen_folds import widen_folds
from weft.tile.passes.gpu.async_copy import async_copy
from weft.tile.passes.gpu.blockify_launch import blockify_launch
from weft.tile.passes.gpu.chunk_matmul_k import chunk_matmul_k
from weft.tile.passes.gpu.cooperative_reduce import cooperative_reduce
from weft.tile.passes.gpu.double_buffer import double_buffer
from weft.tile.passes.gpu.mark_unroll import mark_unroll
from weft.tile.passes.gpu.own_rows import own_rows
from weft.tile.passes.gpu.pad_smem import pad_smem
from weft.tile.passes.gpu.permute_register_tile import permute_register_tile
from weft.tile.passes.gpu.pipeline_k_outer import pipeline_k_outer
from weft.tile.passes.gpu.register_tile import register_tile
from weft.tile.passes.gpu.split_inner_for_swizzle import split_inner_for_swizzle
from weft.tile.passes.gpu.stage_inputs import stage_inputs
from weft.tile.passes.gpu.tensorize_mma import tensorize_mma
from weft.tile.passes.gpu.tensorize_wgmma import tensorize_wgmma
from weft.tile.passes.gpu.tileify import tileify
from weft.tile.passes.gpu.tma_copy import tma_copy
from weft.tile.passes.programs.chunk_reduce import chunk_reduce
from weft.tile.passes.programs.merge_rows import merge_rows
from weft.tile.passes.programs.narrow_buffers import narrow_buffers
from weft.tile.passes.programs.pack_constants import pack_constants
from weft.tile.passes.programs.split_matmul_k import split_matmul_k

Step = Callable[[Kernel, Machine], Kernel]
GPUStep = Callable[[Kernel, GPU], Kernel]
T = TypeVar("T", bound=Callable[..., Any])


def numbered(*passes: T, first: int = 1) -> tuple[tuple[str, T], ...]:
    """Passes in the order in which they run, each with its name: 001_tileify, 002_..."""
    return tuple((f"{i:03}_{p.__name__}", p) for i, p in enumerate(passes, first))


# Passes over the whole program, at the loop level. Their parameters are the program and, by name,
# what they need: the target, the price of a kernel's body in us, the inputs that are constants.
CPU_PROGRAM: tuple[tuple[str, Callable[..., Program]], ...] = numbered(
    pack_constants,
    merge_rows,
)
GPU_PROGRAM: tuple[tuple[str, Callable[..., Program]], ...] = numbered(
    narrow_buffers,
    chunk_reduce,  # before what it merges is split over the grid
    split_matmul_k,
)
MERGES = (merge_rows, chunk_reduce)  # which fuse="none" and fuse="all" leave out

# Passes over kernels, on a CPU. Their numbers go on from those of CPU_PROGRAM. Order matters:
# contractions claim their loops before what is left gets a vector axis, and threads come after,
# when the price of a nest is that of its final form. Sums are blocked last: their loops no longer
# have literal lengths.
CPU_SCHEDULE: tuple[tuple[str, Step], ...] = numbered(
    split_ranges,
    collapse_loops,
    tile_dot_products,
    block_contraction,
    split_reduction,
    stage_rows,
    stage_transposes,
    vectorize_loops,
    parallelize_loops,
    widen_folds,
    block_sums,
    stream_stores,
    skip_masked,
    prefetch_rows,
    first=len(CPU_PROGRAM) + 1,
)

# Passes over kernels, on a GPU. Their numbers go on from those of GPU_PROGRAM.
GPU_SCHEDULE: tuple[tuple[str, GPUStep], ...] = numbered(
    collapse_loops,
    tileify,
    chunk_matmul_k,
    cooperative_reduce,
    blockify_launch,
    stage_inputs,
    tensorize_mma,  # in place of registers, where the target has them
    register_tile,
    permute_register_tile,
    double_buffer,
    tma_copy,
    split_inner_for_swizzle,
    own_rows,
    tensorize_wgmma,
    async_copy,
    pad_smem,
    pipeline_k_outer,
    mark_unroll,
    block_sums,
    first=len(GPU_PROGRAM) + 1,
)


class Schedule(NamedTuple):
    """The passes of a target, each with its name: first over the program, then over each kernel."""

    program: tuple[tuple[str, Callable[..., Program]], ...]
    kernels: tuple[tuple[str, Callable[..., Kernel]], ...]


def schedule_for(target: CPU | GPU, left_out: Sequence[str] = (), merges: bool = True) -> Schedule:
    """The schedule of a target without some passes, which may be named stage_inputs or 009.

    Without `merges` no pass merges kernels.
    """
    on_gpu = isinstance(target, GPU)
    program, kernels = (GPU_PROGRAM, GPU_SCHEDULE) if on_gpu else (CPU_PROGRAM, CPU_SCHEDULE)
    known = {alias: name for name, _ in (*program, *kernels) for alias in (name[4:], name[:3])}
    left = {known[choice("pass", alias, known)] for alias in left_out}
    left |= {name for name, step in program if step in MERGES and not merges}
    return Schedule(
        tuple((name, step) for name, step in program if name not in left),
        tuple((name, step) for name, step in kernels if name not in left),
    )


def check_machine(program: Program, target: CPU | GPU) -> None:
    """WeftError for a kernel of the tile or kernel level that was scheduled for other machines."""
    on_gpu = isinstance(target, GPU)
    theirs = r"parallel|vector\d+" if on_gpu else r"grid|thread"
    for kernel in program.kernels:
        binds = (loop.bind for loop in loops_in(kernel.body))
        found = next((f"{b} loops" for b in binds if re.fullmatch(theirs, b)), None)
        if on_gpu and any(term.type.lanes > 1 for term in nodes(kernel.body)):
            found = "vectors"
        if found is not None:
            told = f"kernel {kernel.name} has {found}: it is for a {'CPU' if on_gpu else 'GPU'}"
            raise WeftError(f"{told}; choose the target that it was scheduled for")
