"""Prints and reads graphs of whole tensors: a line per node, with its type, which is checked.

program tensor main
input x: f32[16,64]
v0 = map{multiply}(x, 2.0): f32[16,64]
output v0
"""

import re
from itertools import count
from typing import NoReturn

from weft.core.node import OPS, Graph, Node
from weft.core.text.cursor import WORDS, Cursor, Line, is_identifier, show_literal, show_name
from weft.core.text.level import Level, Ref, Scope, make_node, read_op, show_op

UNNAMED = re.compile(r"v\d+")


def show_graph(level: Level, graph: Graph) -> str:
    ref = _refs(graph)
    lines = [f"program {graph.level} {show_name(graph.name)}"]
    lines += [f"input {ref(n)}: {getattr(n.op, 'tensor', n.type)}" for n in graph.inputs]
    inputs = set(graph.inputs)
    for node in graph.nodes():
        if node in inputs or node.op.name == "scalar":
            continue
        show = level.forms.show.get(node.op.name, show_op)
        lines.append(f"{ref(node)} = {show(node, ref)}: {node.type}")
    lines.append(f"output {', '.join(map(ref, graph.outputs))}")
    return "\n".join(lines) + "\n"


def _refs(graph: Graph) -> Ref:
    """Names each node: by its own name, made unique, else v0, v1, ... in order."""
    given = {n: getattr(n.op, "label", "input") for n in graph.inputs}
    taken = set(given.values())
    nodes = [n for n in graph.nodes() if n not in given and n.op.name != "scalar"]
    for node in nodes:
        stem = identifier(graph.names.get(node, ""))
        if stem and not UNNAMED.fullmatch(stem):
            given[node] = fresh(stem, taken)
    free = (name for i in count() if (name := f"v{i}") not in taken)
    given |= {n: next(free) for n in nodes if n not in given}

    def ref(node: Node) -> str:
        if node.op.name == "scalar":
            return show_literal(node.op.value, node.op.dtype)  # type: ignore[attr-defined]
        return show_name(given[node])

    return ref


def fresh(stem: str, taken: set[str]) -> str:
    """The stem, with a number if it is taken, as in x_1; adds the result to `taken`."""
    name, k = stem, 1
    while name in taken:
        name, k = f"{stem}_{k}", k + 1
    taken.add(name)
    return name


def identifier(name: str) -> str:
    """The name as an identifier: layer-1 becomes layer_1, and 2x becomes _2x."""
    if is_identifier(name):
        return name
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    return f"_{plain}" if plain and (plain[0].isdigit() or plain in WORDS) else plain


class GraphScope(Scope):
    """The nodes so far, by name."""

    def __init__(self, level: Level) -> None:
        self.level = level
        self.nodes: dict[str, Node] = {}

    def operand(self, cursor: Cursor) -> Node:
        if cursor.at_literal():
            value, dtype = cursor.literal()
            return make_node(cursor, OPS["scalar"](value, dtype))  # type: ignore[call-arg]
        return cursor.look_up("undefined name", cursor.name("a node"), self.nodes)

    def node(self, cursor: Cursor) -> Node:
        """Reads the right-hand side of a line, up to the type that follows it."""
        word = cursor.peek()
        if cursor.token()[0] != "name":
            cursor.expected("an op")
        read = self.level.forms.read.get("." if "." in word else word)
        if read is not None:
            return read(cursor, self)
        self.level.check(cursor, word)
        return read_op(cursor, self)


def read_graph(level: Level, name: str, lines: list[Line]) -> Graph:
    scope = GraphScope(level)
    inputs: list[Node] = []
    names: dict[Node, str] = {}
    for i, line in enumerate(lines):
        cursor = Cursor(line)
        if line.indent:
            cursor.fail("unexpected indentation")
        if cursor.peek() == "output" and cursor.peek(1) != "=":
            cursor.expect("output")
            outputs = cursor.listed(lambda c=cursor: scope.operand(c), "")
            if lines[i + 1 :]:
                Cursor(lines[i + 1]).fail("a line after the output line")
            return Graph(level.word, name, tuple(inputs), outputs, names)
        if cursor.peek() == "input" and cursor.at_name(1):
            inputs.append(_read_input(cursor, scope))
        else:
            defined, node = _read_node(cursor, scope)
            if not UNNAMED.fullmatch(defined):
                names[node] = defined
    return no_output(lines)


def no_output(lines: list[Line]) -> NoReturn:
    last = lines[-1] if lines else Line(1, "", "<text>")
    Cursor(last, "").fail("the program ends without an output line")


def _read_input(cursor: Cursor, scope: GraphScope) -> Node:
    cursor.expect("input")
    name = cursor.name()
    cursor.expect(":")
    node = make_node(cursor, OPS["input"](name, cursor.tensor_type()))  # type: ignore[call-arg]
    cursor.end()
    cursor.define(scope.nodes, name, node)
    return node


def _read_node(cursor: Cursor, scope: GraphScope) -> tuple[str, Node]:
    name = cursor.name("a node's name")
    cursor.expect("=")
    node = scope.node(cursor)
    declared = str(cursor.result_type()) if cursor.accept(":") else str(node.type)
    cursor.end()
    if declared != str(node.type):
        cursor.invalid(f"{name} is declared {declared} but its op gives {node.type}")
    cursor.define(scope.nodes, name, node)
    return name, node
