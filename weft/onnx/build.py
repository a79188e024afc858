"""Writes the Python text of a graph: one line for each node, which calls its row.

def forward(self, x):
    conv_1 = Conv(x, self.conv1.weight, None, strides=(2, 2))  # Conv conv1
    return results(conv_1)
"""

from __future__ import annotations

import inspect
import keyword
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, defs, helper
from torch import nn

from weft.onnx.graphs import (
    captured,
    domain_of,
    element_types,
    graphs_of,
    inferred,
    label,
    nodes_of,
    port_of,
)
from weft.onnx.module import OnnxModule
from weft.onnx.table import Row, find
from weft.onnx.types import NUMBERS, OnnxError, as_tensor, from_numpy

FEW = 8  # elements of one that always is, where the row can take numbers
WEIGHTS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
IGNORED = {"consumed_inputs"}  # of opset 1: inputs that may be overwritten


@dataclass
class Constant:
    """An initialiser, or what a Constant node holds. `text` names it once it is in the module."""

    name: str
    read: Callable[[], np.ndarray[Any, Any]]
    element: int
    size: int
    rank: int
    weight: bool
    text: str = ""

    @property
    def is_small(self) -> bool:
        kinds = (TensorProto.INT64, TensorProto.BOOL)
        return self.element in kinds and self.rank <= 1 and self.size <= NUMBERS


@dataclass
class Scope:
    """What the names of a graph stand for in the text; names of graphs around it are visible."""

    outer: Scope | None
    names: dict[str, str] = field(default_factory=dict)
    constants: dict[str, Constant] = field(default_factory=dict)
    numbers: set[str] = field(default_factory=set)  # values that are Python numbers when it runs
    elements: dict[str, int] = field(default_factory=dict)  # types of values, where known

    def holder(self, name: str) -> Scope | None:
        here = name in self.names or name in self.constants
        return self if here else self.outer.holder(name) if self.outer else None

    def element(self, name: str) -> int | None:
        outer = self.outer.element(name) if self.outer else None
        return self.elements.get(name, outer)


def build(
    model: ModelProto, opsets: dict[str, int], read: Callable[[TensorProto], Any], title: str
) -> OnnxModule:
    """The module of a model all of whose operators have rows."""
    writer = Writer(OnnxModule(title), opsets, read)
    return writer.module_of(inferred(model).graph)


