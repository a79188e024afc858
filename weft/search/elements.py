"""What terms of the search have beside axes: elements of tensors, and the extents of axes."""

from dataclasses import dataclass
from typing import ClassVar

from weft.core.node import Node, Op, postorder
from weft.core.types import ScalarType, i64


@dataclass(frozen=True)
class Element(Op):
    """An element of a tensor of integers or conditions; its operands are the coordinates.

    extent    it is less than that, and not negative, if this is known
    """

    tensor: Node
    extent: int | None = None
    name: ClassVar[str] = "element"

    def infer(self, *index: ScalarType) -> ScalarType:
        return ScalarType(self.tensor.type.dtype)


@dataclass(frozen=True)
class Extent(Op):
    """The number of positions along an axis, also where a check shortens that."""

    axis: Node
    name: ClassVar[str] = "extent"

    def infer(self) -> ScalarType:
        return ScalarType(i64)


def elements_of(*terms: Node) -> list[Node]:
    return [n for n in postorder(*terms) if isinstance(n.op, Element)]


def extents_of(*terms: Node) -> list[Node]:
    return [n for n in postorder(*terms) if isinstance(n.op, Extent)]
