"""Fragments: which elements of a 16-bit matrix product each thread of a warp holds for mma.sync.

mma.sync.m16n8k16 (PTX ISA, "Matrix Fragments"): with g = lane // 4 and c = lane % 4 * 2, a thread
holds of the left side the pairs (k, k + 1) at rows g and g + 8 and k = c and c + 8, of the right
side those at column g, and of the result the columns c and c + 1 of rows g and g + 8.
"""

from collections.abc import Sequence
from typing import NamedTuple

from weft.core.node import Node, substitute
from weft.core.types import bf16, f16, f32
from weft.scalar.nest import For, Load, Stmt, Update, free_variables
from weft.scalar.ops import CASTS, Apply, apply, constant, function_of
from weft.targets.gpu import GPU
from weft.tile.analysis.access import stride_of, trips
from weft.tile.moves.loops import past

Pair = tuple[Node, Node]  # two elements in one register

ROWS, COLUMNS, DEPTH = 16, 8, 16  # of a product that one instruction computes
GROUP, WIDTHS = 64, (16, 32, 64, 128, 256)  # rows, and columns, of one by a warpgroup
WARP_RATE, GROUP_RATE = 8, 16  # beside the products of threads
LEAST_DEPTH = 256  # of a sum by warpgroups: the copy engine has enough to do
GROUPS, PAIRS = 8, 4  # lanes of a warp, by row and by pair of columns


class Operands(NamedTuple):
    """The two operands of a sum of products, as loads of 16-bit elements."""

    left: Node
    right: Node


def operands(stmts: Sequence[Stmt], is_staged: bool = True) -> Operands | None:
    """The operands of a sum that tensor cores can compute; None for any other sum.

    Loads may be masked until the operands are staged, not after.
    """
    update = stmts[0] if len(stmts) == 1 else None
    if not isinstance(update, Update) or update.fold.monoid.name != "sum":
        return None
    value = update.values[0]
    if function_of(value) != "multiply" or update.fold.dtypes != (f32,):
        return None
    sides = [_exact(a, is_staged) for a in value.args]
    if sides[0] is None or sides[1] is None or sides[0].type != sides[1].type:
        return None
    return Operands(sides[0], sides[1])


def _exact(term: Node, is_staged: bool) -> Node | None:
    """The 16-bit load that a term widens to f32 without rounding."""
    cast = isinstance(term.op, Apply) and term.op.function is CASTS[f32]
    inner = term.args[0] if cast else term
    if not isinstance(inner.op, Load) or (inner.op.masked and is_staged):
        return None
    return inner if inner.type.dtype in (bf16, f16) else None


def in_warps(columns: int) -> bool:
    """Whether so many columns are whole parts of warps, and these whole fragments."""
    return columns % min(columns, 32) == 0 and columns % COLUMNS == 0


def pairs(side: Node, axis: Node, at: Sequence[Node], k: For, lanes: Sequence[For]) -> list[Pair]:
    """A thread's fragment of one operand: its rows of the left one, its column of the right one."""
    pair = past(lanes[-1].axis, lanes[-1].lo)
    starts = [apply("add", pair, constant(n)) for n in (0, DEPTH // 2)]
    return [_pair(side, axis, place, k, start) for start in starts for place in at]


def column_of(first: Node, lanes: Sequence[For]) -> Node:
    """The column of the right operand that a thread holds, where columns start at `first`."""
    group, pair = (past(loop.axis, loop.lo) for loop in lanes[-2:])
    if trips(lanes[-2]) > GROUPS:  # of several warps
        group = apply("floormod", group, constant(GROUPS))
    return apply("add", apply("subtract", first, pair), group)


def _pair(side: Node, axis: Node, at: Node, k: For, start: Node) -> Pair:
    place = apply("add", k.lo, start)
    low, high = ({axis: at, k.axis: apply("add", place, constant(n))} for n in (0, 1))
    return substitute((side,), low)[0], substitute((side,), high)[0]


def unit_rate(stmts: Sequence[Stmt], k: For, depth: int, target: GPU) -> int:
    """How many times as fast as plain fused multiply-adds the target computes a sum."""
    found = operands(stmts, False) if target.matrix_units else None
    if found is None:
        return 1
    by_groups = target.warpgroups and depth >= LEAST_DEPTH and suits_warpgroups(found, k.axis)
    return GROUP_RATE if by_groups else WARP_RATE


def suits_warpgroups(found: Operands, k: Node) -> bool:
    """Whether slabs of both sides will lie as a warpgroup reads them, if the copy engine has them.

    Their lines go along k or along the results, and start at whole 16 bytes.
    """
    buffers = [side.op.buffer for side in found]  # type: ignore[attr-defined]
    strides = (n for b in buffers for n in b.type.layout if n != 1)
    even = all(stride_of(side, k, {}) is not None for side in found)
    return even and not any(n % 8 for n in strides)


def goes_by_rows(side: Node, k: Node) -> bool | None:
    """Whether a slab's lines, a swizzle long, go along the results, not along k; None: neither."""
    slab = side.op.buffer  # type: ignore[attr-defined]
    line = slab.type.shape[-1]
    if slab.swizzle != line * slab.type.dtype.bytes:
        return None
    return {1: False, line: True}.get(stride_of(side, k, {}) or 0)


def axis_of(side: Node, loops: Sequence[For]) -> Node:
    """The axis of the tile that an operand depends on."""
    return next(f.axis for f in loops if f.axis in free_variables(side))
