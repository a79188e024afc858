"""A level that has text: which ops it takes, and how its programs are shown and read.

LOOP = Level("loop", ("scalar", "loop"), show_nest, read_nest, forms=NEST_FORMS)
An op belongs to the folder it is declared in, so a new op needs no entry anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from weft.core.node import OPS, Node, declared_in
from weft.core.text.cursor import Cursor, Line

Ref = Callable[[Node], str]  # the text that stands for a node where another one reads it


@dataclass(frozen=True)
class Forms:
    """How a level writes what reads badly in the generic form, op{attribute, ...}(argument, ...).

    A form is found by the op or the class of statement where it is shown; where it is read, by
    the word it starts with, and a { if one follows; a statement that starts with a buffer, by
    the mark that follows that.
    """

    show: Mapping[str, Callable[[Node, Ref], str]] = field(default_factory=dict[str, Any])
    read: Mapping[str, Callable[[Cursor, Any], Node]] = field(default_factory=dict[str, Any])
    show_statement: Mapping[type, Callable[[Any, Ref], str]] = field(
        default_factory=dict[type, Any]
    )
    read_statement: Mapping[str, Callable[[Cursor, Any], Any]] = field(
        default_factory=dict[str, Any]
    )

    def __or__(self, other: Forms) -> Forms:
        """The forms of both."""
        return Forms(*({**getattr(self, f.name), **getattr(other, f.name)} for f in fields(Forms)))


@dataclass(frozen=True)
class Level:
    """One level. `folders` are those of weft whose ops it takes, `also` single ops of others.

    `dotted` reads a line that starts with a dotted word, such as aten.relu.default.
    """

    word: str
    folders: tuple[str, ...]
    show: Callable[[Level, Any], str]
    read: Callable[[Level, str, list[Line]], Any]
    also: tuple[str, ...] = ()
    forms: Forms = Forms()
    dotted: Callable[[Cursor, Any, str], Node] | None = None

    def has(self, cls: type) -> bool:
        return declared_in(cls, self.folders)

    @property
    def ops(self) -> list[str]:
        return [name for name, cls in OPS.items() if name in self.also or self.has(cls)]

    def check(self, cursor: Cursor, name: str) -> None:
        """The op exists, and at this level."""
        if name not in OPS:
            cursor.unknown("unknown op", name, self.ops)
        if name not in self.also and not self.has(OPS[name]):
            cursor.invalid(f"{name} is not an op of the {self.word} level")
