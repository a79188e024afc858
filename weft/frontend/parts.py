"""An FX graph cut into parts that are graphs themselves.

whole = split(graph, steps, at)       # calls what precedes node `at`, `at` by itself, what follows
"""

# pyright: reportPrivateUsage=false

import operator
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import torch
from torch.fx.passes.split_module import split_module

from weft.frontend.extents import is_unbacked

FX = torch.fx.GraphModule
ENDS_GRADIENTS = (torch.autograd.grad, torch._C._set_grad_enabled)
EAGER, VALUE = "submod_eager", "example_value"  # the part of `at`; where Dynamo notes values


def split(graph: FX, steps: Sequence[torch.fx.Node], at: torch.fx.Node | None) -> FX:
    """The graph as calls of submodules: what precedes `at`, `at` itself, what follows."""
    order = {n: i for i, n in enumerate(steps)}
    middle = order.get(at, -1) if at is not None else -1

    def part(n: torch.fx.Node) -> Any:
        while n is not at and is_of_a_tuple(n):
            n = n.args[0]  # type: ignore[assignment]  # which does not pass from part to part
        place = order.get(n, 0)
        if middle < 0:
            return int(place >= len(steps) // 2)
        return "eager" if place == middle else 0 if place < middle else 2

    plain, copies = torch.fx.Graph(), dict[torch.fx.Node, torch.fx.Node]()
    plain.output(plain.graph_copy(graph.graph, copies))
    originals = {copy: n for n, copy in copies.items()}
    for copy in plain.nodes:  # split_module would have a size before the part that makes it
        if is_unbacked(copy.meta.get(VALUE)):
            del copy.meta[VALUE]
    place = lambda copy: part(originals[copy])  # noqa: E731
    return split_module(FX(graph, plain), torch.nn.Module(), place, keep_original_order=True)


def attributes(graph: FX) -> list[Any]:
    """What the graph holds itself and reads: tensors that Dynamo made no inputs of."""
    return [attrgetter(str(n.target))(graph) for n in graph.graph.find_nodes(op="get_attr")]


# Of these, torch's shape rules say that what is written keeps its size: an empty one is given one.
SIZING = (
    torch.fused_moving_avg_obs_fake_quant,
    torch.ops.aten.fused_moving_avg_obs_fake_quant.default,
)


def sizing(graph: FX) -> torch.fx.Node | None:
    """The first call that gives an empty tensor, which it writes, a size."""
    calls = (n for n in graph.graph.nodes if n.target in SIZING)
    return next((n for n in calls if any(map(_is_empty, n.all_input_nodes))), None)


def _is_empty(n: torch.fx.Node) -> bool:
    value = n.meta.get(VALUE, n.meta.get("val"))
    return isinstance(value, torch.Tensor) and 0 in value.shape


def trains(graph: FX) -> bool:
    """Whether the graph may have all of its gradients inside, or off: no result wants any."""
    returned = graph.graph.output_node().all_input_nodes
    wants = any(getattr(n.meta.get(VALUE), "requires_grad", False) for n in returned)
    return not wants and any(n.target in ENDS_GRADIENTS for n in graph.graph.nodes)


def is_of_a_tuple(n: torch.fx.Node) -> bool:
    """Whether a node picks one of the results of another."""
    of = n.args[0] if n.target is operator.getitem else None
    value = of.meta.get(VALUE, of.meta.get("val")) if isinstance(of, torch.fx.Node) else of
    return isinstance(of, torch.fx.Node) and not isinstance(value, torch.Tensor)


def returns_a_tuple(part: FX) -> bool:
    """Make a part return a tuple, as AOTAutograd wants; True where it returned one value."""
    output = part.graph.output_node()
    if isinstance(output.args[0], tuple | list):
        return False
    output.args = ((output.args[0],),)
    part.recompile()
    return True


def stays_whole(graph: FX, steps: Sequence[torch.fx.Node]) -> bool:
    """Whether a step goes wrong in another part than its operands, or the output in any part.

    That is so if it reads an attribute, which split_module knows only as a step's operand.
    """
    read = graph.graph.output_node().all_input_nodes
    return any(n.op == "get_attr" for n in read) or any(map(_goes_wrong, steps))


def _goes_wrong(n: torch.fx.Node) -> bool:
    """Whether a step does in another part than its operands.

    A view passes from part to part without the rest of its storage, which as_strided counts from.
    A mode is what later steps depend on: autocast, gradients, a transform's level.
    """
    target = n.target if isinstance(n.target, str) else getattr(n.target, "__name__", "")
    home = getattr(n.target, "__module__", None) or ""
    modes = ("torch.amp", "torch.autograd", "torch._functorch", "torch._C._functorch")
    sets = n.target is torch._C._set_grad_enabled or home.startswith(modes)
    return sets or target.startswith(("as_strided", "resize", "set_"))
