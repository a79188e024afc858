"""Graphs that take lists of tensors, as those of compiled autograd do, with an input for each item.

flat, given = without_lists(graph), items(inputs)     # flat(*given) is graph(*inputs)
"""

import operator
from collections.abc import Sequence
from typing import Any

import torch

from weft.core.errors import CaptureError
from weft.frontend.parts import FX, VALUE

Lists = (list, tuple)


def items(inputs: Sequence[Any]) -> list[Any]:
    """The inputs, each list's items in its place."""
    return [item for x in inputs for item in (x if isinstance(x, Lists) else (x,))]


def handed_over(graph: FX) -> list[int]:
    """The positions of lists that the graph's caller hands over for good: to be emptied."""
    places = graph.graph.find_nodes(op="placeholder")
    return [i for i, place in enumerate(places) if place.meta.get("steal_arg", False)]


def without_lists(graph: FX, examples: Sequence[Any]) -> FX:
    """The graph with an input for each item of a list.

    CaptureError where it does anything with a list but read an item.
    """
    plain, copies = torch.fx.Graph(), dict[torch.fx.Node, torch.fx.Node]()
    places = graph.graph.find_nodes(op="placeholder")
    for place, example in zip(places, examples, strict=True):
        if not isinstance(example, Lists):
            copies[place] = plain.node_copy(place)
            continue
        inputs = [plain.placeholder(f"{place.name}_{j}") for j in range(len(example))]
        for node, value in zip(inputs, example, strict=True):
            node.meta[VALUE] = value
        for user in place.users:
            at = user.args[1] if user.target is operator.getitem else None
            if not isinstance(at, int):
                raise CaptureError(f"{user.name} uses a list of tensors as a whole")
            copies[user] = inputs[at]
    for node in graph.graph.nodes:
        if node not in copies and node not in places:
            copies[node] = plain.node_copy(node, copies.__getitem__)
    return FX(graph, plain)
