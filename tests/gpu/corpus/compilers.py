"""What compilers for devices say of a program's kernels: NVRTC at once, hipcc of many programs.

check_resources(lowered, row)        # a spill is a failure, so is too much shared memory
check_hip(rows)                      # the kernels of all these rows as one text
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from tests.gpu.corpus.player import joined
from tests.gpu.corpus.row import Row
from tests.gpu.corpus.schedules import Lowered
from tests.gpu.hip import spills_of
from weft.config import config
from weft.core.errors import CompilerError
from weft.runtime.cache import Cache
from weft.targets.gpu import GPUS

HIP = "hip:gfx90a"


def check_resources(one: Lowered, row: Row) -> None:
    """NVRTC takes every kernel, none spills, and each fits in a block's shared memory."""
    from weft.runtime.nvrtc import compile_cubin

    limit = one.target.shared
    try:
        cubin = compile_cubin(one.source, one.target.arch, Cache(config.cache))
    except CompilerError as error:
        return row.fail("errors", f"{one.name}: {error}")
    for kernel, used in cubin.kernels.items():
        if used.spill_bytes:  # a stack alone is what sin and cos of large values take
            told = f"spills {used.spill_bytes} bytes ({used.registers} registers)"
            row.fail("spills", f"{one.name}: kernel {kernel} {told}")
        if used.shared_bytes > limit:
            row.fail("errors", f"{one.name}: kernel {kernel} has {used.shared_bytes} bytes of "
                               f"shared memory, of {limit}")  # fmt: skip
    return None


def check_hip(rows: Sequence[Row]) -> None:
    """hipcc takes every kernel, and none spills: where that is not so, it is asked row by row."""
    kernels = {kernel: None for row in rows for kernel in row.hip}
    if not kernels or not shutil.which("hipcc"):
        return
    try:
        if not sum(spills_of(joined(kernels)[0], GPUS[HIP].arch)):
            return
    except CompilerError:
        pass
    for row in rows:
        try:
            spills = spills_of(joined(row.hip)[0], GPUS[HIP].arch) if row.hip else []
        except CompilerError as error:
            row.fail("errors", f"{HIP}: {error}")
            continue
        if sum(spills):
            row.fail("spills", f"{HIP}: kernels spill {sum(spills)} registers")


def hip_checked(rows: Sequence[Row]) -> list[Row]:
    """Rows with what hipcc alone says of these rows' kernels."""
    found = [Row(row.name, row.group, hip=row.hip) for row in rows] or [Row("")]
    with found[0].phase("hipcc"):
        check_hip(found)
    return found
