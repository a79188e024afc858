"""The one printer and the one parser: print_program(parse_program(text)) == text at every level.

program = parse_program("program tensor main\\ninput x: f32[4]\\noutput x\\n")
print(print_program(program))
The first line of a text names its level.
"""

from typing import Any

from weft.core.errors import ParseError, VerifyError
from weft.core.text.cursor import Cursor, Line
from weft.frontend.torch_level import TORCH
from weft.kernel.text import KERNEL
from weft.scalar.text.parser import LOOP, TILE
from weft.scalar.text.sizes import reading, show_sizes
from weft.tensor.text import TENSOR

LEVELS = {level.word: level for level in (TORCH, TENSOR, LOOP, TILE, KERNEL)}


def print_program(program: Any) -> str:
    """The program's text."""
    if program.level not in LEVELS:
        raise VerifyError(f"a program of the {program.level} level has no text form")
    level = LEVELS[program.level]
    first, rest = level.show(level, program).split("\n", 1)
    return "\n".join([first, *show_sizes(program), rest])


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
        with reading(lines[1:]) as rest:
            return level.read(level, name, rest)
    except RecursionError as e:
        raise ParseError("the text is nested too deeply", filename) from e
