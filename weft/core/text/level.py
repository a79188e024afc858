"""The text form of a level: which ops it allows, and how its programs are printed and read.

LOOP = Level("loop", ("scalar", "loop"), show_nest, read_nest, forms=NEST_FORMS)
A level allows the ops that its folders declare, so a new op needs no entry here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from weft.core.node import OPS, Node, declared_in
from weft.core.text.cursor import Cursor, Line

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
