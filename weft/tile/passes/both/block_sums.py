"""block_sums: splits a long sum into sums of blocks, so that rounding errors stay small.

before  for a0 in 0..8192:  # reduce acc0     after  for s0 in 0..8192 by 128:  # reduce acc0
            acc0 <- add(acc0, x[a0])                     for a0 in s0..s0 + 128:  # reduce
                                                             acc0_s0 <- add(acc0_s0, x[a0])
                                                         acc0 <- add(acc0, acc0_s0)

One accumulator over n terms is off by up to n roundings, blocks of b terms by b + n / b; many
blocks are blocked again. In a loop that threads share, a block is what one thread adds. A product
that fills slabs in the same loop needs a second set of accumulators for it, so it is split only
when it is much longer. The running value of a scan is that of the blocks before, combined with its
own block's; a scan over vector lanes stays whole.
"""

from collections.abc import Mapping
from dataclasses import replace

from weft.core.types import f32, f64
from weft.scalar.blocks import loops_in, map_loops
from weft.scalar.intervals import bounds
from weft.scalar.monoid import SUM, WELFORD
from weft.scalar.nest import ORDERED, Block, For, Kernel
from weft.scalar.ops import apply, has_symbol, subtract
from weft.scalar.reach import longest, ranges_inside
from weft.scalar.sizes import Size
from weft.tile.analysis.access import Ranges
from weft.tile.moves.loops import Labels
from weft.tile.moves.parts import own_part, split_fold, stages

BLOCK = 128  # terms; twice as many are still added one by one
BLOCKS = 16  # the same of blocks; of a loop that fills slabs, whose sums take many registers
MOST = 1 << 20  # terms that a loop is thought to have at most where a size decides
Near = Mapping[Size, tuple[int, int]]
SHARE = {"thread": 256, "warp": 16}  # threads that share a loop
IN_ORDER = (*ORDERED, *SHARE)  # one after the other in each thread


def block_sums(kernel: Kernel, target: object, near: Near | None = None) -> Kernel:
    """Split every long loop that adds floats one by one, with all of its folds.

    The program is for sizes `near` the first ones, each from a least to a greatest: a sum that is
    short there stays whole.
    """
    labels, loops = Labels(kernel.body), loops_in(kernel.body)
    known: Ranges = {n.term: ends for n, ends in (near or {}).items()}
    serial = {"reduce"} if any("vector" in s.bind for s in loops) else {"reduce", "scan"}

    def one(stmt: For, ranges: Ranges) -> For:
        dtypes = (f32,) if stmt.role == "scan" else (f32, f64)  # f64 is enough for a scan
        rounds = (f.monoid in (SUM, WELFORD) and f.dtypes[0] in dtypes for f in stmt.folds)
        if any(rounds) and stmt.role in serial and _is_serial(stmt):
            return blocked_sum(stmt, ranges, labels)
        inner = ranges_inside(stmt, ranges)
        return replace(stmt, body=map_loops(stmt.body, lambda s: one(s, inner)))

    return replace(kernel, body=map_loops(kernel.body, lambda s: one(s, known)))


def _is_serial(stmt: For) -> bool:
    """Loops that add in order, and declare no accumulators of their own."""
    inner = loops_in(stmt.body)
    plain = all(not s.folds and (s.role != "scan" or s.bind == "register") for s in inner)
    return plain and stmt.bind in IN_ORDER and all(f.lanes == 1 for f in stmt.folds)


def blocked_sum(stmt: For, ranges: Ranges, labels: Labels) -> For:
    """The sum in blocks of its outermost loops; of its inner loops where those are long alone."""
    inside = ranges_inside(stmt, ranges)
    below = terms(stmt.body, inside)
    if _trips(stmt, ranges) * below <= 2 * BLOCK * (BLOCKS if stages(stmt) else 1):
        return stmt
    inner = stmt.body[0]
    if below >= BLOCK and len(stmt.body) == 1 and isinstance(inner, For):
        part, updates = own_part(inner, stmt.folds, "s")
        return replace(stmt, body=(blocked_sum(part, inside, labels), *updates))
    step = stmt.step * SHARE.get(stmt.bind, 1)
    return _in_blocks(stmt, max(1, BLOCK // below) * step, ranges, labels)


def _in_blocks(stmt: For, width: int, ranges: Ranges, labels: Labels) -> For:
    """The loop in blocks of `width`, and in blocks of blocks where there are many."""
    outer = split_fold(stmt, width, labels)
    # Of a segment, most often one block, the second level would take as long as its terms.
    few = 2 * BLOCKS * (BLOCKS if 0 < stmt.usual <= BLOCK else 1)
    many = _trips(outer, ranges) > few
    return _in_blocks(outer, width * BLOCKS, ranges, labels) if many else outer


def _trips(stmt: For, ranges: Ranges) -> int:
    """The most iterations that one thread runs one after another."""
    most = longest(stmt.lo, stmt.hi) or bounds(apply(subtract, stmt.hi, stmt.lo), ranges)[1]
    if has_symbol(stmt.hi):
        most = min(most, ranges.get(apply(subtract, stmt.hi, stmt.lo), (0, MOST))[1])
    together = stmt.role == "free" or (stmt.bind not in IN_ORDER and stmt.role != "scan")
    step = stmt.step * SHARE.get(stmt.bind, 1)
    return 1 if together or most == float("inf") else max(1, int(-(-most // step)))


def terms(block: Block, ranges: Ranges) -> int:
    """The number of terms that one accumulator adds in a block."""
    loops = (s for s in block if isinstance(s, For))
    counts = (_trips(s, ranges) * terms(s.body, ranges_inside(s, ranges)) for s in loops)
    return max(counts, default=1)
