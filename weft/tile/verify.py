"""Verify a tile program: the invariants of weft/scalar/verify.py, and

1. a loop whose iterations run at the same time is free;
2. a register or vector loop has a literal extent, or a block's: lo..min(lo + 16, N);
3. a vector loop is not a scan, and holds no other vector loop.
"""

from __future__ import annotations

from dataclasses import replace

from weft.core.node import Node, require
from weft.scalar.affine import function_of, linear
from weft.scalar.nest import For, Program, Stmt
from weft.scalar.ops import apply, subtract
from weft.scalar.verify import verify_program
from weft.tile.ops import PARALLEL, TILE, UNROLLED


def _is_block(loop: For) -> bool:
    ends = loop.hi.args if function_of(loop.hi) == "minimum" else (loop.hi,)
    return any(not linear(apply(subtract, end, loop.lo))[0] for end in ends)


def _check(part: Stmt | Node, loops: tuple[For, ...]) -> None:
    if not isinstance(part, For):
        return
    free = part.bind not in PARALLEL or part.role == "free"
    require(free, f"a {part.bind} loop must be free, not {part.role}")
    block = part.bind not in UNROLLED or _is_block(part)
    require(block, f"a {part.bind} loop needs a literal extent, or lo..min(lo + extent, end)")
    if part.bind == "vector":
        require(part.role != "scan", "a scan cannot run in the lanes of a vector")
        outer = [f.label for f in loops if f.bind == "vector"]
        require(not outer, f"a vector loop inside vector loop {', '.join(outer)}")


def verify(program: Program) -> None:
    """Raise VerifyError unless it is a valid tile program."""
    verify_program(program, replace(TILE, check=_check))
