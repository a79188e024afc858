"""Random numbers that a program draws and never reads: they still move torch's generator.

graph, extra = keep_draws(fx_graph)   # the graph that returns such numbers as well, and how many
AOTAutograd drops what no output needs, so a seeded program would draw other numbers than in eager.
"""

# This file reaches into torch: dispatch modes have no public name.
# pyright: reportPrivateUsage=false

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule, Interpreter, Node
from torch.fx.node import map_arg
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_map_only

from weft.core.node import bottom_up


def keep_draws(graph: GraphModule) -> tuple[GraphModule, int]:
    """A graph whose last outputs are the random numbers that no output needs, and their count."""
    read: dict[Node, None] = {}
    bottom_up(graph.graph.output_node(), read, lambda _: None, lambda n: n.all_input_nodes)
    unread = (n for n in graph.graph.nodes if n not in read)
    drawn = {n for n in unread if n.op.startswith("call_") and _draws(graph, n)}
    if not drawn:
        return graph, 0
    copy = GraphModule(graph, Graph())
    twins: dict[Node, Node] = {}
    copy.graph.graph_copy(graph.graph, twins)  # all but the output
    returned: Any = graph.graph.output_node().args[0]
    values: Any = map_arg(returned, twins.__getitem__)
    copy.graph.output((*values, *(twins[n] for n in graph.graph.nodes if n in drawn)))
    copy.recompile()
    return copy, len(drawn)


class _Watch(TorchDispatchMode):
    """Sees whether an operator that draws random numbers was called."""

    drawn = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.drawn |= torch.Tag.nondeterministic_seeded in func.tags
        return func(*args, **(kwargs or {}))


def _draws(graph: GraphModule, node: Node) -> bool:
    """Whether the call draws random numbers and gives them as one tensor: run without values."""
    if not isinstance(node.meta.get("example_value"), torch.Tensor):
        return False
    copies = FakeTensorMode()

    def copy(t: torch.Tensor) -> torch.Tensor:
        return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device)

    values = {n: n.meta.get("example_value") for n in node.all_input_nodes}
    with _disable_current_modes(), copies, torch.no_grad():
        values = tree_map_only(torch.Tensor, copy, values)
        both: Any = map_arg((node.args, node.kwargs), values.__getitem__)
        with _Watch() as watch:
            getattr(Interpreter(graph), node.op)(node.target, *both)
    return watch.drawn
