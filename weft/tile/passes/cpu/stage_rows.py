"""stage_rows: computes a term that two loops over one row share once, into a row buffer.

before  for a1 in 0..512:  # reduce acc1         after  local row0: f32[512]
            acc1 <- add(acc1, exp(x - acc0))            for a1 in 0..512:  # reduce acc1
        for a2 in 0..512:  # free                           row0[a1] = exp(x - acc0)
            y[a0, a2] = exp(x - acc0) / acc1                acc1 <- add(acc1, exp(x - acc0))
                                                        for a2 in 0..512:  # free
                                                            y[a0, a2] = row0[a2] / acc1
"""

from dataclasses import replace

from weft.scalar.choices import Choices
from weft.scalar.nest import Kernel
from weft.targets.machine import Machine
from weft.tile.moves.stage import rows_staged


def stage_rows(kernel: Kernel, target: Machine, choices: Choices) -> Kernel:
    """Stage where the row fits half of the second-level cache."""
    return replace(kernel, body=rows_staged(kernel.body, target, choices))
