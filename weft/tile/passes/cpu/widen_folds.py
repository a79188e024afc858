"""widen_folds: accumulates scans and long products of f32 in f64, and positions in i32.

before  for a0 in 0..8192:  # scan            after  for a0 in 0..8192:  # scan
            in0 = load x[a0]                             in0 = load x[a0]
            acc0 <- add(acc0, in0)                       v0 = f64(in0)
            y[a0] = running acc0                         acc0 <- add(acc0, v0)
                                                         v1 = f32(running acc0)
                                                         y[a0] = v1

torch accumulates scans so on a CPU. Blocks do not help a product, whose every rounding is in the
result, nor a scan in lanes, whose values are needed one by one; and what overflows on the way comes
back into range. Of a sum of exponentials that a maximum scales the sum alone is f64. Lanes hold the
position of a maximum in i32, as wide as their values, where all fit.
"""

from dataclasses import replace

from weft.core.node import Node
from weft.core.types import DType, f32, f64, i32
from weft.scalar.blocks import loops_in, map_each
from weft.scalar.intervals import bounds
from weft.scalar.monoid import LOGSUMEXP, PRODUCT, SUM
from weft.scalar.nest import Fold, For, Kernel, Update, walk
from weft.scalar.ops import cast, constant, value_of
from weft.scalar.structure import substituted
from weft.scalar.updates import lifted
from weft.tile.analysis.access import ranges_in
from weft.tile.passes.both.block_sums import terms

LONG = 1 << 16  # factors whose roundings are not small any more, of as many as most sizes have


def widen_folds(kernel: Kernel, target: object) -> Kernel:
    """Accumulate in f64 what would lose digits in f32 whatever its order; positions in i32."""
    lossy = (f for s in loops_in(kernel.body) for f in s.folds if _loses(f, s))
    found = dict.fromkeys(lossy, f64) | dict.fromkeys(_positions(kernel), i32)
    changed = {f: replace(f, dtypes=(*f.dtypes[:-1], dtype)) for f, dtype in found.items()}
    if not changed:
        return kernel

    def one(stmt: Update) -> Update:
        if stmt.fold not in changed:
            return stmt
        *others, last = lifted(stmt)
        partial = stmt.partial or (bool(others) and stmt.fold.monoid.append is None)
        values = (*others, _cast(last, found[stmt.fold]))
        return replace(stmt, values=values, partial=partial)

    read: dict[Node, Node] = {}
    for old, new in changed.items():
        pairs = zip((*old.accs, *old.running), (*new.accs, *new.running), strict=True)
        read.update((before, cast(carrier, before.type.dtype)) for before, carrier in pairs)
    body = substituted(map_each(kernel.body, Update, one), {**changed, **read})
    return replace(kernel, body=body)


def _positions(kernel: Kernel) -> set[Fold]:
    """The folds to positions that all fit 31 bits."""
    ranges = ranges_in(kernel.body)
    found = [s for s in walk(kernel.body) if isinstance(s, Update) and s.fold.monoid.indexed]
    wide = {s.fold for s in found if bounds(s.values[1], ranges)[1] >= 1 << 31}
    return {s.fold for s in found} - wide


def _loses(fold: Fold, loop: For) -> bool:
    if {*fold.dtypes} != {f32} or fold.monoid not in (SUM, PRODUCT, LOGSUMEXP):
        return False
    return loop.role == "scan" or (fold.monoid is PRODUCT and terms((loop,), {}) > LONG)


def _cast(value: Node, dtype: DType) -> Node:
    literal = value_of(value)
    return cast(value, dtype) if literal is None else constant(literal, dtype)
