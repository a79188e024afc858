"""The steps from a loop nest to a scheduled kernel, in order."""

from __future__ import annotations

import re
from collections.abc import Callable

from weft.core.errors import WeftError
from weft.scalar.blocks import nodes
from weft.scalar.nest import For, Kernel, Program, walk
from weft.targets.cpu import CPU
from weft.targets.gpu import GPU
from weft.targets.machine import Machine
from weft.tile.chunk_reduce import chunk_reduce
from weft.tile.narrow_buffers import narrow_buffers
from weft.tile.passes.async_copy import async_copy
from weft.tile.passes.block_contraction import block_contraction
from weft.tile.passes.block_sums import block_sums
from weft.tile.passes.blockify_launch import blockify_launch
from weft.tile.passes.chunk_matmul_k import chunk_matmul_k
from weft.tile.passes.collapse_loops import collapse_loops
from weft.tile.passes.cooperative_reduce import cooperative_reduce
from weft.tile.passes.double_buffer import double_buffer
from weft.tile.passes.mark_unroll import mark_unroll
from weft.tile.passes.matrix_units import matrix_units
from weft.tile.passes.own_rows import own_rows
from weft.tile.passes.pad_smem import pad_smem
from weft.tile.passes.parallelize_loops import parallelize_loops
from weft.tile.passes.permute_register_tile import permute_register_tile
from weft.tile.passes.pipeline_k_outer import pipeline_k_outer
from weft.tile.passes.prefetch_rows import prefetch_rows
from weft.tile.passes.register_tile import register_tile
from weft.tile.passes.skip_masked import skip_masked
from weft.tile.passes.split_inner_for_swizzle import split_inner_for_swizzle
from weft.tile.passes.split_ranges import split_ranges
from weft.tile.passes.split_reduction import split_reduction
from weft.tile.passes.stage_inputs import stage_inputs
from weft.tile.passes.stage_rows import stage_rows
from weft.tile.passes.stage_transposes import stage_transposes
from weft.tile.passes.stream_stores import stream_stores
from weft.tile.passes.tileify import tileify
from weft.tile.passes.tma_copy import tma_copy
from weft.tile.passes.vectorize_loops import vectorize_loops
from weft.tile.passes.warpgroups import warpgroups
from weft.tile.passes.widen_folds import widen_folds
from weft.tile.split_matmul_k import split_matmul_k

# Order matters: contractions claim their loops before what is left gets a vector axis, and
# threads come after, when the price of a nest is that of its final form. Sums are blocked last:
# their loops no longer have literal lengths.
Step = Callable[[Kernel, Machine], Kernel]
CPU_SCHEDULE: tuple[tuple[str, Step], ...] = (
    ("001_split_ranges", split_ranges),
    ("002_collapse_loops", collapse_loops),
    ("003_block_contraction", block_contraction),
    ("004_split_reduction", split_reduction),
    ("005_stage_rows", stage_rows),
    ("006_stage_transposes", stage_transposes),
    ("007_vectorize_loops", vectorize_loops),
    ("008_parallelize_loops", parallelize_loops),
    ("009_widen_folds", widen_folds),
    ("010_block_sums", block_sums),
    ("011_stream_stores", stream_stores),
    ("012_skip_masked", skip_masked),
    ("013_prefetch_rows", prefetch_rows),
)

# Of whole programs, at the loop level.
GPU_PROGRAM: tuple[tuple[str, Callable[..., Program]], ...] = (
    ("000_narrow_buffers", narrow_buffers),
    ("006_chunk_reduce", chunk_reduce),  # before what it merges is split over the grid
    ("003_split_matmul_k", split_matmul_k),
)

# The numbers are those of the whole road that docs/GPU.md lists.
GPU_SCHEDULE: tuple[tuple[str, Callable[[Kernel, GPU], Kernel]], ...] = (
    ("000_collapse_loops", collapse_loops),
    ("001_tileify", tileify),
    ("002_chunk_matmul_k", chunk_matmul_k),
    ("004_cooperative_reduce", cooperative_reduce),
    ("005_blockify_launch", blockify_launch),
    ("007_stage_inputs", stage_inputs),
    ("017_matrix_units", matrix_units),  # in place of registers, where the target has them
    ("008_register_tile", register_tile),
    ("009_permute_register_tile", permute_register_tile),
    ("010_double_buffer", double_buffer),
    ("011_tma_copy", tma_copy),
    ("012_split_inner_for_swizzle", split_inner_for_swizzle),
    ("020_own_rows", own_rows),
    ("019_warpgroups", warpgroups),
    ("013_async_copy", async_copy),
    ("014_pad_smem", pad_smem),
    ("015_pipeline_k_outer", pipeline_k_outer),
    ("016_mark_unroll", mark_unroll),
    ("018_block_sums", block_sums),
)


def check_machine(program: Program, target: CPU | GPU) -> None:
    """WeftError for a kernel of the tile or kernel level that was scheduled for other machines."""
    on_gpu = isinstance(target, GPU)
    theirs = r"parallel|vector\d+" if on_gpu else r"grid|thread"
    for kernel in program.kernels:
        binds = (s.bind for s in walk(kernel.body) if isinstance(s, For))
        found = next((f"{b} loops" for b in binds if re.fullmatch(theirs, b)), None)
        if on_gpu and any(term.type.lanes > 1 for term in nodes(kernel.body)):
            found = "vectors"
        if found is not None:
            told = f"kernel {kernel.name} has {found}: it is for a {'CPU' if on_gpu else 'GPU'}"
            raise WeftError(f"{told}; choose the target that it was scheduled for")
