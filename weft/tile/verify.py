"""Verify a tile program: the invariants of weft/scalar/verify.py, and

1. a register or vector loop has a literal extent, or a block's: lo..min(lo + 16, N);
2. a vector loop fits its lanes, is not a scan, and holds no other vector loop;
3. a loop bound to a matrix unit adds 16-bit products, of a tile laid out over threads;
4. loops bound to the copy engine copy a box of a tensor into a slab.
"""

import re

from weft.core.node import Node, require
from weft.scalar.nest import For, Stmt, free_variables
from weft.scalar.reach import longest
from weft.scalar.verify import Level
from weft.tile.analysis.boxes import box_of
from weft.tile.analysis.fragments import DEPTH, goes_by_rows, operands
from weft.tile.ops import BINDS, UNITS, UNROLLED

THREADS = {"mma": 4, "warpgroup": 5}  # loops over warps and lanes around one of a matrix unit
PRODUCTS = "a loop bound to {} adds up, in f32, products of 16-bit elements loaded without a mask"


def _check(part: Stmt | Node, loops: tuple[For, ...]) -> None:
    if isinstance(part, For) and part.bind in UNITS:
        (_check_box if part.bind == "box" else _check_product)(part, loops)
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


def _check_product(loop: For, around: tuple[For, ...]) -> None:
    found, bind = operands(loop.body), loop.bind
    require(found is not None and loop.role == "reduce", PRODUCTS.format(bind))
    extent, threads = longest(loop.lo, loop.hi) or 0, [f for f in around if f.bind == "thread"]
    whole = extent == DEPTH if bind == "mma" else extent > 0 and extent % DEPTH == 0
    told = f"a loop bound to mma has {DEPTH} iterations, to warpgroup a multiple: {extent}"
    require(whole, told)
    told = f"a loop bound to {bind} is inside of {THREADS[bind]} thread loops or more: warps, lanes"
    require(len(threads) >= THREADS[bind], told)
    results = [f.axis for f in around if f.bind == "register" and f.role == "free"]
    for side in found or ():
        name = side.op.buffer.name  # type: ignore[attr-defined]
        over = not free_variables(side).isdisjoint(results)
        require(over, f"no register loop around {loop.label} goes over results that {name} is for")
        lies = bind == "mma" or goes_by_rows(side, loop.axis) is not None
        require(lies, f"a warpgroup reads slabs whose lines are a swizzle long, {name} is none")


def _check_box(loop: For, around: tuple[For, ...]) -> None:
    inner = bool(around) and around[-1].bind == "box"  # of the two, checked with the outer one
    box = None if inner else box_of(loop)
    told = "two loops bound to box copy a box of a tensor into shared memory, as TMA can"
    require(inner or (box is not None and box.region() is not None), told)


TILE = Level("tile", binds=BINDS, check=_check)
verify = TILE.verify
