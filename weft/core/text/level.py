"""The levels that have text: which ops each takes, and how its programs are shown and read.

LEVELS["tensor"] = Level("tensor", ("tensor",), show_graph, read_graph)
An op belongs to the folder it is declared in, so a new op needs no entry anywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from weft.core.node import OPS, declared_in
from weft.core.text.cursor import Cursor, Line


@dataclass(frozen=True)
class Level:
    """One level. `folders` are those of weft whose ops it takes, `also` single ops of others."""

    word: str
    folders: tuple[str, ...]
    show: Callable[[Any], str]
    read: Callable[[Level, str, list[Line]], Any]
    also: tuple[str, ...] = ()

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


LEVELS: dict[str, Level] = {}
