"""Looks at ONNX graphs: their nodes, the names that these read, the element types of values."""

from __future__ import annotations

from collections.abc import Iterator

from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    ValueInfoProto,
    helper,
    shape_inference,
)

from weft.onnx.module import Port


def domain_of(name: str) -> str:
    return "" if name == "ai.onnx" else name


def label(node: NodeProto) -> str:
    """How errors and the generated text name a node: its operator, and its name or an output's."""
    return " ".join(f"{node.op_type} {node.name or next(iter(node.output), '')}".split())


def graphs_of(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs in a node's attributes: branches, the body of a loop."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def nodes_of(graph: GraphProto) -> Iterator[NodeProto]:
    """All nodes, also those of graphs in attributes."""
    for node in graph.node:
        yield node
        for inner in graphs_of(node):
            yield from nodes_of(inner)


def captured(node: NodeProto) -> set[str]:
    """The names that graphs in a node's attributes read; some of them are the graphs' own."""
    read: set[str] = set()
    for graph in graphs_of(node):
        read.update(value.name for value in graph.output)
        read.update(*({*inner.input} | captured(inner) for inner in graph.node))
    return read


def port_of(value: ValueInfoProto) -> Port:
    kind = value.type
    if not kind.HasField("tensor_type"):
        inner = kind.sequence_type.elem_type if kind.HasField("sequence_type") else kind
        inner = kind.optional_type.elem_type if kind.HasField("optional_type") else inner
        if inner.HasField("sequence_type"):
            inner = inner.sequence_type.elem_type
        return Port(value.name, inner.tensor_type.elem_type, None)
    if not kind.tensor_type.HasField("shape"):
        return Port(value.name, kind.tensor_type.elem_type, None)
    sizes = tuple(
        d.dim_value if d.HasField("dim_value") else d.dim_param or None
        for d in kind.tensor_type.shape.dim
    )
    return Port(value.name, kind.tensor_type.elem_type, sizes)


def inferred(model: ModelProto) -> ModelProto:
    """The model with what ONNX infers of its values; itself where that fails: a row says why."""
    try:
        return shape_inference.infer_shapes(model)
    except Exception:
        return model


def element_types(graph: GraphProto) -> dict[str, int]:
    """The element type of each value of one graph that has one, by name."""
    values = (*graph.value_info, *graph.input, *graph.output)
    found = {value.name: port_of(value).element for value in values}
    found.update((tensor.name, tensor.data_type) for tensor in graph.initializer)
    return {name: element for name, element in found.items() if element}


def with_gradients(graph: GraphProto) -> None:
    """Gives each Gradient node the graph from what it differentiates by to the result, its body."""
    for place, node in enumerate(graph.node):
        if node.op_type != "Gradient":
            continue
        named = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        result = named["y"].decode()
        needed, between = {result}, []
        for earlier in reversed(graph.node[:place]):
            if needed & {*earlier.output} - {*node.input}:
                needed |= {*earlier.input}
                between.append(earlier)
        inputs, outputs = (
            [helper.make_empty_tensor_value_info(n) for n in names]
            for names in (node.input, [result])
        )
        body = helper.make_graph(between[::-1], "gradient", inputs, outputs)
        del node.attribute[:]
        node.attribute.append(helper.make_attribute("body", body))
