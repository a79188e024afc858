"""The torch level: a flat functional ATen graph, its inputs, and what becomes of its outputs.

captured = capture(torch.nn.RMSNorm(64), (torch.randn(8, 64),), {})
captured.placeholders, captured.nodes, captured.results, captured.mutations, captured.leaves
"""

# This file reaches into torch: its dispatcher and tables have no public names for all of it.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch.utils._pytree import TreeSpec

# What a back end makes of a captured program. It takes one tensor per placeholder, in order,
# writes every mutation into its placeholder's tensor and returns one fresh tensor per result
# with exactly the shape, strides and dtype of `Result.meta`.
Runner = Callable[[list[torch.Tensor]], Sequence[torch.Tensor]]


@dataclass(frozen=True)
class Meta:
    """What is known of a tensor before it exists; strides are eager's."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @staticmethod
    def of(tensor: torch.Tensor) -> Meta:
        return Meta(tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device)

    def __str__(self) -> str:
        dims = ",".join(map(str, self.shape))
        return f"{str(self.dtype).removeprefix('torch.')}[{dims}]"


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
class Value:
    """One tensor of the graph: a placeholder, or one result of a node. Compared by identity."""

    name: str
    meta: Meta

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False)
class Node:
    """values = op(*args, **kwargs), where args hold Values; `where` is the torch source line.

    An op that returns one tensor has one value; one that returns several, or a list, has them
    flat (None for a result the op leaves undefined).
    """

    op: torch._ops.OpOverload
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    values: tuple[Value | None, ...]
    where: str | None = None

    def operands(self) -> list[Value]:
        held = flattened([self.args, *self.kwargs.values()])
        return [value for value in held if isinstance(value, Value)]


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

    value: Value
    kind: Literal["input", "parameter", "buffer", "constant"]
    position: int | None = None
    fixed: bool = False  # an input that is a Parameter: Dynamo's graphs take them as arguments
    home: tuple[dict[str, Any], str] | None = None
    tensor: torch.Tensor | None = None
    region: Geometry | None = None

    @property
    def name(self) -> str:
        return self.value.name

    @property
    def held(self) -> torch.Tensor | None:
        """What it stands for now, where a module or the trace holds that."""
        return self.home[0].get(self.home[1]) if self.home else self.tensor


@dataclass(frozen=True)
class Result:
    """A fresh tensor that the program returns; the layout is `meta`, not `value.meta`."""

    value: Value
    meta: Meta


@dataclass(frozen=True)
class Mutation:
    """Afterwards the tensor of placeholder number `placeholder` holds `value`."""

    placeholder: int
    value: Value


@dataclass(frozen=True)
class Leaf:
    """One leaf of the output pytree.

    result       results[index], or the view `geometry` of it
    placeholder  the tensor of placeholders[index] itself, or the view `geometry` of it
    constant     the object `constant`
    """

    kind: Literal["result", "placeholder", "constant"]
    index: int = 0
    geometry: Geometry | None = None
    constant: Any = None


@dataclass
class Captured:
    """A callable, traced for one signature."""

    name: str
    placeholders: list[Placeholder]
    nodes: list[Node]
    results: list[Result]
    mutations: list[Mutation]
    leaves: list[Leaf]
    in_tree: TreeSpec
    out_tree: TreeSpec
    # Two placeholders share a storage, so the same call on separate tensors is another program.
    overlapping: bool = False
    seconds: float = 0.0

    def constants(self) -> tuple[int, ...]:
        """Placeholders that seldom change, and can tell: parameters and the like, not written."""
        written = {m.placeholder for m in self.mutations}
        return tuple(
            i
            for i, p in enumerate(self.placeholders)
            if (p.fixed or p.kind != "input") and p.region is None and i not in written
            if (tensor := p.held) is None or not tensor.is_inference()
        )

    def without_dead_nodes(self) -> Captured:
        """Without the nodes nobody reads; random ops stay, for they advance the generator."""
        live = {r.value for r in self.results} | {m.value for m in self.mutations}
        kept: list[Node] = []
        for node in reversed(self.nodes):
            stays = not node.values or torch.Tag.nondeterministic_seeded in node.op.tags
            if stays or any(v in live for v in node.values):
                live.update(node.operands())
                kept.append(node)
        return replace(self, nodes=kept[::-1])


def map_args(args: Any, kind: type, f: Callable[[Any], Any]) -> Any:
    """`args` with every instance of `kind`, at any depth of lists and tuples, replaced."""
    if isinstance(args, kind):
        return f(args)
    if isinstance(args, (list, tuple)):
        mapped = [map_args(a, kind, f) for a in args]
        return mapped if isinstance(args, list) else tuple(mapped)
    return args


def flattened(out: Any) -> list[Any]:
    """The items of lists and tuples at any depth: what an ATen op takes or returns."""
    if not isinstance(out, (list, tuple)):
        return [out]
    return [t for item in out for t in flattened(item)]
