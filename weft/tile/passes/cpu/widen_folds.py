"""widen_folds: scans and long products of f32 are accumulated in f64, scans as torch does on a CPU.

before  for a0 in 0..8192:  # scan            after  for a0 in 0..8192:  # scan
            in0 = load x[a0]                             in0 = load x[a0]
            acc0 <- add(acc0, in0)                       v0 = f64(in0)
            y[a0] = running acc0                         acc0 <- add(acc0, v0)
                                                         v1 = f32(running acc0)
                                                         y[a0] = v1

Blocks do not help a product, whose every rounding is in the result, nor a scan in lanes, whose
values are needed one by one; and what overflows on the way comes back into range. Of a sum of
exponentials that a maximum scales the sum alone is f64.
"""

from dataclasses import replace

from weft.core.node import Node
from weft.core.types import f32, f64
from weft.scalar.affine import GREATEST
from weft.scalar.blocks import loops_in, map_each
from weft.scalar.intervals import bounds
from weft.scalar.monoid import LOGSUMEXP, PRODUCT, SUM
from weft.scalar.nest import Fold, For, Kernel, Update
from weft.scalar.ops import cast, constant, has_symbol, value_of
from weft.scalar.reach import longest
from weft.scalar.structure import substituted
from weft.scalar.updates import lifted

LONG = 1 << 16  # factors whose roundings are not small any more, of as many as most sizes have


def widen_folds(kernel: Kernel, target: object) -> Kernel:
    """Accumulate in f64 what would lose digits in f32 whatever its order."""
    loops = loops_in(kernel.body)
    lossy = (f for s in loops for f in s.folds if _loses(f, s))
    wide = {f: replace(f, dtypes=(*f.dtypes[:-1], f64)) for f in lossy}
    if not wide:
        return kernel

    def one(stmt: Update) -> Update:
        if stmt.fold not in wide:
            return stmt
        *others, last = lifted(stmt)
        return replace(stmt, values=(*others, _widened(last)), partial=bool(others))

    read: dict[Node, Node] = {}
    for old, new in wide.items():
        pairs = zip((*old.accs, *old.running), (*new.accs, *new.running), strict=True)
        read.update((narrow, cast(carrier, f32)) for narrow, carrier in pairs)
    return replace(kernel, body=substituted(map_each(kernel.body, Update, one), {**wide, **read}))


def _loses(fold: Fold, loop: For) -> bool:
    if {*fold.dtypes} != {f32} or fold.monoid not in (SUM, PRODUCT, LOGSUMEXP):
        return False
    return loop.role == "scan" or (fold.monoid is PRODUCT and _terms(loop) > LONG)


def _terms(loop: For) -> int:
    """How many values a fold of the loop takes."""
    extent = loop.extent or longest(loop.lo, loop.hi) or 1
    if has_symbol(loop.hi) and extent == 1:
        extent = int(min(bounds(loop.hi, {})[1], GREATEST))
    inner = (_terms(s) for s in loop.body if isinstance(s, For))
    return -(-extent // loop.step) * max(inner, default=1)


def _widened(value: Node) -> Node:
    literal = value_of(value)
    return cast(value, f64) if literal is None else constant(literal, f64)
