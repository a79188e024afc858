"""A captured program, and its call.

captured = capture(fx_graph, (x, weight))
captured.graph, captured.placeholders, captured.layouts, captured.mutations, captured.leaves
call = entry(captured, runner, 2, otherwise)
y, view = call(x, weight)             # what the FX graph returns
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import Any, Literal, NamedTuple

import torch
from torch.utils._pytree import TreeSpec, tree_unflatten

from weft.core.errors import ExternMismatch
from weft.core.node import Graph, Node
from weft.core.types import TensorType
from weft.frontend.extents import Source
from weft.scalar.ops import constant
from weft.scalar.resize import sizes_of, with_sizes

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
    where it is one for all after all; whether it shall only be fused; whether floats are to be
    summed in the program's own order; whether it runs without ATen, so that no op may stay.
    """

    layouts: tuple[TensorType, ...] | None = None
    constants: Collection[int] = ()
    narrows: bool = False
    few: Collection[str] | None = ()
    fused: bool = False
    ordered: bool = False
    alone: bool = False


KNOWN = Known()


@dataclass
class Captured:
    """An FX graph, traced for one set of assumptions about its inputs.

    The graph's outputs are fresh tensors of these layouts, but for the last ones: `mutations` has
    the numbers of the placeholders that hold them afterwards. One that no leaf names is of the last
    draw of random numbers, or collective, which nothing reads.
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
    called: dict[str, Node] = field(default_factory=dict[str, Node])  # the same, by torch's names
    narrows: bool = False  # whether it may have programs of its own for parts of the sizes
    seconds: float = 0.0

    def constants(self) -> tuple[int, ...]:
        """Placeholders that seldom change, and can tell: parameters and the like, not written."""
        fixed = [(i, p) for i, p in enumerate(self.placeholders) if p.fixed or p.position is None]
        return tuple(i for i, p in fixed if p.region is None and i not in self.mutations)


# --- the call -------------------------------------------------------------------------------------


def entry(
    captured: Captured,
    run: Runner,
    arity: int,
    otherwise: Callable[[Exception], Any],
    apart: Callable[[Values], Values] | None = None,
) -> Callable[..., Any]:
    """A function of the FX graph's `arity` inputs that returns what the graph does.

    `apart` takes those of them apart that are made of others: then there are `arity` in all.
    `otherwise` gives what runs in its place where a library call turns out to give something
    else than its own rules say. Of a program that writes to inputs, `writing` is None or makes a
    faster one: writing(apart, other) calls other(*inputs) where apart(*inputs) is False, which it
    asks where some lie elsewhere than before.
    """
    placeholders, leaves, tree = captured.placeholders, captured.leaves, captured.out_tree
    count, sizes = len(placeholders), [captured.sizes[n] for n in sizes_of(captured.graph).values()]
    inputs = [p.position for p in placeholders if p.region is None]
    straight = count == arity and not sizes and inputs == [*range(arity)]
    plain = tree.type is tuple and leaves == [Leaf("result", i) for i in range(len(leaves))]
    plain = plain and len(leaves) == len(captured.layouts) - len(captured.mutations)
    wrap = _wrap(captured)
    own = run if plain and straight and apart is None else None
    direct = getattr(own, "direct", None)
    pick = None if straight else _picker(placeholders, sizes)

    def call(*inputs: Any) -> Any:
        whole = inputs if apart is None else apart(inputs)
        given = whole if pick is None else pick(whole)
        try:
            results = run(given)
        except ExternMismatch as error:
            return otherwise(error)(*inputs)
        return results if plain else wrap(results, given, whole)

    call.writing = getattr(own, "writing", None)  # type: ignore[attr-defined]
    return direct or call


def _picker(placeholders: Sequence[Placeholder], sizes: Sequence[Source]) -> Callable[[Any], Any]:
    """The placeholders' tensors and then the sizes, as a tuple, from the inputs."""
    own = tuple(p.tensor for p in placeholders if p.position is None)
    number = iter(range(-len(own), 0))  # literals are picked from behind the inputs
    whole = [next(number) if p.position is None else p.position for p in placeholders]
    places = [*whole, *(s.position for s in sizes if s.dimension is None)]
    regions = any(p.region is not None for p in placeholders)
    if not regions and len(places) == len(placeholders) + len(sizes) > 1:
        pick = itemgetter(*places)
        return (lambda inputs: pick((*inputs, *own))) if own else pick
    read = [*map(_reader, placeholders), *(s.of for s in sizes)]
    return lambda inputs: tuple([r(inputs) for r in read])


def _reader(p: Placeholder) -> Callable[[Values], torch.Tensor]:
    """A placeholder's tensor, from the inputs."""
    if p.position is None:
        return lambda inputs: p.tensor  # type: ignore[return-value]
    if p.region is None:
        return itemgetter(p.position)
    return lambda inputs: p.region.of(inputs[p.position])  # type: ignore[union-attr]


Write = Callable[[Values, Values, Values], Any]  # of results, placeholders' tensors and inputs
SOURCES = ("result", "placeholder", "input")  # the kinds of leaf that these three are for


def _wrap(captured: Captured) -> Write:
    """Outputs, from the results, the placeholders' tensors and the inputs."""
    write = [_writer(leaf, captured.sizes) for leaf in captured.leaves]
    tree = captured.out_tree
    if tree.is_leaf():
        return write[0]
    flat = tree.type in (tuple, list) and all(child.is_leaf() for child in tree.children())
    make = tree.type if flat else partial(tree_unflatten, treespec=tree)
    return lambda *sources: make([w(*sources) for w in write])


def _writer(leaf: Leaf, sizes: Mapping[Node, Source]) -> Write:
    """One leaf of the output."""
    index, geometry = leaf.index, leaf.geometry
    if sizes and sizes_of(leaf):
        return lambda results, tensors, inputs: _writer(
            with_sizes(leaf, {n: constant(s.of(inputs)) for n, s in sizes.items()}), {}
        )(results, tensors, inputs)
    if leaf.kind in ("constant", "size"):
        return lambda *_: leaf.constant
    source = SOURCES.index(leaf.kind)
    if geometry is None:
        return lambda *sources: sources[source][index]
    return lambda *sources: geometry.of(sources[source][index])
