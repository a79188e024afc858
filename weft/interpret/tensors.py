"""The tensor level's reference interpreter: NumPy for the primitives, torch for library calls.

evaluate(graph, [x, w])                  # [array], in the program's own dtypes
evaluate(graph, [x, w], widen=True)      # every float in f64, for a reference to compare with
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from weft.core.errors import VerifyError
from weft.core.node import Graph, Node
from weft.interpret.calls import widened
from weft.interpret.memory import as_array, as_tensor
from weft.library.calls import operator, torch_object
from weft.scalar.ops import ROUNDINGS
from weft.scalar.resize import at_shapes
from weft.tensor.ops import Extern, Input, Map, Scalar
from weft.tensor.recurrence import Recurrence


def evaluate(graph: Graph, inputs: Sequence[np.ndarray], widen: bool = False) -> list[np.ndarray]:
    """The graph's outputs for inputs in its order; `widen` computes every float in f64.

    VerifyError for another number of inputs, or an input of another shape or dtype.
    """
    if len(inputs) != len(graph.inputs):
        raise VerifyError(f"{graph.name} takes {len(graph.inputs)} inputs, got {len(inputs)}")
    graph = at_shapes(graph, map(np.shape, inputs))
    values: dict[Node, Any] = {}
    for node, value in zip(graph.inputs, inputs, strict=True):
        array = np.asarray(value)
        if array.shape != node.type.shape or array.dtype != node.type.dtype.numpy:
            label = node.op.label if isinstance(node.op, Input) else node.op.name
            given = f"{array.dtype}{list(array.shape)}"
            raise VerifyError(f"input {label} is {node.type}, got {given}")
        values[node] = array.astype(np.float64) if widen and node.type.dtype.is_float else array
    for node in graph.nodes():
        if node not in values and isinstance(node.op, Input):
            raise VerifyError(f"{graph.name} reads {node.op.label}, which is not an input")
    return list(map(np.asarray, evaluate_body(graph, [*values.values()], widen)))


def evaluate_node(node: Node, args: Sequence[Any], widen: bool = False) -> Any:
    """Evaluate one node on its operands' values."""
    op = node.op
    if isinstance(op, Extern):
        return call_extern(op, args, widen)
    if isinstance(op, Recurrence):
        return op.unrolled(lambda given: evaluate_body(op.body, given, widen), args, np.stack)
    if widen and isinstance(op, Scalar) and op.dtype.is_float:
        return np.asarray(op.value, np.float64)
    if widen and isinstance(op, Map) and op.function in ROUNDINGS:
        return np.asarray(args[0]).astype(np.float64)
    result = op.evaluate(*args)
    rounds = widen and isinstance(op, Map) and node.type.dtype.is_float  # to 8 bits
    return result.astype(np.float64) if rounds else result


def evaluate_body(body: Graph, given: Sequence[Any], widen: bool) -> list[Any]:
    """The outputs of a graph inside another one."""
    values = dict(zip(body.inputs, given, strict=True))
    for node in body.nodes():
        if node not in values:
            values[node] = evaluate_node(node, [values[a] for a in node.args], widen)
    return [values[o] for o in body.outputs]


def call_extern(op: Extern, args: Sequence[Any], widen: bool = False) -> Any:
    """Call an extern's operator through torch; return an array, or a tuple of its results."""
    tensors = [to_torch(np.asarray(a)) for a in args]
    leaf = widened if widen else torch_object
    arguments, keywords = op.arguments.bind(tensors, leaf)
    result = operator(op.target)(*arguments, **keywords)
    if isinstance(result, torch.Tensor):
        return to_numpy(result)
    return tuple(to_numpy(r) if isinstance(r, torch.Tensor) else r for r in result)


def to_torch(x: np.ndarray) -> torch.Tensor:
    return as_tensor(np.ascontiguousarray(x).reshape(x.shape).copy())


def to_numpy(x: torch.Tensor) -> np.ndarray:
    return as_array(x.detach().contiguous())
