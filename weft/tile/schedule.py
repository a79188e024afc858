"""The steps from a loop nest to a scheduled kernel, in order."""

import re
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from weft.core.errors import WeftError, choice
from weft.core.passes import Passes, numbered
from weft.scalar.blocks import combining, loops_in, nodes
from weft.scalar.nest import Program, Rows
from weft.targets.cpu import CPU
from weft.targets.gpu import GPU

scheduled = partial(numbered, "weft.tile.passes")


# Passes over the whole program, at the loop level. Their parameters are the program and, by name,
# what they need: the target, the price of a kernel's body in us, the inputs that are constants.
CPU_PROGRAM = scheduled(
    "programs.transpose_operands",
    "programs.pack_constants",
    "programs.merge_rows",
    "programs.join_launches",  # of the kernels that are left
    "programs.join_collectives",
    "programs.place_collectives",  # of all that are left
)
GPU_PROGRAM = scheduled(
    "programs.narrow_buffers",
    "programs.chunk_reduce",  # before what it merges is split over the grid
    "programs.split_matmul_k",
    "programs.split_scans",
    "programs.join_launches",  # of the kernels that are left
    "programs.join_collectives",
    "programs.place_collectives",  # of all that are left
)
MERGES = ("merge_rows", "chunk_reduce")  # which fuse="none" and fuse="all" leave out
ASKED = ("join_collectives",)  # a promise of the user's, that all processes run one program
PRECISE = ("block_sums", "widen_folds")  # they decide digits, so no choice leaves them out
# Without these no thread knows its part, a copy by cp.async has no width, or threads race.
NEEDED = ("spread_threads", "own_elements", "widen_accesses", "place_barriers")

# Passes over kernels, on a CPU. Their numbers go on from those of CPU_PROGRAM. Order matters:
# contractions claim their loops before what is left gets a vector axis, and threads come after,
# when the price of a nest is that of its final form. Sums are blocked last: their loops no longer
# have literal lengths.
CPU_SCHEDULE = scheduled(
    "cpu.split_ranges",
    "both.collapse_loops",
    "cpu.list_live",
    "cpu.tile_dot_products",
    "cpu.block_contraction",
    "cpu.spread_sums",
    "cpu.split_reduction",
    "cpu.sweep_rows",
    "cpu.stage_rows",
    "cpu.stage_transposes",
    "cpu.widen_folds",  # before lanes are chosen, which the widest value decides
    "cpu.vectorize_loops",
    "cpu.parallelize_loops",
    "cpu.skip_masked",  # before block_sums, whose blocks it would have to keep whole
    "both.block_sums",
    "cpu.stream_stores",
    "cpu.prefetch_rows",
    first=len(CPU_PROGRAM) + 1,
)

# Passes over kernels, on a GPU. Their numbers go on from those of GPU_PROGRAM.
GPU_SCHEDULE = scheduled(
    "both.collapse_loops",
    "gpu.tileify",
    "gpu.chunk_matmul_k",
    "gpu.cooperative_reduce",
    "gpu.blockify_launch",
    "gpu.stage_scans",
    "gpu.stage_inputs",
    "gpu.tensorize_mma",  # in place of registers, where the target has them
    "gpu.register_tile",
    "gpu.permute_register_tile",
    "gpu.double_buffer",
    "gpu.tma_copy",
    "gpu.split_inner_for_swizzle",
    "gpu.own_rows",
    "gpu.sum_in_place",
    "gpu.tensorize_wgmma",
    "gpu.async_copy",
    "gpu.pad_smem",
    "gpu.pipeline_k_outer",
    "gpu.mark_unroll",
    "both.block_sums",
    first=len(GPU_PROGRAM) + 1,
)
# Those that decide what a block of a GPU computes; the others, how its threads do.
BLOCKS = tuple(name[4:] for name, _ in GPU_SCHEDULE[:5])
GPU_KERNEL = len(GPU_PROGRAM) + len(GPU_SCHEDULE) + 1  # the number of the kernel level's first pass


class Schedule(NamedTuple):
    """The passes of a target, each with its name: over the program, then over each kernel.

    `threads` are those of the kernel level, which make of a kernel what one thread of a GPU does.
    """

    program: Passes
    kernels: Passes
    threads: Passes


def schedule_for(
    target: CPU | GPU,
    left_out: Sequence[str] = (),
    merges: bool = True,
    threads: Passes = (),
    asked: Sequence[str] = (),
) -> Schedule:
    """The schedule of a target without some passes, which may be named stage_inputs or 009.

    Without `merges` no pass merges kernels. Those in ASKED run where they are `asked` for.
    """
    gpu = (GPU_PROGRAM, GPU_SCHEDULE, threads)
    parts = gpu if isinstance(target, GPU) else (CPU_PROGRAM, CPU_SCHEDULE, ())
    names = [name for part in parts for name, _ in part if name[4:] not in NEEDED]
    known = {alias: name for name in names for alias in (name[4:], name[:3])}
    left = {known[choice("pass to leave out", alias, known)] for alias in left_out}
    own = {known[choice("pass to ask for", alias, known)] for alias in asked}
    left |= {name for name in names if name[4:] in ASKED and name not in own}
    left |= {name for name in names if name[4:] in MERGES and not merges}
    return Schedule(*(tuple(p for p in part if p[0] not in left) for part in parts))


def check_repeats(program: Any, target: CPU | GPU) -> None:
    """WeftError for repeated kernels on a GPU, whose operands are whole buffers."""
    repeats = program.repeats if isinstance(program, Program) else ()
    if isinstance(target, GPU) and repeats:
        told = f"repeat {repeats[0].name}: kernels are repeated on CPUs alone"
        raise WeftError(f"{told}; start from the tensor level, where it is unrolled")


def check_machine(program: Program, target: CPU | GPU) -> None:
    """WeftError for a kernel of the tile or kernel level that was scheduled for other machines."""
    on_gpu = isinstance(target, GPU)
    for step in (s for s in program.steps if isinstance(s, Rows)):
        count, most = len(step.operands), target.operands
        if most is not None and count > most:
            told = f"kernel {step.name} has rows of {count} operands in all"
            raise WeftError(f"{told}: a launch takes {most} at most")
    theirs = r"parallel|vector\d+" if on_gpu else r"grid|thread"
    for kernel in program.kernels:
        binds = (loop.bind for loop in loops_in(kernel.body))
        found = next((f"{b} loops" for b in binds if re.fullmatch(theirs, b)), None)
        if on_gpu and any(term.type.lanes > 1 for term in nodes(kernel.body)):
            found = "vectors"
        if {(s.how, s.buffer.type.dtype.name) for s in combining(kernel.body)} - {*target.atomics}:
            found, on_gpu = "atomic stores", False
        if found is not None:
            told = f"kernel {kernel.name} has {found}: it is for a {'CPU' if on_gpu else 'GPU'}"
            raise WeftError(f"{told}; choose the target that it was scheduled for")
