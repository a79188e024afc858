"""Regions of a tensor graph that are polynomials, and how an e-graph reads them, by index maps.

for region in regions(graph):        # cut at what is no product, sum or view
    region.outputs                   # over placeholders: equal regions have one object for these
reader = Reader(region.outputs)      # reader.roots: classes of reader.graph, over named axes

Transposing and broadcasting vanish in index maps: matmul(A, B) is sum_k A[i, k] B[k, j].
"""

from collections.abc import Collection, Mapping
from fractions import Fraction
from math import isfinite
from typing import Any, NamedTuple

from weft.core.node import Graph, Node, Nodes, make, postorder, substitute
from weft.core.types import Symbolic, TensorType
from weft.scalar.affine import from_linear, linear, plus
from weft.scalar.index import simplify
from weft.scalar.intervals import Interval
from weft.scalar.monoid import SUM
from weft.scalar.ops import Axis, axis, constant
from weft.search.egraph import EGraph, read_of
from weft.search.masks import gathered, guarded, indicator, opened, term_of
from weft.search.splits import Splits, divided, joined, parts
from weft.tensor.ops import (
    Gather,
    Index,
    Input,
    Map,
    Reduce,
    Scalar,
    Scan,
    View,
    last_of,
    moved,
    position,
)
from weft.tensor.rules_view import axes_of

RING = ("add", "subtract", "multiply", "negate")
NODES = 150  # most nodes of a region
ROOTS = 16
FAR = 1024.0  # what adds a larger number to floats may do so to round them


class Region(NamedTuple):
    """Tensors that polynomials of others are; `outputs` has placeholders in place of `leaves`."""

    roots: Nodes
    leaves: Nodes
    outputs: Nodes
    inputs: Nodes  # the placeholders

    def here(self, outputs: Nodes) -> Nodes:
        """Other tensors over the placeholders, over this region's leaves."""
        return substitute(outputs, dict(zip(self.inputs, self.leaves, strict=True)))


def is_polynomial(node: Node, masked: bool = False) -> bool:
    """Whether a node is a sum or a product of its operands, or moves their elements.

    If `masked`, a product with a condition is one too.
    """
    dtype = node.type.dtype if isinstance(node.type, TensorType) else None
    if dtype is None or dtype.kind not in ("float", "int", "uint") or dtype.compute is not dtype:
        return False
    read = (n.type for n in (node, *node.args) if isinstance(n.type, TensorType))
    if any(isinstance(d, Symbolic) or d == 0 for t in read for d in t.shape):
        return False
    numbers = [float(a.op.value) for a in node.args if isinstance(a.op, Scalar)]
    if not all(map(isfinite, numbers)):
        return False
    match node.op:
        case Map(function=function):
            adds = dtype.is_float and function.name in ("add", "subtract")
            rounds = adds and any(abs(n) > FAR for n in numbers)
            product = masked and guarded(node) is not None
            return (function.name in RING and not rounds) or _is_by_number(node) or product
        case Reduce(monoid=monoid, finite=finite):
            return monoid is SUM and not finite
        case View(valid=valid):
            return valid is None
        case Scalar(value=value):
            return isfinite(value)
        case _:
            return False


def _is_by_number(node: Node) -> bool:
    by = node.args[-1].op
    named = isinstance(node.op, Map) and node.op.function.name == "divide"
    return named and isinstance(by, Scalar) and isfinite(by.value) and by.value != 0


def regions(graph: Graph, masked: bool = False) -> list[Region]:
    """The regions of a graph that have something to find, in order.

    If `masked`, those with conditions on coordinates, which are read as factors; else these are
    leaves like other tensors.
    """
    users = graph.users()
    if masked and not any(map(_has_condition, users)):
        return []
    inside = {n for n in users if is_polynomial(n, masked) and not isinstance(n.op, Scalar)}
    leader: dict[Node, Node] = {}

    def find(n: Node) -> Node:
        while leader.get(n, n) is not n:
            leader[n] = n = leader.get(leader[n], leader[n])
        return n

    sums: dict[Node, bool] = {}
    for n in users:
        sums[n] = n in inside and (isinstance(n.op, Reduce) or any(sums[a] for a in n.args))

    def is_cut(n: Node) -> bool:
        """Whether readers see a tensor, not what it is made of: else layers would join."""
        adds = isinstance(n.op, Map) and n.op.function.name in ("add", "subtract")
        return len(users[n]) > 1 and (adds or not sums[n])

    for n in inside:
        for a in n.args:
            if a in inside and not is_cut(a):
                leader[find(a)] = find(n)
    members: dict[Node, list[Node]] = {}
    for n in users:
        if n in inside:
            members.setdefault(find(n), []).append(n)
    kept = set(graph.outputs)
    found: list[Region] = []
    order = {n: i for i, n in enumerate(users)}
    for nodes in members.values():
        if len(nodes) > NODES or not any(isinstance(n.op, Reduce) for n in nodes):
            continue
        own = set(nodes)
        roots = [n for n in nodes if n in kept or is_cut(n) or not own.issuperset(users[n])]
        known = {a for n in nodes for a in n.args if not isinstance(a.op, Scalar)}
        leaves = [n for n in known if n not in own or is_cut(n)]
        if len(roots) > ROOTS or (masked and not any(map(_has_condition, (*nodes, *leaves)))):
            continue
        open_ = {n for n in leaves if masked and not sums[n]}
        found += _region(tuple(roots), tuple(sorted(leaves, key=order.__getitem__)), open_)
    return found


