"""Expressions, which an extraction chose, and what writes them as tensors.

y = Writer(dtype, extents, splits).root(expression, shape)      # views, maps and reduces

Each expression is a tensor over its free axes, in an order of these.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.core.node import Node, Nodes, make, substitute
from weft.core.types import DType
from weft.scalar.monoid import SUM
from weft.scalar.ops import FUNCTIONS, constant
from weft.search.regions import root_axis
from weft.search.splits import Splits, coordinates
from weft.tensor.ops import Map, Reduce, position, positions
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


def _place(a: Node) -> tuple[int, int, str]:
    """Where an axis goes: rows of a root, then sums, then the last axis of a root."""
    label: str = a.op.label  # type: ignore[attr-defined]
    if not label.startswith("o"):
        return 1, 0, label
    from_last = int(label[1:].split("_")[0])
    return (0, -from_last, label) if from_last else (2, 0, label)


class Writer:
    """Writes expressions as tensors: each is one over its free axes, in an order of these."""

    def __init__(self, dtype: DType, extents: Mapping[Node, int], splits: Splits) -> None:
        self.dtype, self.extents, self.splits = dtype, extents, splits
        self.memo: dict[int, tuple[Node, Nodes]] = {}

    def root(self, expression: Expression, shape: tuple[int, ...]) -> Node:
        node, axes = self.tensor(expression)
        rank = len(shape)
        places: dict[Node, Node] = {}
        for d, n in enumerate(shape):
            places |= coordinates(root_axis(rank - 1 - d, n), position(d), self.splits)
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


def _is_negative(e: Expression) -> bool:
    return e.kind == "mul" and any(a.kind == "const" and a.data == -1 for a in e.args)
