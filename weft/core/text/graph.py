"""Prints and reads graphs of whole tensors: a line per node, with its type, which is checked.

program tensor main
input x: f32[16,64]
v0 = map{multiply}(x, 2.0): f32[16,64]
output v0

Under a node whose op has a body, that graph's own lines follow, indented.
"""

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import count
from typing import NoReturn

from weft.core.node import OPS, Graph, Node, Op
from weft.core.text.cursor import WORDS, Cursor, Line, is_identifier, show_literal, show_name
from weft.core.text.level import Level, Ref, Scope, make_node, read_op, show_op

UNNAMED = re.compile(r"v\d+")
INDENT = 4


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
        for body in bodies(node.op):
            lines += [" " * INDENT + line for line in show_graph(level, body).splitlines()[1:]]
    lines.append(f"output {', '.join(map(ref, graph.outputs))}")
    return "\n".join(lines) + "\n"


def bodies(op: Op) -> Iterator[Graph]:
    """The graphs that an op has as attributes."""
    values = (getattr(op, f.name) for f in fields(op))  # type: ignore[arg-type]
    return (value for value in values if isinstance(value, Graph))


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
    """The nodes so far, by name, and the lines that are indented under the one that is read."""

    def __init__(self, level: Level) -> None:
        self.level = level
        self.nodes: dict[str, Node] = {}
        self.below: list[Line] = []

    def body(self, cursor: Cursor) -> Graph:
        if not self.below:
            cursor.fail("the line needs the lines of its body under it, indented")
        inside, self.below = self.below, []
        return read_graph(self.level, "body", inside)

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


def read_graph(level: Level, name: str, given: list[Line]) -> Graph:
    scope, lines = GraphScope(level), deque(given)
    inputs: list[Node] = []
    names: dict[Node, str] = {}
    while lines:
        cursor = Cursor(lines.popleft())
        if cursor.line.indent:
            cursor.fail("unexpected indentation")
        if cursor.peek() == "output" and cursor.peek(1) != "=":
            cursor.expect("output")
            outputs = cursor.listed(lambda c=cursor: scope.operand(c), "")
            if lines:
                Cursor(lines[0]).fail("a line after the output line")
            return Graph(level.word, name, tuple(inputs), outputs, names)
        if cursor.peek() == "input" and cursor.at_name(1):
            inputs.append(_read_input(cursor, scope))
        else:
            scope.below = indented(lines)
            defined, node = _read_node(cursor, scope)
            if scope.below:
                Cursor(scope.below[0]).fail("unexpected indentation")
            if not UNNAMED.fullmatch(defined):
                names[node] = defined
    return no_output(given)


def indented(lines: deque[Line]) -> list[Line]:
    """Takes the next lines that are indented, as they are without that."""
    found: list[Line] = []
    while lines and lines[0].indent:
        found.append(lines.popleft())
    first = found[0].indent if found else 0
    return [replace(line, text=line.text[first:]) for line in found]


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
