"""Regions of a tensor graph that are polynomials: out into an e-graph by index maps, and back.

for region in regions(graph):        # cut at what is no product, sum or view
    region.outputs                   # over placeholders: equal regions have one object for these
reader = Reader(region.outputs)      # reader.roots: classes of reader.graph, over named axes
y = Writer(dtype).root(expression, shape)        # a tensor again: views, maps and reduces

Transposing and broadcasting vanish in index maps: matmul(A, B) is sum_k A[i, k] B[k, j].
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from weft.core.node import Graph, Node, Nodes, make, postorder, substitute
from weft.core.types import DType, Symbolic, TensorType
from weft.scalar.index import simplify
from weft.scalar.intervals import Interval
from weft.scalar.monoid import SUM
from weft.scalar.ops import FUNCTIONS, Axis, axis, constant
from weft.scalar.text.terms import show_term
from weft.search.egraph import EGraph
from weft.tensor.ops import Input, Map, Reduce, Scalar, View, last_of, moved, position, positions
from weft.tensor.rules_view import axes_of, full, scalar, viewed

RING = ("add", "subtract", "multiply", "negate")
NODES = 150  # most nodes of a region
ROOTS = 16
LETTERS, LONG = "ijklmnpqrstuvwyz", 240  # of axes and of text, as `shown`
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


def is_polynomial(node: Node) -> bool:
    """Whether a node is a sum or a product of its operands, or moves their elements."""
    dtype = node.type.dtype if isinstance(node.type, TensorType) else None
    if dtype is None or dtype.kind not in ("float", "int", "uint") or dtype.compute is not dtype:
        return False
    if not all(isinstance(a.type, TensorType) for a in node.args):
        return False  # a result of a library call that has several
    shapes = (d for n in (node, *node.args) for d in n.type.shape)
    if any(isinstance(d, Symbolic) or d == 0 for d in shapes):
        return False
    numbers = [float(a.op.value) for a in node.args if isinstance(a.op, Scalar)]
    if not all(map(isfinite, numbers)):
        return False
    match node.op:
        case Map(function=function):
            adds = dtype.is_float and function.name in ("add", "subtract")
            rounds = adds and any(abs(n) > FAR for n in numbers)
            return (function.name in RING and not rounds) or _is_by_number(node)
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


def regions(graph: Graph) -> list[Region]:
    """The regions of a graph that have something to find, in order."""
    users = graph.users()
    inside = {n for n in users if is_polynomial(n) and not isinstance(n.op, Scalar)}
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
        if len(roots) <= ROOTS:
            found += _region(tuple(roots), tuple(sorted(leaves, key=order.__getitem__)))
    return found


def _region(roots: Nodes, leaves: Nodes) -> list[Region]:
    """The region over placeholders, if there may be something to find.

    A masked view is read as it stands: its source is what is passed in.
    """
    below: dict[Node, Node] = {}
    masked: dict[Node, Node] = {}
    for leaf in leaves:
        source = leaf.args[0] if isinstance(leaf.op, View) else leaf
        masked[leaf] = source
        below.setdefault(source, make(Input(f"x{len(below)}", source.type)))
    seen = {f: make(f.op, below[s]) if s is not f else below[s] for f, s in masked.items()}
    bodies = tuple(_above(r, seen) for r in roots)
    return [Region(roots, tuple(below), bodies, tuple(below.values()))] if worth(bodies) else []


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


# ---- out


def root_axis(from_last: int, extent: Any) -> Node:
    """The axis of a root, by its place from the last one, so that broadcast ones agree."""
    return axis(f"o{from_last}_{extent}")


class Reader:
    """Reads tensors over placeholders into an e-graph."""

    def __init__(self, outputs: Nodes, fixed: Collection[Node] = ()) -> None:
        self.graph = EGraph({}, fixed)
        self.ranges: dict[Node, Interval] = {}
        self.memo: dict[tuple[Node, Nodes], int] = {}
        self.heights: dict[Node, int] = {}
        for n in postorder(*outputs):
            below = max((self.heights[a] for a in n.args), default=0)
            self.heights[n] = below + isinstance(n.op, Reduce)
        self.roots = [self.read(r, self._index(r.type.shape)) for r in outputs]

    def _index(self, shape: tuple[int, ...]) -> Nodes:
        rank = len(shape)
        named = (root_axis(rank - 1 - d, n) if n != 1 else constant(0) for d, n in enumerate(shape))
        return tuple(self._known(a, n) for a, n in zip(named, shape, strict=True))

    def _known(self, a: Node, extent: Any) -> Node:
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
                summed.append(inner[d])
        return self.graph.sum(summed, self.read(node.args[0], tuple(inner)))


# ---- back


@dataclass(frozen=True, eq=False)
class Expression:
    """One of the terms of each class: what an extraction chose. Kinds are those of egraph.Term."""

    kind: str
    data: Any = None
    args: "tuple[Expression, ...]" = ()

    def all(self) -> "list[Expression]":
        """Each expression of this one, operands first."""
        found: dict[int, Expression] = {}

        def add(e: Expression) -> None:
            if id(e) not in found:
                for a in e.args:
                    add(a)
                found[id(e)] = e

        add(self)
        return list(found.values())


def _place(a: Node) -> tuple[int, int, str]:
    """Where an axis goes: rows of a root, then sums, then the last axis of a root."""
    label: str = a.op.label  # type: ignore[attr-defined]
    if not label.startswith("o"):
        return 1, 0, label
    from_last = int(label[1:].split("_")[0])
    return (0, -from_last, label) if from_last else (2, 0, label)


class Writer:
    """Writes expressions as tensors: each is one over its free axes, in an order of these."""

    def __init__(self, dtype: DType, extents: Mapping[Node, int]) -> None:
        self.dtype, self.extents = dtype, extents
        self.memo: dict[int, tuple[Node, Nodes]] = {}

    def root(self, expression: Expression, shape: tuple[int, ...]) -> Node:
        node, axes = self.tensor(expression)
        rank = len(shape)
        places = {root_axis(rank - 1 - d, n): position(d) for d, n in enumerate(shape)}
        if not rank:
            return node
        return viewed(node, shape, tuple(places[a] for a in axes)) if axes else full(shape, node)

    def tensor(self, e: Expression) -> tuple[Node, Nodes]:
        """A tensor, and the axis of each of its dimensions."""
        if id(e) not in self.memo:
            self.memo[id(e)] = self._tensor(e)
        return self.memo[id(e)]

    def _tensor(self, e: Expression) -> tuple[Node, Nodes]:
        if e.kind in ("const", "extent"):
            return self._number(e.data if e.kind == "const" else self.extents[e.data]), ()
        if e.kind == "leaf":
            tensor, index = e.data
            axes = tuple(sorted(axes_of(*index), key=_place))
            there = dict(zip(axes, positions(len(axes)), strict=True))
            return viewed(tensor, self._shape(axes), substitute(index, there)), axes
        if e.kind == "sum":
            return self._sum(e)
        parts = [*e.args]
        if e.kind == "add":
            parts.sort(key=_is_negative)
        whole = self.tensor(parts[0])
        for part in parts[1:]:
            if e.kind == "add" and _is_negative(part):
                negated = [a for a in part.args if a.data != -1]
                inner = negated[0] if len(negated) == 1 else Expression("mul", None, tuple(negated))
                whole = self._map("subtract", whole, self.tensor(inner))
            else:
                whole = self._map(
                    "multiply" if e.kind == "mul" else "add", whole, self.tensor(part)
                )
        return whole

    def _number(self, value: Any) -> Node:
        if self.dtype.is_float:
            return scalar(float(value), self.dtype)
        wide = int(value) % (1 << 64)
        wide -= (1 << 64) * (wide >= 1 << 63)
        return scalar(np.asarray(wide, np.int64).astype(self.dtype.numpy).item(), self.dtype)

    def _shape(self, axes: Iterable[Node]) -> tuple[int, ...]:
        return tuple(self.extents[a] for a in axes)

    def _map(self, name: str, x: tuple[Node, Nodes], y: tuple[Node, Nodes]) -> tuple[Node, Nodes]:
        axes = tuple(sorted({*x[1], *y[1]}, key=_place))
        return make(Map(FUNCTIONS[name]), self._spread(x, axes), self._spread(y, axes)), axes

    def _spread(self, x: tuple[Node, Nodes], axes: Nodes) -> Node:
        """A tensor repeated along the axes that it lacks; a number stays one."""
        node, own = x
        if not own or own == axes:
            return node
        return viewed(node, self._shape(axes), tuple(position(axes.index(a)) for a in own))

    def _sum(self, e: Expression) -> tuple[Node, Nodes]:
        node, axes = self.tensor(e.args[0])
        folded = tuple(d for d, a in enumerate(axes) if a in e.data)
        kept = tuple(a for a in axes if a not in e.data)
        summed = make(Reduce(SUM, folded), node)
        index = tuple(position(kept.index(a)) if a in kept else constant(0) for a in axes)
        return viewed(summed, self._shape(kept), index), kept


def shown(e: Expression) -> str:
    """An expression as text, as in sum_k(x0[i, k] * x1[k, j]); the start of it if that is long."""
    letters: dict[Node, str] = {}
    known: dict[tuple[int, str], str] = {}  # what is shared is written again: no more than is shown

    def named(a: Node) -> str | None:
        if not isinstance(a.op, Axis):
            return None
        return letters.setdefault(a, LETTERS[len(letters)] if len(letters) < 16 else a.op.label)

    def text(e: Expression, outer: str = "") -> str:
        if (id(e), outer) not in known:
            known[id(e), outer] = written(e, outer)[: LONG + 1]
        return known[id(e), outer]

    def written(e: Expression, outer: str) -> str:
        if e.kind in ("const", "extent"):
            return str(e.data) if e.kind == "const" else f"|{named(e.data)}|"
        if e.kind == "leaf":
            tensor, index = e.data
            read = "" if isinstance(tensor.op, Input) else "'"  # a masked view
            label = getattr((tensor.args[0] if read else tensor).op, "label", "t")
            return f"{label}{read}[{', '.join(show_term(i, named) for i in index)}]"
        if e.kind == "sum":
            axes = "".join(named(a) or "" for a in sorted(e.data, key=_place))
            return f"sum_{axes}({text(e.args[0])})"
        whole = {"mul": " * ", "add": " + "}[e.kind].join(text(a, e.kind) for a in e.args)
        return f"({whole})" if (outer, e.kind) == ("mul", "add") else whole

    leaves = [f.data[1] for f in e.all() if f.kind == "leaf"]
    for a in sorted({a for index in leaves for a in axes_of(*index)}, key=_place):
        named(a)
    whole = text(e)
    return whole if len(whole) <= LONG else f"{whole[:LONG]} ..."


def _is_negative(e: Expression) -> bool:
    return e.kind == "mul" and any(a.kind == "const" and a.data == -1 for a in e.args)
