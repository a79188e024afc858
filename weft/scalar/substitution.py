"""Replaces parts of programs by others wherever they occur: buffers, folds, terms.

substituted(block, {x: y})              # the block over another buffer, at the same indices
substituted(block, {total: own})        # its loops and updates with another fold
substituted(block, {a0: axis("a7")})    # the terms, and the loop itself
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from weft.core.node import Node, Op, bottom_up, make
from weft.core.types import DType
from weft.scalar.monoid import Monoid
from weft.scalar.nest import Buffer, Fold
from weft.scalar.ops import Function

T = TypeVar("T")

SHARED = Op | Buffer | Fold  # values that occur often: each is looked at once
WHOLE = type | DType | Function | Monoid  # nothing inside these is ever replaced


class Substitution:
    """Replaces parts in values of every kind that programs are made of; the others stay as is."""

    def __init__(self, parts: Mapping[Any, Any]) -> None:
        self.known: dict[Any, Any] = dict(parts)

    def of(self, value: Any) -> Any:
        if isinstance(value, Node):
            return bottom_up(value, self.known, self.node)
        if isinstance(value, tuple):
            return tuple(map(self.of, value))
        if isinstance(value, SHARED):
            if value not in self.known:
                self.known[value] = self.inside(value)
            return self.known[value]
        inside = is_dataclass(value) and not isinstance(value, WHOLE)
        return self.inside(value) if inside else value

    def node(self, node: Node) -> Node:
        return make(self.of(node.op), *(self.known[a] for a in node.args))

    def inside(self, value: T) -> T:
        """A dataclass with its fields changed; itself where none is."""
        old = {f.name: getattr(value, f.name) for f in fields(value) if f.init}  # type: ignore[arg-type]
        new = {name: self.of(part) for name, part in old.items()}
        return value if new == old else replace(value, **new)  # type: ignore[type-var]


def substituted(value: T, parts: Mapping[Any, Any]) -> T:
    """A part of a program with others for some of its buffers, folds or terms."""
    return Substitution(parts).of(value) if parts else value
