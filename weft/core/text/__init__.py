"""The one printer and the one parser: print_program(parse_program(text)) == text at every level.

program = parse_program("program tensor main\\ninput x: f32[4]\\noutput x\\n")
print(print_program(program))
The first line names the level; the levels' own text modules fill LEVELS when they are imported.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from weft.core.errors import ParseError, VerifyError
from weft.core.text.cursor import Cursor, Line
from weft.core.text.level import LEVELS, Level

__all__ = ["LEVELS", "Level", "located", "parse_program", "print_program"]


def print_program(program: Any) -> str:
    """The program's text."""
    if program.level not in LEVELS:
        raise VerifyError(f"a program of the {program.level} level has no text form")
    return LEVELS[program.level].show(program)


def parse_program(text: str, filename: str = "<text>") -> Any:
    """The Graph or Program that a text describes; ParseError or VerifyError names a bad line."""
    lines = [Line(i, raw.rstrip(), filename) for i, raw in enumerate(text.split("\n"), 1)]
    lines = [line for line in lines if line.text.strip() and not line.text.lstrip().startswith("#")]
    if not lines:
        raise ParseError("an empty program", filename)
    cursor = Cursor(lines[0])
    if not cursor.accept("program"):
        cursor.expected("a header such as program tensor main")
    level = cursor.one_of("level", LEVELS)
    name = cursor.name("the program's name")
    cursor.end()
    try:
        return level.read(level, name, lines[1:])
    except RecursionError as e:
        raise ParseError("the text is nested too deeply", filename) from e


@contextmanager
def located(text: str, filename: str) -> Generator[None, None, None]:
    """A verifier names a kernel or a value; this adds the line of the text that declares it."""
    try:
        yield
    except VerifyError as error:
        if error.where is not None:
            raise
        named = re.match(r"kernel (\w+)|(\w+)", error.message)
        declares = rf"kernel {named[1]}\(|(input )?{named[2]}\b" if named else "program "
        lines = enumerate(text.split("\n"), 1)
        where = (f"{filename} line {i}: {line}" for i, line in lines if re.match(declares, line))
        raise VerifyError(error.message, next(where, filename)) from None