class Writer:
    def __init__(
        self,
        module: OnnxModule,
        opsets: dict[str, int],
        read: Callable[[TensorProto], Any],
    ) -> None:
        self.module, self.opsets, self.read = module, opsets, read
        self.namespace: dict[str, Any] = {"results": results, "inf": float("inf"), "torch": torch}
        self.namespace["nan"] = float("nan")
        self.taken = {"self", "forward", "getattr", *self.namespace}
        self.lines: list[str] = []
        self.wanted: set[str] = set()  # values that a row takes as Python numbers
        self.others: set[str] = set()  # values that one takes otherwise

    def module_of(self, graph: GraphProto) -> OnnxModule:
        self.taken.update(map(function_of, nodes_of(graph)))  # no value is called as a row is
        held = {tensor.name for tensor in graph.initializer}
        held |= {tensor.values.name for tensor in graph.sparse_initializer}
        self.graph(graph, Scope(None), "forward", ["self"], "")
        ports = [port_of(value) for value in graph.input if value.name not in held]
        self.module.inputs = tuple(ports)
        exact = (TensorProto.INT64, TensorProto.BOOL)  # the types that Python numbers stand for
        self.module.number_inputs = frozenset(
            p.name for p in ports if p.name in self.wanted
            and (p.element in exact or p.name not in self.others)
        )  # fmt: skip
        self.module.outputs = tuple(port_of(value) for value in graph.output)
        self.module.define("\n".join(self.lines) + "\n", self.namespace)
        return self.module.eval()

    def graph(
        self, graph: GraphProto, scope: Scope, name: str, first: list[str], indent: str
    ) -> None:
        """Writes a graph as a function of its inputs, which sees the names around it."""
        scope.elements = element_types(graph)
        for tensor in graph.initializer:
            scope.constants[tensor.name] = self.constant(tensor.name, tensor, weight=True)
        for tensor in graph.sparse_initializer:
            named = tensor.values.name
            scope.constants[named] = self.sparse(named, tensor)
        inputs = [v.name for v in graph.input if v.name not in scope.constants]
        parameters = first + [self.bind(name, scope) for name in inputs]
        self.lines.append(f"{indent}def {name}({', '.join(parameters)}):")
        inside = indent + "    "
        dead = last_uses(graph)
        for node, names in zip(graph.node, dead, strict=True):
            text = self.node(node, scope, inside)
            gone = [scope.names[n] for n in names if n in scope.names and n not in inputs]
            ending = f"; del {', '.join(gone)}" if gone else ""
            if text:
                self.lines.append(f"{inside}{text}{ending}  # {label(node)}")
        values = [self.tensor(value.name, scope, graph.name) for value in graph.output]
        self.others.update(value.name for value in graph.output)
        given = f"results({', '.join(values)})" if first else f"({', '.join(values)},)"
        self.lines.append(f"{inside}return {given if values else '()'}")

    def node(self, node: NodeProto, scope: Scope, indent: str) -> str:
        """The line of a node, after the functions of its graphs; "" for a constant."""
        if node.op_type == "Constant" and domain_of(node.domain) == "":
            held = self.constant_of(node)
            scope.constants[node.output[0]] = held
            return ""
        domain = domain_of(node.domain)
        version = self.opsets.get(domain, 1)
        row = find(domain, node.op_type, version)
        if row is None:
            raise OnnxError(f"no row for {label(node)}")
        inputs = self.inputs(node, row, scope)
        words = self.keywords(node, row, scope, indent)
        function = function_of(node)
        self.namespace[function] = row.call
        self.check_call(node, row, inputs, words)
        given = ", ".join([*inputs, *(f"{key}={text}" for key, text in words.items())])
        counts = row.sizes or (row.numbers is not None and self.all_numbers(node, scope))
        outputs = [self.bind(name, scope) if name else "_" for name in node.output]
        scope.numbers.update(name for name in node.output if counts)
        several = defs.get_schema(node.op_type, domain).max_output > 1  # at the newest opset
        target = ", ".join([*outputs, "*_"]) if several else outputs[0]
        return f"{target} = {function}({given})"

    def check_call(
        self, node: NodeProto, row: Row, inputs: Sequence[str], words: dict[str, str]
    ) -> None:
        """OnnxError if the row does not take the node's inputs or attributes."""
        try:
            inspect.signature(row.function).bind(*inputs, **words)
        except TypeError as error:
            raise OnnxError(f"{label(node)}: {error}") from None
        except ValueError:  # a builtin function of torch states no signature
            if words:
                raise OnnxError(f"{label(node)}: unknown attribute {next(iter(words))}") from None

    # Inputs: names of values, numbers of constants, parameters and buffers.

    def all_numbers(self, node: NodeProto, scope: Scope) -> bool:
        return bool(node.input) and all(self.number_like(name, scope) for name in node.input)

    def number_like(self, name: str, scope: Scope) -> bool:
        held = scope.holder(name)
        if not name or held is None:
            return not name
        return held.constants[name].is_small if name in held.constants else name in held.numbers

    def inputs(self, node: NodeProto, row: Row, scope: Scope) -> list[str]:
        as_numbers = row.numbers is not None and self.all_numbers(node, scope)
        found: list[str] = []
        for i, name in enumerate(node.input):
            held = scope.holder(name)
            constant = held.constants.get(name) if held else None
            literal = i in row.wants or i in row.literals or as_numbers
            if constant and row.numbers is not None and constant.is_small:
                literal = literal or constant.size <= FEW
            (self.wanted if i in row.wants else self.others).add(name)
            if name and constant and literal and constant.rank <= 1:
                found.append(python(constant.read()))
            else:
                parameter = i not in row.buffers
                found.append(self.tensor(name, scope, label(node), parameter) if name else "None")
        while found and found[-1] == "None":
            found.pop()
        return found

    def tensor(self, name: str, scope: Scope, reader: str, parameter: bool = True) -> str:
        """The text of a value; a constant becomes a parameter or a buffer."""
        held = scope.holder(name)
        if held is None:
            raise OnnxError(f"{reader} reads {name!r}, which nothing before it computes")
        if name not in held.constants:
            return held.names[name]
        constant = held.constants[name]
        if not constant.text:
            value = from_numpy(constant.read(), constant.element)
            constant.text = self.place(name, value, constant.weight and parameter)
        return constant.text

    def bind(self, name: str, scope: Scope) -> str:
        """A new Python name for a value of the graph."""
        plain = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or "value"
        plain = f"v{plain}" if plain[0].isdigit() or keyword.iskeyword(plain) else plain
        scope.names[name] = self.fresh(plain)
        return scope.names[name]

    def fresh(self, plain: str) -> str:
        name, number = plain, 1
        while name in self.taken or name == "_":
            name, number = f"{plain}_{number}", number + 1
        self.taken.add(name)
        return name

    def place(self, name: str, value: Any, weight: bool) -> str:
        """Puts a constant into the module, in submodules by the dots of its name; its text."""
        owner: nn.Module = self.module
        text = "self"
        path = name.split(".")
        for part in path[:-1]:
            inner = getattr(owner, part, None)
            if not part or not (inner is None or type(inner) is nn.Module):
                return self.place(name.replace(".", "_"), value, weight)
            if inner is None:
                inner = nn.Module()
                owner.add_module(part, inner)
            owner, text = inner, attribute(text, part)
        last = path[-1] if path[-1] and not hasattr(owner, path[-1]) else ""
        while not last or hasattr(owner, last):
            last = self.fresh(re.sub(r"\W", "_", name, flags=re.ASCII) or "constant")
        if not isinstance(value, torch.Tensor):
            setattr(owner, last, value)
        elif weight and value.dtype in WEIGHTS:
            owner.register_parameter(last, nn.Parameter(value))
        else:
            owner.register_buffer(last, value)
        return attribute(text, last)

    # Constants and attributes.

    def constant(self, name: str, tensor: TensorProto, weight: bool) -> Constant:
        size = int(np.prod(tensor.dims, dtype=np.int64))
        dims = len(tensor.dims)
        return Constant(name, lambda: self.read(tensor), tensor.data_type, size, dims, weight)

    def sparse(self, name: str, tensor: Any) -> Constant:
        values, indices = self.read(tensor.values), self.read(tensor.indices)
        dense = np.zeros(tuple(tensor.dims), values.dtype)
        where = tuple(indices.T) if indices.ndim == 2 else np.unravel_index(indices, dense.shape)
        dense[where] = values
        element = tensor.values.data_type
        return Constant(name, lambda: dense, element, dense.size, dense.ndim, weight=False)

    def constant_of(self, node: NodeProto) -> Constant:
        given = node.attribute[0]
        name = node.output[0]
        if given.name == "value":
            return self.constant(name, given.t, weight=False)
        if given.name == "sparse_value":
            return self.sparse(name, given.sparse_tensor)
        value = helper.get_attribute_value(given)
        dtype = {"f": np.float32, "i": np.int64, "s": object}[given.name[len("value_")]]
        texts = [v.decode() for v in value] if given.name == "value_strings" else value
        array = np.array(texts.decode() if isinstance(texts, bytes) else texts, dtype)
        element = helper.np_dtype_to_tensor_dtype(array.dtype)
        return Constant(name, lambda: array, element, array.size, array.ndim, weight=False)

    def keywords(self, node: NodeProto, row: Row, scope: Scope, indent: str) -> dict[str, str]:
        """The attributes of a node as text, and what else the row asks for."""
        words = {
            a.name: self.attribute(a, node, row, scope, indent)
            for a in node.attribute
            if a.name not in IGNORED
        }
        if "outputs" in row.keywords:
            words["outputs"] = str(max(i + 1 for i, name in enumerate(node.output) if name))
        if "types" in row.keywords:
            names = (node.input, node.output)
            found = [tuple(map(scope.element, group)) for group in names]
            words["types"] = repr(tuple(found))
        if "kept" in row.keywords:  # of a loop's results, behind the condition and what it carries
            outputs = next(graphs_of(node)).output[max(len(node.input) - 1, 1) :]
            words["kept"] = repr(tuple((p.element, p.shape) for p in map(port_of, outputs)))
        if "opset" in row.keywords:
            words["opset"] = str(self.opsets.get(domain_of(node.domain), 1))
        return words

    def attribute(
        self, given: AttributeProto, node: NodeProto, row: Row, scope: Scope, indent: str
    ) -> str:
        kinds = AttributeProto
        if not given.name.isidentifier() or keyword.iskeyword(given.name):  # it becomes Python text
            raise OnnxError(f"{label(node)}: {given.name!r} is no name of an attribute")
        if given.type == kinds.GRAPH:
            return self.function(given, scope, indent, counts=node.op_type == "Loop")
        if given.type == kinds.TENSOR:
            held = self.constant(f"{node.output[0]}_{given.name}", given.t, weight=False)
            if given.name in row.literals:
                return f"({held.element}, {python(held.read())})"
            return self.place(held.name, from_numpy(held.read(), held.element), weight=False)
        if given.type in (kinds.TYPE_PROTO, kinds.TYPE_PROTOS):
            return "None"
        value = helper.get_attribute_value(given)
        if given.type not in (
            kinds.INT,
            kinds.INTS,
            kinds.FLOAT,
            kinds.FLOATS,
            kinds.STRING,
            kinds.STRINGS,
        ):
            raise OnnxError(f"{label(node)}: the attribute {given.name} is of a type without a row")
        if isinstance(value, Sequence) and not isinstance(value, bytes):
            return repr(tuple(v.decode() if isinstance(v, bytes) else v for v in value))
        return repr(value.decode() if isinstance(value, bytes) else value)

    def function(self, given: AttributeProto, scope: Scope, indent: str, counts: bool) -> str:
        """Writes a graph in an attribute as a function before the node; its name.

        With `counts` its first input is a trip count, a Python number.
        """
        name = self.fresh(given.name)
        inner = Scope(scope)
        if counts:
            inner.numbers.add(given.g.input[0].name)
        self.graph(given.g, inner, name, [], indent)
        return name


