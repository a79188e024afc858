"""A captured program: its graph at the torch level, its inputs, what becomes of its outputs.

captured = capture(fx_graph, (x, weight))
captured.graph, captured.placeholders, captured.layouts, captured.mutations, captured.leaves
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from torch.utils._pytree import TreeSpec

from weft.core.node import Graph, Node
from weft.core.types import TensorType
from weft.frontend.extents import Source

Values = Sequence[Any]  # that a graph is called with, or that stand in place of them
# What a back end makes of a captured program. It takes one tensor per placeholder, in order, and
# then the numbers that the graph's sizes are, by label. It writes every mutation into its
# placeholder's tensor and returns one fresh tensor per result with exactly the shape, strides and
# dtype of its layout.
Runner = Callable[[Values], Sequence[torch.Tensor]]


@dataclass(frozen=True)
class Geometry:
    """An as_strided view of a tensor; `offset` counts from that tensor's first element."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.as_strided(self.shape, self.strides, tensor.storage_offset() + self.offset)


@dataclass(frozen=True, eq=False)
class Placeholder:
    """A tensor that comes from outside.

    `position` is its place among the graph's inputs; None for `tensor`, a literal of the program.
    `fixed` marks a parameter or buffer. `region` asks for that as_strided part of the tensor:
    inputs that share a storage which the program writes arrive as one 1-D placeholder that covers
    them all.
    """

    node: Node
    position: int | None = None
    fixed: bool = False
    tensor: torch.Tensor | None = None
    region: Geometry | None = None


@dataclass(frozen=True)
class Leaf:
    """One leaf of the output pytree.

    result       the graph's output number `index`, or the view `geometry` of it
    placeholder  the tensor of placeholders[index] itself, or the view `geometry` of it
    input        the FX graph's input number `index`, an object that is no tensor
    constant     the object `constant`
    size         the number that the size `constant` is
    """

    kind: Literal["result", "placeholder", "input", "constant", "size"]
    index: int = 0
    geometry: Geometry | None = None
    constant: Any = None


class Known(NamedTuple):
    """What lowering may use beside a graph: layouts of its outputs, the inputs that are constants,
    whether the program may be one for a part of the sizes, and which sizes are few there: None
    where it is one for all after all.
    """

    layouts: tuple[TensorType, ...] | None = None
    constants: Collection[int] = ()
    narrows: bool = False
    few: Collection[str] | None = ()


KNOWN = Known()


@dataclass
class Captured:
    """An FX graph, traced for one set of assumptions about its inputs.

    The graph's outputs are fresh tensors of these layouts, but for the last ones: `mutations` has
    the numbers of the placeholders that hold them afterwards. One that no leaf names is the last
    draw of random numbers, which nothing reads.
    """

    graph: Graph
    placeholders: list[Placeholder]
    layouts: tuple[TensorType, ...]
    mutations: list[int]
    leaves: list[Leaf]
    out_tree: TreeSpec
    place: torch.device  # where its tensors are, whatever the target
    numbers: dict[int, Any]  # by position, inputs of one element whose value the trace has read
    sizes: dict[Node, Source] = field(default_factory=dict[Node, Source])  # by symbol, in order
    narrows: bool = False  # whether it may have programs of its own for parts of the sizes
    seconds: float = 0.0

    def constants(self) -> tuple[int, ...]:
        """Placeholders that seldom change, and can tell: parameters and the like, not written."""
        fixed = [(i, p) for i, p in enumerate(self.placeholders) if p.fixed or p.position is None]
        return tuple(i for i, p in fixed if p.region is None and i not in self.mutations)
