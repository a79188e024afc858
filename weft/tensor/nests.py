"""Nests assembled from leaves: stores and updates, and the loops still to open around them.

block = Nest().block([Leaf(((o0, 16, "free"),), store)], frozenset())
A reduction runs in the outermost block that binds what it reads, and reductions over the same axes
share a loop; a loop is opened where a leaf first needs it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from weft.core.node import Node, bottom_up, op_of, postorder
from weft.scalar import nest
from weft.scalar.blocks import substitute_block
from weft.scalar.ops import Axis, axis, constant
from weft.tensor.terms import Folded

Loop = tuple[Node, int | tuple[Node, Node], str]  # axis, extent or (lo, hi), role


@dataclass(frozen=True)
class Leaf:
    """A store or an update, and the loops still to open around it."""

    loops: tuple[Loop, ...]
    stmt: nest.Store | nest.Update


def variables(term: Node, memo: dict[Node, frozenset[Node]]) -> frozenset[Node]:
    """Axes that a term depends on, without those that its reductions fold."""

    def compute(node: Node) -> frozenset[Node]:
        own = (node,) if isinstance(node.op, Axis) else ()
        union = frozenset(own).union(*(memo[a] for a in node.args))
        return union - set(node.op.variables) if isinstance(node.op, Folded) else union

    return bottom_up(term, memo, compute)


class Nest:
    """Assembles leaves into loops, naming accumulators as it goes."""

    def __init__(self, count: int = 0) -> None:
        self.count = count  # of accumulators named so far
        self.depends: dict[Node, frozenset[Node]] = {}

    def block(self, leaves: list[Leaf], bound: frozenset[Node]) -> nest.Block:
        out: list[nest.Stmt] = []
        while ready := self._ready(leaves, bound):
            updates, leaves = self._reduce(ready, leaves)
            out.append(self._open(updates, bound, starts=True))
        out.extend(leaf.stmt for leaf in leaves if not leaf.loops)
        rest = [leaf for leaf in leaves if leaf.loops]
        while rest:
            first = rest[0].loops[0]
            same = [leaf for leaf in rest if leaf.loops[0] == first]
            rest = [leaf for leaf in rest if leaf.loops[0] != first]
            out.append(self._open(same, bound))
        return tuple(out)

    def _open(self, leaves: list[Leaf], bound: frozenset[Node], starts: bool = False) -> nest.For:
        """One loop around leaves that share it.

        With `starts` it is the outermost loop of reductions, or a scan's: it declares their folds.
        """
        variable, extent, role = leaves[0].loops[0]
        inner = [replace(leaf, loops=leaf.loops[1:]) for leaf in leaves]
        starts = starts or role == "scan"
        updates = (leaf.stmt for leaf in leaves if isinstance(leaf.stmt, nest.Update))
        folds = tuple(u.fold for u in updates) if starts else ()
        body = self.block(inner, bound | {variable})
        lo, hi = extent if isinstance(extent, tuple) else (constant(0), constant(extent))
        return nest.For(variable, lo, hi, body, role=role, folds=folds)

    def _ready(self, leaves: list[Leaf], bound: frozenset[Node]) -> list[Node]:
        """Reductions over the same axes that can run in this block, none depending on another."""
        terms = [t for leaf in leaves for t in leaf.stmt.terms()]
        found = [n for n in postorder(*terms) if isinstance(n.op, Folded)]
        ready = {n: None for n in found if variables(n, self.depends) <= bound}
        first = [n for n in ready if not any(m in ready for m in postorder(*n.args))]
        if not first:
            return []
        axes = first[0].op.axes  # type: ignore[attr-defined]
        return [n for n in first if n.op.axes == axes]  # type: ignore[attr-defined]

    def _reduce(self, ready: list[Node], leaves: list[Leaf]) -> tuple[list[Leaf], list[Leaf]]:
        """The updates of the ready reductions, and the leaves with accumulators in their place."""
        by_fold: dict[tuple[object, ...], list[Node]] = {}
        for n in ready:
            key = n.op.monoid, n.op.finite, n.args  # type: ignore[attr-defined]
            by_fold.setdefault(key, []).append(n)
        updates: list[Leaf] = []
        read: dict[Node, Node] = {}
        for same in by_fold.values():
            op, args = op_of(same[0], Folded), same[0].args
            dtypes = op.monoid.carriers(tuple(a.type.dtype for a in args))
            labels = tuple(f"acc{self.count + k}" for k in range(len(dtypes)))
            self.count += len(dtypes)
            fold = nest.Fold(labels, op.monoid, dtypes, finite=op.finite)
            loops = tuple((axis(label), extent, "reduce") for label, extent in op.axes)
            updates.append(Leaf(loops, nest.Update(fold, args)))
            for n in same:
                read[n] = fold.accs[n.op.carrier]  # type: ignore[attr-defined]
        after = substitute_block(tuple(leaf.stmt for leaf in leaves), read)
        return updates, [Leaf(leaf.loops, s) for leaf, s in zip(leaves, after, strict=True)]  # type: ignore[arg-type]


# --- nests by hand -------------------------------------------------------------------------------


def around(loops: Sequence[tuple[Node, int]], body: nest.Block) -> nest.Block:
    for variable, extent in reversed(loops):
        body = (loop(variable, extent, *body),)
    return body


def loop(
    variable: Node,
    extent: int | Node,
    *body: nest.Stmt,
    role: str = "free",
    first: int | Node = 0,
    folds: tuple[nest.Fold, ...] = (),
) -> nest.For:
    lo, hi = (constant(e) if not isinstance(e, Node) else e for e in (first, extent))
    return nest.For(variable, lo, hi, body, role=role, folds=folds)
