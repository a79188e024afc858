"""Trims the headers of an emitted C file to the functions that it calls.

library = Library.of(preprocessed)             # what `cc -E -P` makes of the #include lines
library.trim("void k(f32 *x) { store_f32(x, exp_f32(*x)); }")

The headers define some 1,500 functions, one per op, dtype and width. GCC takes as long to parse
those as to compile a usual kernel; a kernel calls about a hundred. The directives at the top of a
file are preprocessed once and kept in the cache as declarations and the names each of them uses.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

NAME = re.compile(r"[A-Za-z_]\w*")
MARK = re.compile(r'[{};]|"(?:\\.|[^"\\])*"')
IN_PARENTHESES = r"(?:[^()]|\((?:[^()]|\([^()]*\))*\))*"
ATTRIBUTE = re.compile(rf"__attribute__\s*\(\({IN_PARENTHESES}\)\)")
FUNCTION = re.compile(r"[^={]*?(\w+)\s*\([^{]*\{")  # a definition, up to its body
NAMED = (  # what a declaration defines, without its attributes
    re.compile(r"typedef\b.*?(\w+)\s*;$", re.DOTALL),
    re.compile(r"static\b[^={]*?(\w+)\s*\([^{]*\{"),
    re.compile(r"static\b[^={(]*?(\w+)(?:\[[^]]*\])?\s*="),
    re.compile(r"extern\b[^={(]*?(\w+)\s*\("),
)


@dataclass(frozen=True)
class Library:
    """Declarations in order: the name of each ("" if it is always kept), its text, what it uses."""

    declarations: list[tuple[str, str, list[str]]]

    @classmethod
    def of(cls, preprocessed: str) -> Library:
        """Read what the preprocessor left: typedefs, functions, and whatever else there is."""
        parts = [(defined(text), text) for text in declarations(preprocessed)]
        known = {name for name, _ in parts}
        return cls([(n, t, sorted(known & set(NAME.findall(t)) - {n})) for n, t in parts])

    @classmethod
    def load(cls, text: str) -> Library:
        return cls([(n, t, uses) for n, t, uses in json.loads(text)])

    def dump(self) -> str:
        return json.dumps(self.declarations)

    @cached_property
    def by_name(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for i, (name, _, _) in enumerate(self.declarations):
            found.setdefault(name, []).append(i)
        return found

    def trim(self, body: str) -> str:
        """The body after the declarations it reaches."""
        kept: set[int] = set()
        names = ["", *NAME.findall(body)]
        while names:
            for i in self.by_name.get(names.pop(), ()):
                if i not in kept:
                    kept.add(i)
                    names.extend(self.declarations[i][2])
        return "\n".join([*(self.declarations[i][1] for i in sorted(kept)), body])


def split(text: str) -> tuple[str, str]:
    """The directives at the top of a C file, and the rest."""
    lines = text.splitlines(keepends=True)
    head = next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
    return "".join(lines[:head]), "".join(lines[head:])


def declarations(text: str) -> Iterator[str]:
    """Top-level declarations of preprocessed C, without the pragmas between them."""
    depth, start = 0, 0
    for mark in MARK.finditer(text):
        depth += {"{": 1, "}": -1}.get(mark[0], 0)
        if depth or mark[0] not in "};":
            continue
        whole = "\n".join(_code(text[start : mark.end()]))
        if mark[0] == ";" or FUNCTION.match(ATTRIBUTE.sub("", whole)):
            start = mark.end()
            yield whole


def _code(text: str) -> Iterator[str]:
    """Lines from the first one that is no directive: those of a body (unroll) stay."""
    lines = iter(text.strip().splitlines())
    for line in lines:
        if line and not line.startswith("#"):
            yield line
            yield from lines


def defined(text: str) -> str:
    """The name of the function, type or table that a declaration declares, "" for anything else."""
    plain = ATTRIBUTE.sub("", text)
    return next((found[1] for pattern in NAMED if (found := pattern.match(plain))), "")
