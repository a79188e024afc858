"""Terms of a GPU kernel that are written where they are used, as a name is.

products(kernel.body)       # of acc0 + x * y: the product, one instruction with the sum
"""

from __future__ import annotations

from collections import Counter

from weft.core.node import Node
from weft.emit.spelling import register
from weft.kernel.ops import Extract, Pack
from weft.scalar.blocks import nodes
from weft.scalar.index import function_of
from weft.scalar.monoid import SUM
from weft.scalar.nest import Block, Load, Update, walk


def bare(term: Node) -> bool:
    """Terms that need no name of their own."""
    lane = isinstance(term.op, Extract) and register(term.type.dtype) is term.type.dtype
    return lane or isinstance(term.op, Pack)


def packed(body: Block) -> set[Node]:
    """Elements that are read only to stand beside others: none becomes a value on the way."""
    uses = [(a, n.op) for n in nodes(body) for a in n.args]
    reads = {a for a, op in uses if isinstance(a.op, Load) and isinstance(op, Pack)}
    reads -= {a for a, op in uses if not isinstance(op, Pack)}
    reads -= {t for s in walk(body) for t in s.terms()}
    return {a for a in reads if register(a.type.dtype).is_float and not a.op.masked}  # type: ignore[attr-defined]


def products(body: Block) -> set[Node]:
    """Products that one sum alone uses: one instruction with it."""
    updates = [s for s in walk(body) if isinstance(s, Update)]
    sums = [s.values[0] for s in updates if s.fold.monoid is SUM]
    found = {v for v in sums if function_of(v) == "multiply" and v.type.dtype.is_float}
    uses = Counter(a for n in nodes(body) for a in n.args)
    ends = Counter(t for s in walk(body) for t in s.terms())
    return {v for v in found if not uses[v] and ends[v] == 1}
