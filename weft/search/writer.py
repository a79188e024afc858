"""Expressions, which an extraction chose, and what writes them as tensors.

y = Writer(dtype, extents, splits).root(expression, shape, index)      # views, maps and reduces

Each expression is a tensor over its free axes, in an order of these.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.core.node import Node, Nodes, make, substitute
from weft.core.types import DType
from weft.scalar.index import FALSE, TRUE, simplify
from weft.scalar.intervals import Interval
from weft.scalar.monoid import SUM
from weft.scalar.ops import CASTS, FUNCTIONS, Apply, Axis, apply_all, constant
from weft.search.elements import Element, elements_of, extents_of
from weft.search.reader import MONOIDS, backwards, is_of_root
from weft.search.splits import Splits, coordinates
from weft.tensor.ops import Gather, Index, Map, Reduce, Scan, position, positions
from weft.tensor.rules_view import axes_of, full, scalar, viewed


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


def place(a: Node) -> tuple[int, int, str]:
    """Where an axis goes: rows of a root, then sums, then the last axis of a root."""
    label: str = a.op.label  # type: ignore[attr-defined]
    if not is_of_root(a):
        return 1, 0, label
    from_last = int(label[1:].split("_")[0])
    return (0, -from_last, label) if from_last else (2, 0, label)


class Writer:
    """Writes expressions as tensors: each is one over its free axes, in an order of these."""

    def __init__(self, dtype: DType, extents: Mapping[Node, int], splits: Splits) -> None:
        self.dtype, self.extents, self.splits = dtype, extents, splits
        self.memo: dict[int, tuple[Node, Nodes]] = {}

    def root(self, expression: Expression, shape: tuple[int, ...], index: Nodes) -> Node:
        """The tensor of that shape, whose axes are those of the index: reader.root_axes."""
        node, axes = self.tensor(expression)
        places: dict[Node, Node] = {}
        for d, a in enumerate(index):
            places |= coordinates(a, position(d), self.splits)
        if not shape:
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
            return self._picked(*e.data)
        if e.kind == "at":
            node, axes = self.tensor(e.args[0])
            a, index = e.data
            return self._picked(node, tuple(index if b is a else b for b in axes))
        if e.kind in MONOIDS:
            return self._fold(e)
        if e.kind == "scan":
            return self._scan(e)
        if e.kind == "fn":
            node, axes = self.tensor(e.args[0])
            return make(Map(FUNCTIONS[e.data]), node), axes
        masks = [a for a in (e, *e.args) if a.kind == "mask" and e.kind != "add"]
        if masks:
            return self._masked(masks, [a for a in e.args if a.kind != "mask"])
        whole = self.tensor(e.args[0])
        for part in e.args[1:]:
            if e.kind == "add" and is_negative(part):
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
        axes = tuple(sorted({*x[1], *y[1]}, key=place))
        return make(Map(FUNCTIONS[name]), self._spread(x, axes), self._spread(y, axes)), axes

    def _spread(self, x: tuple[Node, Nodes], axes: Nodes) -> Node:
        """A tensor repeated along the axes that it lacks; a number stays one."""
        node, own = x
        if not own or own == axes:
            return node
        return viewed(node, self._shape(axes), tuple(position(axes.index(a)) for a in own))

    def _fold(self, e: Expression) -> tuple[Node, Nodes]:
        node, axes = self.tensor(e.args[0])
        folded = tuple(d for d, a in enumerate(axes) if a in e.data)
        kept = tuple(a for a in axes if a not in e.data)
        folds = make(Reduce(MONOIDS[e.kind], folded), node)
        index = tuple(position(kept.index(a)) if a in kept else constant(0) for a in axes)
        return viewed(folds, self._shape(kept), index), kept

    def _scan(self, e: Expression) -> tuple[Node, Nodes]:
        node, axes = self.tensor(e.args[0])
        a, upwards = e.data
        d, shape = axes.index(a), self._shape(axes)
        turned = list(positions(len(axes)))
        turned[d] = position(d) if upwards else backwards(position(d), shape[d])
        scanned = make(Scan(SUM, d), viewed(node, shape, tuple(turned)))
        return viewed(scanned, shape, tuple(turned)), axes

    def _masked(self, masks: list[Expression], rest: list[Expression]) -> tuple[Node, Nodes]:
        """A product where all conditions hold, else 0, whatever the product is there."""
        condition = self._certain(apply_all("and", [m.data[0] for m in masks]))
        product = (
            Expression("mul", None, tuple(rest)) if len(rest) > 1 else rest[0] if rest else None
        )
        one = self._number(1), ()
        whole = self.tensor(product) if product is not None else one
        if condition in (TRUE, FALSE):
            return whole if condition is TRUE else (self._number(0), ())
        axes = tuple(sorted({*whole[1], *axes_of(condition)}, key=place))
        kept = self._computed(condition, axes)
        if not rest:
            return make(Map(CASTS[self.dtype]), kept), axes
        return make(Map(FUNCTIONS["where"]), kept, self._spread(whole, axes), self._number(0)), axes

    def _certain(self, term: Node) -> Node:
        """The term as it is for the extents of the program."""
        extents = {e: constant(self.extents[e.op.axis]) for e in extents_of(term)}  # type: ignore[attr-defined]
        ranges: dict[Node, Interval] = {a: (0, self.extents[a] - 1) for a in axes_of(term)}
        for e in elements_of(term):
            if e.op.extent is not None:  # type: ignore[attr-defined]
                ranges[e] = (0, e.op.extent - 1)  # type: ignore[attr-defined]
        return simplify(substitute((term,), extents)[0], ranges)

    def _picked(self, tensor: Node, index: Nodes) -> tuple[Node, Nodes]:
        """The elements of a tensor at an index: a view, or a gather where data decide."""
        index = tuple(map(self._certain, index))
        axes = tuple(sorted(axes_of(*index), key=place))
        shape = self._shape(axes)
        if not elements_of(*index):
            there = dict(zip(axes, positions(len(axes)), strict=True))
            return viewed(tensor, shape, substitute(index, there)), axes
        plain = [d for d, t in enumerate(index) if isinstance(t.op, Axis)]
        chosen = tuple(d for d in range(len(index)) if d not in plain)
        rows = (self._computed(index[d], axes) for d in chosen)
        rest = tuple(axes.index(index[d]) for d in plain)
        return make(Gather(chosen, rest), tensor, *rows), axes

    def _computed(self, term: Node, axes: Nodes) -> Node:
        """A tensor over some axes of the values of a term."""
        there = dict(zip(axes, positions(len(axes)), strict=True))
        if not elements_of(term):
            return make(Index(self._shape(axes), *substitute((term,), there)))
        match term.op:
            case Element(tensor=tensor):
                node, own = self._picked(tensor, term.args)
                return viewed(node, self._shape(axes), tuple(there[a] for a in own))
            case Apply(function=function):
                return make(Map(function), *(self._computed(a, axes) for a in term.args))
            case _:
                raise AssertionError(f"{term.op.name} has no tensor")


def is_negative(e: Expression) -> bool:
    return e.kind == "mul" and any(a.kind == "const" and a.data == -1 for a in e.args)