def _has_condition(node: Node) -> bool:
    return indicator(node) is not None or guarded(node) is not None


def _region(roots: Nodes, leaves: Nodes, open_: Collection[Node]) -> list[Region]:
    """The region over placeholders, if there may be something to find.

    A masked view is read as it stands, and so are conditions of leaves in `open_`: what these read
    is what is passed in.
    """
    below: dict[Node, Node] = {}

    def placed(n: Node) -> Node:
        return below.setdefault(n, make(Input(f"x{len(below)}", n.type)))

    seen: dict[Node, Node] = {}
    for leaf in leaves:
        if leaf in open_ and not isinstance(leaf.op, View):
            seen[leaf] = opened(leaf, placed)
        else:
            viewed = isinstance(leaf.op, View)
            seen[leaf] = make(leaf.op, placed(leaf.args[0])) if viewed else placed(leaf)
    bodies = tuple(_above(r, seen) for r in roots)
    some = open_ or worth(bodies)
    return [Region(roots, tuple(below), bodies, tuple(below.values()))] if some else []


def _above(root: Node, seen: Mapping[Node, Node]) -> Node:
    """The root over placeholders; it may be a leaf of another root itself."""
    args = substitute(root.args, dict(seen))
    return make(root.op, *args)


def worth(outputs: Nodes) -> bool:
    """Whether a sum is over three factors or over another sum, or sums are added."""
    factors: dict[Node, int] = {}
    sums: dict[Node, bool] = {}
    for n in postorder(*outputs):
        below = any(sums[a] for a in n.args)
        count = sum(factors[a] for a in n.args)
        name = n.op.function.name if isinstance(n.op, Map) else ""
        if isinstance(n.op, Reduce) and (below or count > 2):
            return True
        if name in ("add", "subtract"):
            if sum(sums[a] for a in n.args) > 1:
                return True
            count = 1
        sums[n] = below or isinstance(n.op, Reduce)
        factors[n] = count if n.args and not isinstance(n.op, Reduce) else int(n.type.rank > 0)
        if isinstance(n.op, View) and n.op.valid is not None:
            factors[n] = 1
    return False


def is_turned(node: Node) -> bool:
    """Whether a product reads what a sum makes across: by its rows last, after what it sums over.

    (W' @ x')' @ V; the right factor of a product is read in either order.
    """
    if not isinstance(node.op, Reduce) or node.args[0].op.name != "map":
        return False
    rank, folded = node.args[0].type.rank, node.op.axes
    for factor in node.args[0].args:
        if not isinstance(factor.op, View) or not any(
            isinstance(n.op, Reduce) for n in postorder(factor)
        ):
            continue
        read = [d for t in factor.op.index for d in range(rank) if t is position(d)]
        rows = [d for d in read if d not in folded]
        columns = [d for d in range(rank) if d not in (*read, *folded)]
        left = rows and columns and max(rows) < min(columns)
        if left and len(rows) < len(read) and read[-1] == rows[-1]:
            return True
    return False


# ---- out


def is_of_root(a: Node) -> bool:
    return a.op.label.startswith("o")  # type: ignore[attr-defined]


def root_axis(from_last: int, extent: Any) -> Node:
    """The axis of a root, by its place from the last one, so that broadcast ones agree."""
    return axis(f"o{from_last}_{extent}")


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
        self.roots = [self.read(r, self._index(r.type.shape)) for r in outputs]
        leaves = [t for t in self.graph.ids if t.kind in ("leaf", "mask")]
        terms = [i for t in leaves for i in read_of(t)[1]]
        return divided(terms, self.graph.extents)

    def _index(self, shape: tuple[int, ...]) -> Nodes:
        rank = len(shape)
        named = (root_axis(rank - 1 - d, n) if n != 1 else constant(0) for d, n in enumerate(shape))
        return tuple(self._known(a, n) for a, n in zip(named, shape, strict=True))

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
                if function.name == "multiply":
                    return g.mul(args)
                if function.name == "divide":
                    return g.mul((args[0], g.const(1 / Fraction(node.args[1].op.value))))  # type: ignore[attr-defined]
                if function.name in ("subtract", "negate"):
                    args[-1] = g.mul((g.const(-1), args[-1]))
                return g.add(args)
            case Reduce(axes=axes):
                return self._reduce(node, axes, index)
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

    def _reduce(self, node: Node, axes: tuple[int, ...], index: Nodes) -> int:
        inner, summed = list(index), list[Node]()
        for k, d in enumerate(sorted(axes)):
            extent = node.args[0].type.shape[d]
            inner[d] = constant(0)
            if extent != 1:
                inner[d] = self._known(axis(f"r{self.heights[node]}_{k}_{extent}"), extent)
                summed += axes_of(inner[d])
        return self.graph.sum(summed, self.read(node.args[0], tuple(inner)))

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
