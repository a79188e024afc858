"""The text form of a level: which ops it allows, and how its programs are printed and read.

LOOP = Level("loop", ("scalar", "loop"), show_nest, read_nest, forms=NEST_FORMS)
show_attributes(Reduce(SUM, (2,)))              # {sum, axes=(2,)}
read_attributes(cursor, Reduce, scope)          # Reduce(SUM, (2,))
A level allows the ops that its folders declare, and attributes are read by the fields of an op's
dataclass and their type hints, so a new op needs no entry here. A new class of attribute values
needs one row in CODECS.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from typing import Any

from weft.core.arguments import Arguments
from weft.core.errors import VerifyError
from weft.core.node import OPS, Graph, Node, Op, declared_in, make
from weft.core.text.cursor import READ_SIZE, Cursor, Line, show_number, show_string
from weft.core.types import DType, TensorType

Ref = Callable[[Node], str]  # the text of a node as an argument of another
Show = Callable[[Any, Ref], str]  # the text of a node or a statement
Read = Callable[[Cursor, Any], Any]  # ... from it, in a scope


@dataclass(frozen=True)
class Forms:
    """Special forms of terms and statements; the generic one is op{attribute, ...}(argument, ...).

    `show` is keyed by the op's name, and `show_statement` by the class of the statement. `read`
    is keyed by the first word, "." for dotted words such as aten.relu.default, and in a nest also
    the { behind it: "load{". `read_statement` is keyed by the first word if a name follows it, as
    in local x, else by the second token: "[" in y[a0] = v0.
    """

    show: Mapping[str, Show] = field(default_factory=dict[str, Show])
    read: Mapping[str, Read] = field(default_factory=dict[str, Read])
    show_statement: Mapping[type, Show] = field(default_factory=dict[type, Show])
    read_statement: Mapping[str, Read] = field(default_factory=dict[str, Read])

    def __or__(self, other: Forms) -> Forms:
        """The forms of both; those of `other` take precedence."""
        return Forms(*({**getattr(self, f.name), **getattr(other, f.name)} for f in fields(Forms)))


@dataclass(frozen=True)
class Level:
    """One level: it allows the ops that `folders` of weft declare, and the ops in `also`."""

    word: str
    folders: tuple[str, ...]
    show: Callable[[Level, Any], str]
    read: Callable[[Level, str, list[Line]], Any]
    also: tuple[str, ...] = ()
    forms: Forms = Forms()

    def has(self, cls: type) -> bool:
        return declared_in(cls, self.folders)

    @property
    def ops(self) -> list[str]:
        return [name for name, cls in OPS.items() if name in self.also or self.has(cls)]

    def check(self, cursor: Cursor, name: str) -> None:
        """ParseError for an unknown op, VerifyError for an op of another level."""
        if name not in OPS:
            cursor.unknown("unknown op", name, self.ops)
        if name not in self.also and not self.has(OPS[name]):
            cursor.invalid(f"{name} is not an op of the {self.word} level")


# --- attributes -----------------------------------------------------------------------------------


class Scope:
    """Looks up the names in a text. The readers of graphs and of loop nests subclass it."""

    def operand(self, cursor: Cursor) -> Node:
        """Reads one argument."""
        raise NotImplementedError

    def arguments(self, cursor: Cursor) -> tuple[Node, ...]:
        """Reads (x, y); without parentheses there are no arguments."""
        return cursor.listed(lambda: self.operand(cursor), ")") if cursor.accept("(") else ()

    def buffer(self, cursor: Cursor) -> Any:
        """Reads the name of a buffer; only loop nests have buffers."""
        cursor.expected("an attribute, not a buffer")

    def body(self, cursor: Cursor) -> Graph:
        """Reads the graph under a line; only graphs have graphs inside."""
        cursor.expected("an op without a body")


@dataclass(frozen=True)
class Codec:
    """How attributes of one class are printed and read."""

    show: Callable[[Any], str]
    read: Callable[[Cursor, Scope], Any]


def _read_flag(cursor: Cursor, scope: Scope) -> Any:
    if cursor.peek() not in ("true", "false"):
        cursor.expected("an attribute of type bool")
    return cursor.literal()[0]


def read_arguments(cursor: Cursor) -> Arguments:
    """The arguments of a library call, a string of JSON."""
    text = cursor.string()
    read = READ_SIZE.get()

    def size(expression: str) -> Any:
        return read(Cursor(cursor.line, expression)) if read else cursor.fail("no sizes here")

    try:
        return Arguments.read(text, size)
    except (ValueError, AttributeError):
        cursor.fail(f"{text!r} is no list of arguments in JSON")


_hints = cache(typing.get_type_hints)

CODECS: dict[type, Codec] = {
    bool: Codec(show_number, _read_flag),
    int: Codec(show_number, lambda cursor, scope: cursor.integer()),
    str: Codec(show_string, lambda cursor, scope: cursor.string()),
    Arguments: Codec(lambda a: show_string(a.shown()), lambda cursor, _: read_arguments(cursor)),
    DType: Codec(str, lambda cursor, scope: cursor.dtype()),
    TensorType: Codec(str, lambda cursor, scope: cursor.tensor_type()),
}


def show_attribute(value: Any) -> str:
    if isinstance(value, tuple):
        items = [show_attribute(v) for v in value]
        return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"
    codec = CODECS.get(type(value))
    if codec is None:
        raise VerifyError(f"an attribute of type {type(value).__name__} has no text form")
    return codec.show(value)


def show_attributes(op: Op) -> str:
    """Prints the fields that differ from their defaults, as in {sum, axes=(2,)}.

    The first field has no name, unless it is a tuple. A graph stands under the line.
    """
    items: list[str] = []
    for i, f in enumerate(fields(op)):  # type: ignore[arg-type]
        value = getattr(op, f.name)
        if not isinstance(value, Graph) and repr(value) != repr(f.default):
            bare = i == 0 and not isinstance(value, tuple)
            items.append(("" if bare else f"{f.name}=") + show_attribute(value))
    return "{" + ", ".join(items) + "}" if items else ""


def show_arguments(args: tuple[Node, ...], ref: Callable[[Node], str]) -> str:
    return f"({', '.join(map(ref, args))})" if args else ""


def show_op(node: Node, ref: Callable[[Node], str]) -> str:
    """Prints an op, its attributes and its arguments by `ref`, as in reduce{sum, axes=(2,)}(x)."""
    return node.op.name + show_attributes(node.op) + show_arguments(node.args, ref)


def read_attribute(cursor: Cursor, hint: Any, scope: Scope) -> Any:
    """Reads a value of the type `hint`: of a class in CODECS, or a tuple of such values."""
    if typing.get_origin(hint) is tuple:
        return cursor.listed(lambda: read_attribute(cursor, typing.get_args(hint)[0], scope), "()")
    codec = CODECS.get(hint)
    if codec is None:
        cursor.expected(f"an attribute of type {getattr(hint, '__name__', hint)}")
    return codec.read(cursor, scope)


def read_attributes(cursor: Cursor, cls: type[Op], scope: Scope) -> Op:
    """Reads {value, name=value, ...}, or nothing if every field has a default."""
    declared = {f.name: f for f in fields(cls)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}

    def item() -> None:
        name = next(iter(declared), "")
        if cursor.token()[0] == "name" and cursor.peek(1) == "=":
            name = cursor.name()
            cursor.expect("=")
        if name not in declared:
            cursor.unknown(f"{cls.name} has no attribute", name or cursor.peek(), declared)
        if name in values:
            cursor.fail(f"attribute {name} of {cls.name} is given twice")
        values[name] = read_attribute(cursor, _hints(cls)[name], scope)

    if cursor.accept("{"):
        cursor.listed(item, "}")
    for name in declared:
        if _hints(cls)[name] is Graph:
            values[name] = scope.body(cursor)
    for name, f in declared.items():
        if name not in values and f.default is MISSING:
            cursor.fail(f"{cls.name} needs attribute {name}")
    return cls(**values)


def read_op(cursor: Cursor, scope: Scope) -> Node:
    """Reads what `show_op` prints: reduce{sum, axes=(2,)}(x)."""
    op = read_attributes(cursor, OPS[cursor.name()], scope)
    return make_node(cursor, op, *scope.arguments(cursor))


def make_node(cursor: Cursor, op: Op, *args: Node) -> Node:
    """The node of an op from a text; an error of its type inference gets the line."""
    try:
        return make(op, *args)
    except VerifyError as e:
        raise VerifyError(e.message, str(cursor.line)) from e
    except Exception as e:  # a text may have any number and type of arguments
        found = ", ".join(str(a.type) for a in args) or "no arguments"
        raise VerifyError(f"{op.name} does not take {found}", str(cursor.line)) from e
