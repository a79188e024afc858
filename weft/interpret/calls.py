"""Runs the torch level: torch itself makes every call.

evaluate(graph, tensors)
evaluate(graph, tensors, double=True)        # the float64 reference of every check
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from weft.core.node import Graph, Node
from weft.library.calls import operator, torch_object
from weft.scalar.resize import at_shapes
from weft.tensor.ops import LibraryCall
from weft.tensor.recurrence import Recurrence

Call = Callable[[LibraryCall, Sequence[torch.Tensor]], Any]


def evaluate(
    graph: Graph, inputs: Sequence[torch.Tensor], double: bool = False
) -> list[torch.Tensor]:
    """Run every call through torch; `double` does all floating-point work in float64."""
    graph = at_shapes(graph, (tuple(t.shape) for t in inputs))
    wide = [t.double() if double and t.is_floating_point() else t for t in inputs]
    return _evaluate(graph, wide, _call_double if double else _call)


def _evaluate(graph: Graph, inputs: Sequence[torch.Tensor], call: Call) -> list[torch.Tensor]:
    values: dict[Node, Any] = dict(zip(graph.inputs, inputs, strict=True))
    for node in graph.nodes():
        if node in values:
            continue
        op, args = node.op, [values[a] for a in node.args]
        if isinstance(op, Recurrence):
            step = partial(_evaluate, op.body, call=call)
            values[node] = op.unrolled(step, args, torch.stack)
            continue
        out = tree_leaves(call(op, args) if isinstance(op, LibraryCall) else op.evaluate(*args))
        values[node] = out[0] if len(out) == 1 else out
    return [values[o] for o in graph.outputs]


def _call(call: LibraryCall, values: Sequence[torch.Tensor]) -> Any:
    args, kwargs = call.arguments.bind(values, torch_object)
    return operator(call.target)(*args, **kwargs)


def _call_double(call: LibraryCall, values: Sequence[torch.Tensor]) -> Any:
    """The call with float64 wherever its arguments name a floating-point dtype."""
    args, kwargs = call.arguments.bind(values, widened)
    target = operator(call.target)
    for i, argument in enumerate(target._schema.arguments[: len(args)]):
        if argument.name == "half_to_float":  # softmax of f16 with an f32 result
            args[i] = False
    makes_floats = call.results[0].dtype.is_float and not values
    if makes_floats and any(a.name == "dtype" for a in target._schema.arguments):
        kwargs["dtype"] = torch.float64
    return target(*args, **kwargs)


def widened(tag: str, value: Any) -> Any:
    """What a tagged leaf stands for, but float64 for every floating-point dtype."""
    found = torch_object(tag, value)
    is_float = isinstance(found, torch.dtype) and found.is_floating_point
    return torch.float64 if is_float else found
