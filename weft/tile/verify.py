"""Verify a tile program: the invariants of weft/scalar/verify.py, and

1. a register or vector loop has a literal extent, or a block's: lo..min(lo + 16, N);
2. a vector loop fits its lanes, is not a scan, and holds no other vector loop.
"""

import re

from weft.core.node import Node, require
from weft.scalar.nest import For, Stmt
from weft.scalar.reach import longest
from weft.scalar.verify import Level
from weft.tile.ops import BINDS, UNROLLED


def _check(part: Stmt | Node, loops: tuple[For, ...]) -> None:
    if not isinstance(part, For) or not any(re.fullmatch(bind, part.bind) for bind in UNROLLED):
        return
    block = longest(part.lo, part.hi)
    sentence = f"a {part.bind} loop needs a literal extent, or lo..min(lo + extent, end)"
    require(block is not None, sentence)
    if part.bind == "register":
        return
    require(part.role != "scan", "a scan cannot run in the lanes of a vector")
    wide = f"a {part.bind} loop by {part.step} runs {block} iterations in {part.lanes} lanes"
    require(part.step == 1 and (block or 0) <= part.lanes, wide)
    outer = [f.label for f in loops if f.bind.startswith("vector")]
    require(not outer, f"a vector loop inside vector loop {', '.join(outer)}")


TILE = Level("tile", binds=BINDS, check=_check)
verify = TILE.verify
