"""The tokens of a line of IR text, with a position; every reader of text reads from one.

cursor = Cursor(Line(4, "v0 = add(in0, 0.5)", "<text>"))
cursor.name(), cursor.expect("="), cursor.name()       # "v0", None, "add"
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from contextvars import ContextVar
from dataclasses import dataclass
from difflib import get_close_matches
from typing import NoReturn, TypeVar

import numpy as np

from weft.core import types
from weft.core.errors import ParseError, VerifyError
from weft.core.types import DTYPES, FOREIGN, DType, ScalarType, TensorType, TupleType

T = TypeVar("T")
Literal = tuple["int | float | bool", DType]

NAME = r"[A-Za-z_]\w*(?:\.\w+)*"
ELEMENT_TYPES = {**DTYPES, **FOREIGN}
WORDS = {"inf": math.inf, "nan": math.nan, "true": True, "false": False}
TOKEN = re.compile(
    rf"""
    (?P<space>[ \r]+)
  | (?P<comment>\#.*)
  | (?P<literal>(?:\d+(?:\.\d+)?(?:[eE][+-]?\d+)? | (?:{"|".join(WORDS)})\b(?!\.\w))
                (?::(?:{"|".join(DTYPES)})\b)?)
  | (?P<name>{NAME})
  | (?P<string>"(?:[^"\\]|\\.)*" | '[^'\\]*')
  | (?P<mark>->|<-|\.\.|//|<=|>=|==|!=|[-+*%<>=(){{}}\[\],:;])
    """,
    re.VERBOSE | re.ASCII,
)
END = ("end", "")
# What reads a size that is no number, while a text is read that declares some.
READ_SIZE: ContextVar[Callable[[Cursor], int] | None] = ContextVar("read_size", default=None)


@dataclass(frozen=True)
class Line:
    """A line of a file; error messages quote it."""

    number: int
    text: str
    file: str

    @property
    def indent(self) -> int:
        return len(self.text) - len(self.text.lstrip(" "))

    def __str__(self) -> str:
        return f"{self.file} line {self.number}: {self.text.strip()}"


class Cursor:
    """The tokens of a line and the position of the next one; `comment` is the text after a #."""

    def __init__(self, line: Line, text: str | None = None) -> None:
        self.line = line
        self.comment = ""
        self.position = 0
        self.tokens: list[tuple[str, str]] = []
        text, at = line.text if text is None else text, 0
        while at < len(text):
            found = TOKEN.match(text, at)
            if found is None:
                self.fail(f"unexpected character {text[at]!r}")
            kind, at = found.lastgroup, found.end()
            if kind == "comment":
                self.comment = found.group()[1:].strip()
            elif kind and kind != "space":
                self.tokens.append((kind, found.group()))

    def fail(self, sentence: str) -> NoReturn:
        raise ParseError(sentence, str(self.line))

    def unknown(self, what: str, name: str, known: Iterable[str]) -> NoReturn:
        """Raises ParseError for an unknown name, with the known names that are similar."""
        close = get_close_matches(name, list(known), n=2, cutoff=0.5)
        self.fail(f"{what} {name}" + (f", did you mean {' or '.join(close)}?" if close else ""))

    def invalid(self, sentence: str) -> NoReturn:
        """Raises VerifyError: the text is well formed, but breaks an invariant."""
        raise VerifyError(sentence, str(self.line))

    def one_of(self, what: str, known: Mapping[str, T]) -> T:
        """Reads a name and looks it up; the error says that `what` is unknown."""
        return self.look_up(f"unknown {what}", self.name(f"a {what}"), known)

    def look_up(self, otherwise: str, name: str, known: Mapping[str, T]) -> T:
        """Looks up a name; ParseError, which begins with `otherwise`, if it is unknown."""
        return known[name] if name in known else self.unknown(otherwise, name, known)

    def define(self, known: MutableMapping[str, T], name: str, what: T) -> None:
        if name in known:
            self.fail(f"{name} is defined twice")
        known[name] = what

    def peek(self, ahead: int = 0) -> str:
        return self.token(ahead)[1]

    def token(self, ahead: int = 0) -> tuple[str, str]:
        at = self.position + ahead
        return self.tokens[at] if at < len(self.tokens) else END

    def at_name(self, ahead: int = 0) -> bool:
        """Whether a token is a name. A name that is no identifier is a string."""
        return self.token(ahead)[0] in ("name", "string")

    def at_literal(self) -> bool:
        return self.token(int(self.peek() == "-"))[0] == "literal"

    def accept(self, text: str) -> bool:
        kind, found = self.token()
        if found != text or kind == "string":
            return False
        self.position += 1
        return True

    def expect(self, *texts: str) -> None:
        for text in texts:
            if not self.accept(text):
                self.expected(repr(text))

    def expected(self, what: str) -> NoReturn:
        self.fail(f"expected {what} but found {self.peek() or 'the end of the line'}")

    def end(self) -> None:
        if self.token() is not END:
            self.fail(f"unexpected {self.peek()} after the end of the statement")

    def name(self, what: str = "a name") -> str:
        return self.string() if self.token()[0] == "string" else self._take("name", what)

    def _take(self, kind: str, what: str) -> str:
        found, text = self.token()
        if found != kind:
            self.expected(what)
        self.position += 1
        return text

    def string(self) -> str:
        text = self._take("string", "a quoted string")
        if text[0] == "'":
            return text[1:-1]
        try:
            return json.loads(text)
        except ValueError:
            self.fail(f"{text} is not a JSON string")

    def literal(self) -> Literal:
        """Reads 0.5, 2:i32 or true; without a dtype an int is i64, a float f32, a bool bool."""
        sign = "-" if self.accept("-") else ""
        text, _, suffix = self._take("literal", "a literal").partition(":")
        value = WORDS[text] if text in WORDS else self._number(text)
        if sign and isinstance(value, bool):
            self.fail(f"-{text} is not a literal")
        value = -value if sign else value
        dtype = DTYPES[suffix] if suffix else types.dtype_of_literal(value)
        if dtype.is_integer and type(value) is int:
            limits = np.iinfo(dtype.numpy)
            if not limits.min <= value <= limits.max:
                self.fail(f"{value} does not fit {dtype}")
        return value, dtype

    def _number(self, text: str) -> int | float:
        try:
            return int(text) if text.isdigit() else float(text)
        except ValueError:
            self.fail(f"the number {text[:20]}... is too long")

    def integer(self) -> int:
        """Reads a whole number without a dtype, as in shapes and attributes."""
        if not self.peek(int(self.peek() == "-")).isdigit():
            self.expected("a whole number")
        sign = -1 if self.accept("-") else 1
        return sign * int(self._number(self._take("literal", "a whole number")))

    def listed(self, item: Callable[[], T], marks: str) -> tuple[T, ...]:
        """Reads comma-separated items between two marks such as "()"; a trailing comma is fine.

        `marks` is ")" if the opening mark has been read, and "" if the items end with the line.
        """
        for opening in marks[:-1]:
            self.expect(opening)
        items: list[T] = []
        close = marks[-1:]
        while not self.accept(close):
            items.append(item())
            if not self.accept(","):
                self.expect(close) if close else self.end()
                break
        return tuple(items)

    def dtype(self) -> DType:
        return self.one_of("dtype", ELEMENT_TYPES)

    def extents(self) -> tuple[int, ...]:
        """Reads a shape: [16,64]."""
        extents = self.listed(self.extent, "[]")
        negative = [n for n in extents if isinstance(n, int) and n < 0]  # pyright: ignore
        if negative:
            self.fail(f"negative extent {min(negative)}")
        return extents

    def extent(self) -> int:
        """Reads a whole number, or an expression of the sizes that the program declares."""
        read = READ_SIZE.get()
        return self.integer() if self.at_literal() or read is None else read(self)

    def tensor_type(self) -> TensorType:
        """Reads f32[16,64], or f32[16,64]{1,16} with strides."""
        dtype = self.dtype()
        shape = self.extents()
        strides = self.listed(self.extent, "}") if self.accept("{") else None
        if strides is not None and len(strides) != len(shape):
            self.fail(f"{len(strides)} strides for {len(shape)} axes")
        return TensorType(dtype, shape, strides)

    def result_type(self) -> TensorType | TupleType:
        """Reads f32[2,3], or (f32[2], i64[2]) for several results."""
        if self.accept("("):
            return TupleType(self.listed(self.tensor_type, ")"))
        return self.tensor_type()

    def scalar_type(self) -> ScalarType:
        """Reads f32, or f32x8 with lanes."""
        text = self.name("a dtype")
        found = re.fullmatch(r"(\w+?)(?:x([1-9]\d{0,5}))?", text)
        if found is None or found.group(1) not in DTYPES:
            self.unknown("unknown dtype", text, DTYPES)
        return ScalarType(DTYPES[found.group(1)], int(found.group(2) or 1))


def show_name(name: str) -> str:
    """Prints a name: an identifier as it is, any other name as a string."""
    return name if is_identifier(name) else show_string(name)


def is_identifier(name: str) -> bool:
    return bool(re.fullmatch(NAME, name, re.ASCII)) and name.split(".")[0] not in WORDS


def show_string(text: str) -> str:
    """Prints a string as JSON, or in single quotes if that avoids escapes."""
    raw = '"' in text and text.isprintable() and not set("'\\") & set(text)
    return f"'{text}'" if raw else json.dumps(text, ensure_ascii=False)


def show_literal(value: int | float | bool, dtype: DType) -> str:
    """Prints 0.5 for f32, 2 for i64, true for bool; other dtypes are named, as in 0.5:f64."""
    return show_number(value) + ("" if dtype is types.dtype_of_literal(value) else f":{dtype}")


def show_number(value: int | float | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(float(value) if isinstance(value, float) else int(value))
