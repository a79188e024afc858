"""Steps of a schedule by themselves.

program = step_of(program, stage_rows, CPUS["avx512"])      # at the tile level, verified by nobody
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from weft.levels import on_kernels
from weft.scalar.choices import Chooser
from weft.scalar.nest import Kernel, Program
from weft.targets.machine import Machine


def step_of(program: Program, step: Callable[..., Kernel], target: Machine) -> Program:
    """The program after one pass over kernels, with the cheapest of all options."""
    program = program if program.level == "kernel" else replace(program, level="tile")
    return on_kernels(program, step, Chooser(), target=target, near={})
