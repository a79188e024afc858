"""A captured program: its graph at the torch level, its inputs, what becomes of its outputs.

captured = capture(torch.nn.RMSNorm(64), (torch.randn(8, 64),), {})
captured.graph, captured.placeholders, captured.layouts, captured.mutations, captured.leaves
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.utils._pytree import TreeSpec

from weft.core.graph import Graph
from weft.core.node import Node
from weft.core.types import TensorType

# What a back end makes of a captured program. It takes one tensor per placeholder, in order,
# writes every mutation into its placeholder's tensor and returns one fresh tensor per result
# with exactly the shape, strides and dtype of its layout.
Runner = Callable[[list[torch.Tensor]], Sequence[torch.Tensor]]


@dataclass(frozen=True)
class Geometry:
    """An as_strided view of a tensor; `offset` counts from that tensor's first element."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        start = tensor.storage_offset() + self.offset
        return tensor.as_strided(self.shape, self.strides, start)


@dataclass(frozen=True, eq=False)
class Placeholder:
    """A tensor that comes from outside.

    input      the tensor at flat position `position` of (args, kwargs)
    parameter  read at each call from `home`, for instance (module._parameters, "weight")
    buffer     the same in module._buffers
    constant   `tensor`, found by the trace in a closure, a global or an attribute
    `region` asks for that as_strided part of the tensor: inputs that share a storage which the
    program writes arrive as one 1-D placeholder that covers them all.
    """

    node: Node
    kind: Literal["input", "parameter", "buffer", "constant"]
    position: int | None = None
    fixed: bool = False  # an input that is a Parameter: Dynamo's graphs take them as arguments
    home: tuple[dict[str, Any], str] | None = None
    tensor: torch.Tensor | None = None
    region: Geometry | None = None

    @property
    def held(self) -> torch.Tensor | None:
        """What it stands for now, where a module or the trace holds that."""
        return self.home[0].get(self.home[1]) if self.home else self.tensor


@dataclass(frozen=True)
class Leaf:
    """One leaf of the output pytree.

    result       the graph's output number `index`, or the view `geometry` of it
    placeholder  the tensor of placeholders[index] itself, or the view `geometry` of it
    constant     the object `constant`
    """

    kind: Literal["result", "placeholder", "constant"]
    index: int = 0
    geometry: Geometry | None = None
    constant: Any = None


@dataclass
class Captured:
    """A callable, traced for one signature.

    The graph's outputs are fresh tensors of these layouts, but for the last ones: `mutations` has
    the numbers of the placeholders that hold them afterwards.
    """

    graph: Graph
    placeholders: list[Placeholder]
    layouts: tuple[TensorType, ...]
    mutations: list[int]
    leaves: list[Leaf]
    in_tree: TreeSpec
    out_tree: TreeSpec
    place: torch.device  # where its tensors are, whatever the target
    # Two placeholders share a storage, so the same call on separate tensors is another program.
    overlapping: bool = False
    seconds: float = 0.0

    def constants(self) -> tuple[int, ...]:
        """Placeholders that seldom change, and can tell: parameters and the like, not written."""
        return tuple(
            i
            for i, p in enumerate(self.placeholders)
            if (p.fixed or p.kind != "input") and p.region is None and i not in self.mutations
            if (tensor := p.held) is None or not tensor.is_inference()
        )