def function_of(node: NodeProto) -> str:
    """What the text calls the row of a node."""
    domain = domain_of(node.domain).rpartition(".")[2]
    return f"{domain}_{node.op_type}" if domain else node.op_type


def attribute(text: str, part: str) -> str:
    plain = part.isidentifier() and part.isascii() and not keyword.iskeyword(part)
    return f"{text}.{part}" if plain else f"getattr({text}, {part!r})"


def python(array: np.ndarray[Any, Any]) -> str:
    """A constant of rank 0 or 1 as a number or a tuple."""
    values = array.tolist()
    return repr(tuple(values) if isinstance(values, list) else values)


def results(*values: Any) -> Any:
    """What the module returns: tensors, one by itself."""
    found = tuple([as_tensor(value) for value in values])
    return found[0] if len(found) == 1 else found


def last_uses(graph: GraphProto) -> list[list[str]]:
    """For each node the values that no later one reads, nor any graph inside, nor the result."""
    kept = {value.name for value in graph.output}.union(*map(captured, graph.node))
    seen = set(kept)
    dead: list[list[str]] = []
    for node in reversed(graph.node):
        names = dict.fromkeys(name for name in (*node.input, *node.output) if name)
        dead.append([name for name in names if name not in seen])
        seen.update(names)
    return dead[::-1]
