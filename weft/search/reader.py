"""How an e-graph reads tensors over placeholders: by index maps.

reader = Reader(region.outputs)      # reader.roots: classes of reader.graph, over named axes

Transposing and broadcasting vanish in index maps: matmul(A, B) is sum_k A[i, k] B[k, j].
"""

from collections.abc import Collection, Iterable
from fractions import Fraction
from typing import Any

from weft.core.node import Node, Nodes, postorder
from weft.scalar.affine import from_linear, linear, plus
from weft.scalar.index import simplify
from weft.scalar.intervals import Interval
from weft.scalar.monoid import MAX, MIN, SUM
from weft.scalar.ops import Axis, axis, constant
from weft.search.egraph import EGraph, read_of
from weft.search.masks import gathered, guarded, indicator, term_of
from weft.search.splits import Splits, divided, joined, parts
from weft.tensor.ops import Gather, Index, Map, Reduce, Scalar, Scan, View, last_of, moved, position
from weft.tensor.rules_view import axes_of

NAMES = ("exp", "log", "reciprocal")
MONOIDS = {"sum": SUM, "max": MAX, "min": MIN}


def is_of_root(a: Node) -> bool:
    return a.op.label.startswith("o")  # type: ignore[attr-defined]


def root_axes(shapes: Iterable[tuple[int, ...]]) -> list[Nodes]:
    """The coordinates along the axes of roots: named by place from the last one, so that broadcast
    ones agree; and as in the shortest of those that differ in axes of one element alone, so that
    a product is one class where its sum kept the axis, and where that is gone.
    """
    pairs = [(tuple(n for n in shape if n != 1), shape) for shape in shapes]
    shortest = dict(sorted(pairs, key=lambda pair: len(pair[1]), reverse=True))
    found: list[Nodes] = []
    for squeezed, shape in pairs:
        like = enumerate(reversed(shortest[squeezed]))
        names = [axis(f"o{from_last}_{n}") for from_last, n in like if n != 1]
        found.append(tuple(names.pop() if n != 1 else constant(0) for n in shape))
    return found


def backwards(at: Node, extent: int) -> Node:
    """The coordinate along an axis of that extent, counted from its end."""
    return from_linear(*plus(({}, extent - 1), linear(at), -1))


class Reader:
    """Reads tensors over placeholders into an e-graph.

    splits    of axes, if they are known; else they are found, for a graph of `most` nodes
    """

    def __init__(
        self,
        outputs: Nodes,
        fixed: Collection[Node] = (),
        splits: Splits | None = None,
        most: int = 1000,
    ) -> None:
        self.heights: dict[Node, int] = {}
        for n in postorder(*outputs):
            below = max((self.heights[a] for a in n.args), default=0)
            self.heights[n] = below + isinstance(n.op, Reduce | Scan)
        self.splits = dict(splits or {})
        more = self._read_all(outputs, fixed)
        while more and splits is None and len(self.graph.ids) <= most:
            self.splits |= more
            more = self._read_all(outputs, fixed)

    def _read_all(self, outputs: Nodes, fixed: Collection[Node]) -> dict[Node, int]:
        """Reads the outputs; returns the axes that are still to be split."""
        self.graph = EGraph({}, fixed)
        self.ranges: dict[Node, Interval] = {}
        self.memo: dict[tuple[Node, Nodes], int] = {}
        shapes = [r.type.shape for r in outputs]
        places = [zip(*p, strict=True) for p in zip(root_axes(shapes), shapes, strict=True)]
        indices = [tuple(self._known(a, n) for a, n in place) for place in places]
        self.roots = [*map(self.read, outputs, indices)]
        leaves = [t for t in self.graph.ids if t.kind in ("leaf", "mask")]
        terms = [i for t in leaves for i in read_of(t)[1]]
        return divided(terms, self.graph.extents)

    def _known(self, a: Node, extent: Any) -> Node:
        """The coordinate along an axis: of its parts, if it is split."""
        if a in self.splits:
            by, (outer, inner) = self.splits[a], parts(a)
            return joined(self._known(outer, extent // by), self._known(inner, by), by)
        if isinstance(a.op, Axis):
            self.graph.extents[a], self.ranges[a] = extent, (0, last_of(extent))
        return a

    def read(self, node: Node, index: Nodes) -> int:
        key = (node, index)
        if key not in self.memo:
            self.memo[key] = self._read(node, index)
        return self.memo[key]

    def _read(self, node: Node, index: Nodes) -> int:
        g = self.graph
        match node.op:
            case Scalar(value=value):
                return g.const(Fraction(value))
            case View(valid=None, index=terms):
                inner = tuple(simplify(t, self.ranges) for t in moved(terms, index))
                return self.read(node.args[0], inner)
            case Map() | Index() if (condition := indicator(node)) is not None:
                return g.mask(term_of(condition, index))
            case Map() if (pair := guarded(node)) is not None:
                kept = g.mask(term_of(pair[0], index), True)
                return g.mul((kept, self.read(pair[1], index)))
            case Map(function=function):
                args = [self.read(a, index if a.type.rank else ()) for a in node.args]
                if function.name in NAMES:
                    return g.fn(function.name, args[0])
                if function.name == "multiply":
                    return g.mul(args)
                if function.name == "divide":
                    return g.mul((args[0], g.const(1 / Fraction(node.args[1].op.value))))  # type: ignore[attr-defined]
                if function.name in ("subtract", "negate"):
                    args[-1] = g.mul((g.const(-1), args[-1]))
                return g.add(args)
            case Reduce():
                return self._reduce(node, node.op, index)
            case Gather():
                return self.read(node.args[0], gathered(node, node.op, index))
            case Scan(monoid=monoid) if monoid is SUM:
                return self._scan(node, node.op.axis, index)
            case View(index=terms, valid=valid):
                used = axes_of(*terms, valid)
                pairs = enumerate(index)
                return g.leaf(
                    node, tuple(i if position(d) in used else constant(0) for d, i in pairs)
                )
            case _:
                return g.leaf(node, index)

    def _reduce(self, node: Node, reduce: Reduce, index: Nodes) -> int:
        inner, folded = list(index), list[Node]()
        for k, d in enumerate(sorted(reduce.axes)):
            extent = node.args[0].type.shape[d]
            inner[d] = constant(0)
            if extent != 1:
                inner[d] = self._known(axis(f"r{self.heights[node]}_{k}_{extent}"), extent)
                folded += axes_of(inner[d])
        return self.graph.fold(reduce.monoid.name, folded, self.read(node.args[0], tuple(inner)))

    def _scan(self, node: Node, d: int, index: Nodes) -> int:
        """A running sum at an index; of a tensor that is read backwards, that of what follows."""
        source, extent = node.args[0], node.type.shape[d]
        a = self._known(axis(f"s{self.heights[node]}_{d}_{extent}"), extent)
        turned = isinstance(source.op, View) and source.op.index[d] is backwards(
            position(d), extent
        )
        if turned:
            source, at = source.args[0], simplify(backwards(index[d], extent), self.ranges)
        else:
            at = index[d]
        body = self.read(source, (*index[:d], a, *index[d + 1 :]))
        return self.graph.at(a, at, self.graph.scan(a, not turned, body))
