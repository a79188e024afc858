"""The call of a captured program: inputs to placeholders, results to outputs.

call = entry(captured, runner, 2, otherwise)
y, view = call(x, weight)             # what the FX graph returns
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import torch
from torch.utils._pytree import tree_unflatten

from weft.core.errors import ExternMismatch
from weft.core.node import Node
from weft.frontend.extents import Source
from weft.frontend.graph import Captured, Leaf, Placeholder, Runner, Values
from weft.scalar.ops import constant
from weft.scalar.resize import sizes_of, with_sizes


def entry(
    captured: Captured, run: Runner, arity: int, otherwise: Callable[[Exception], Any]
) -> Callable[..., Any]:
    """A function of the FX graph's `arity` inputs that returns what the graph does.

    `otherwise` gives what runs in its place where a library call turns out to give something
    else than its own rules say.
    """
    placeholders, leaves, tree = captured.placeholders, captured.leaves, captured.out_tree
    count, sizes = len(placeholders), [captured.sizes[n] for n in sizes_of(captured.graph).values()]
    inputs = [p.position for p in placeholders if p.region is None]
    straight = count == arity and not sizes and inputs == [*range(arity)]
    plain = tree.type is tuple and leaves == [Leaf("result", i) for i in range(len(leaves))]
    plain = plain and len(leaves) == len(captured.layouts) - len(captured.mutations)
    wrap = _wrap(captured)
    pick = None if straight else _picker(placeholders, sizes)

    def call(*inputs: Any) -> Any:
        given = inputs if pick is None else pick(inputs)
        try:
            results = run(given)
        except ExternMismatch as error:
            return otherwise(error)(*inputs)
        return results if plain else wrap(results, given, inputs)

    return call


def _picker(placeholders: Sequence[Placeholder], sizes: Sequence[Source]) -> Callable[[Any], Any]:
    """The placeholders' tensors and then the sizes, as a tuple, from the inputs."""
    whole = [p.position for p in placeholders if p.region is None and p.position is not None]
    places = [*whole, *(s.position for s in sizes if s.dimension is None)]
    if len(places) == len(placeholders) + len(sizes) > 1:
        return itemgetter(*places)
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
