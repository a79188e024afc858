"""The torch level: ATen calls as interned nodes, made from a captured graph, run through torch.

graph = from_captured(captured)              # relu = aten{aten.relu.default, ...}(x): f32[16,16]
evaluate(graph, tensors)                     # torch itself
evaluate(graph, tensors, double=True)        # the float64 reference of every check
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from weft.core.calls import TORCH_DTYPES, decode_call, encode, operator, torch_object
from weft.core.errors import UnsupportedOpError, VerifyError
from weft.core.graph import Graph
from weft.core.node import Node, Op, make, op
from weft.core.types import DTYPES, DType, TensorType, TupleType, f32, row_major
from weft.frontend.graph import Captured, Meta, Value, flattened
from weft.frontend.graph import Node as CapturedNode
from weft.tensor.ops import Input, Part

# Element types only library calls use: torch's names, and what NumPy holds one in.
NUMPYS = ("complex64", "complex128", "uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2")
FOREIGN = {"complex32": "uint32", **{name: name for name in NUMPYS}}


def _foreign(name: str, held: Any) -> DType:
    return DType(name, "foreign", 8 * held.itemsize, held)


DTYPE_OF: dict[torch.dtype, DType] = {
    **{t: DTYPES[name] for name, t in TORCH_DTYPES.items()},
    **{getattr(torch, n): _foreign(n, np.dtype(held)) for n, held in FOREIGN.items()},
}
TORCH_DTYPE = {d: t for t, d in DTYPE_OF.items()}


def dtype_of(dtype: torch.dtype) -> DType:
    found = DTYPE_OF.get(dtype)
    if found is None:
        raise UnsupportedOpError(f"weft has no element type for {dtype}")
    return found


def type_of(meta: Meta) -> TensorType:
    """Strides are kept where they are not row-major (those of axes of length 1 don't matter)."""
    told = zip(meta.shape, meta.strides, row_major(meta.shape), strict=True)
    plain = 0 in meta.shape or all(n == 1 or s == t for n, s, t in told)
    return TensorType(dtype_of(meta.dtype), meta.shape, None if plain else meta.strides)


NOTHING = TensorType(f32, (0,))  # stands for a result the op was asked not to compute


@op("aten")
class Aten(Op):
    """One ATen call. `arguments` is its JSON, in which {"tensor": i} is the i-th argument node.

    a = aten{aten.add.Tensor, {"args":[{"tensor":0},1],"kwargs":{}}}(x)
    `serial` keeps two random calls apart, which interning would merge.
    """

    target: str
    arguments: str
    results: tuple[TensorType, ...]
    serial: int = 0

    def infer(self, *types: TensorType) -> Any:
        return self.results[0] if len(self.results) == 1 else TupleType(self.results)

    def evaluate(self, *values: torch.Tensor) -> Any:
        args, kwargs = decode_call(self.arguments, values)
        return operator(self.target)(*args, **kwargs)


# --- arguments as JSON --------------------------------------------------------------------------


def encode_call(
    args: Sequence[Any], kwargs: Mapping[str, Any], values: Mapping[Value, Node]
) -> tuple[str, tuple[Node, ...]]:
    """The call as text, and the nodes its {"tensor": i} stand for."""
    nodes: list[Node] = []

    def number_of(value: Any) -> int | None:
        if not isinstance(value, Value):
            return None
        if values[value] not in nodes:
            nodes.append(values[value])
        return nodes.index(values[value])

    tree = {
        "args": [encode(a, number_of) for a in args],
        "kwargs": {k: encode(a, number_of) for k, a in kwargs.items()},
    }
    return dump(tree), tuple(nodes)


def dump(tree: Any) -> str:
    """The arguments of a call in their one spelling."""
    return json.dumps(tree, separators=(",", ":"))


# --- from a captured program --------------------------------------------------------------------


def from_captured(captured: Captured) -> Graph:
    """The program as interned nodes. Outputs are its results, then what its mutations store."""
    values: dict[Value, Node] = {}
    names: dict[Node, str] = {}
    origin: dict[Node, str] = {}
    for placeholder in captured.placeholders:
        node = make(Input(placeholder.name, type_of(placeholder.value.meta)))
        values[placeholder.value], names[node] = node, placeholder.name
    random_calls = 0
    for call in captured.nodes:
        random = torch.Tag.nondeterministic_seeded in call.op.tags
        random_calls += random
        whole = _from_call(call, values, random_calls if random else 0)
        for i, value in enumerate(call.values):
            if value is not None:
                node = whole if len(call.values) == 1 else make(Part(i), whole)
                values[value] = node
                names.setdefault(node, value.name)
        if call.where is not None:
            origin.setdefault(whole, call.where)
    inputs = tuple(values[p.value] for p in captured.placeholders)
    ends = [r.value for r in captured.results] + [m.value for m in captured.mutations]
    return Graph("torch", captured.name, inputs, tuple(values[v] for v in ends), names, origin)


def _from_call(call: CapturedNode, values: Mapping[Value, Node], serial: int) -> Node:
    text, nodes = encode_call(call.args, call.kwargs, values)
    results = tuple(NOTHING if v is None else type_of(v.meta) for v in call.values)
    return make(Aten(str(call.op), text, results, serial), *nodes)


# --- checking -----------------------------------------------------------------------------------


def verify(graph: Graph) -> None:
    """Every call gives what it declares: torch itself runs it on tensors without values."""
    for node in graph.nodes():
        if not isinstance(node.op, Aten):
            continue
        name, target = graph.names.get(node, "a call"), node.op.target
        try:
            results = flattened(_call_meta(node.op, [a.type for a in node.args]))
        except NotImplementedError:
            continue  # an op that only runs on values
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            reason = str(error).strip().split("\n")[0]
            where = graph.origin.get(node)
            raise VerifyError(f"{name}: {target} refuses its arguments: {reason}", where) from None
        for made, told in zip(results, node.op.results, strict=False):
            if not isinstance(made, torch.Tensor) or told == NOTHING:
                continue
            found, plain = _plain(dtype_of(made.dtype), made.shape), _plain(told.dtype, told.shape)
            if found != plain:
                sentence = f"{name} is declared {plain}, but {target} gives {found}"
                raise VerifyError(sentence, graph.origin.get(node))


def _plain(dtype: DType, shape: Sequence[int]) -> TensorType:
    return TensorType(dtype, tuple(shape))


def _call_meta(aten: Aten, types: Sequence[TensorType]) -> Any:
    def leaf(tag: str, value: Any) -> Any:
        return torch.device("meta") if tag == "device" else torch_object(tag, value)

    given = [
        torch.empty_strided(t.shape, t.layout, dtype=TORCH_DTYPE[t.dtype], device="meta")
        for t in types
    ]
    args, kwargs = decode_call(aten.arguments, given, leaf)
    with torch.device("meta"):
        return operator(aten.target)(*args, **kwargs)


# --- running ------------------------------------------------------------------------------------


def evaluate(
    graph: Graph, inputs: Sequence[torch.Tensor], double: bool = False
) -> list[torch.Tensor]:
    """Run every call through torch; `double` does all floating-point work in float64."""
    values: dict[Node, Any] = {}
    for node, given in zip(graph.inputs, inputs, strict=True):
        values[node] = given.double() if double and given.is_floating_point() else given
    for node in graph.nodes():
        if node in values:
            continue
        args = [values[a] for a in node.args]
        if isinstance(node.op, Part):
            values[node] = args[0][node.op.number]
        elif isinstance(node.op, Aten):
            out = _call_double(node.op, args) if double else node.op.evaluate(*args)
            parts = flattened(out)
            values[node] = parts[0] if len(parts) == 1 else parts
    return [values[o] for o in graph.outputs]


def _call_double(aten: Aten, values: Sequence[torch.Tensor]) -> Any:
    """The call with float64 wherever its arguments name a floating-point dtype."""

    def leaf(tag: str, value: Any) -> Any:
        found = torch_object(tag, value)
        narrow = isinstance(found, torch.dtype) and found.is_floating_point
        return torch.float64 if narrow else found

    args, kwargs = decode_call(aten.arguments, values, leaf)
    target = operator(aten.target)
    for i, argument in enumerate(target._schema.arguments[: len(args)]):
        if argument.name == "half_to_float":  # softmax of f16 with an f32 result
            args[i] = False
    makes_floats = aten.results[0].dtype.is_float and not values
    if makes_floats and any(a.name == "dtype" for a in target._schema.arguments):
        kwargs["dtype"] = torch.float64
    return target(*args, **kwargs)
