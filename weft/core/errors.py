"""Every error weft raises on purpose: one sentence that says what, where and what to do.

raise UnsupportedOpError("aten.foo has no lowering", where="model.py line 12: y = foo(x)")
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any


class WeftError(Exception):
    """Base of all errors weft raises. `where` names the place: file and line, torch source line."""

    def __init__(self, message: str, where: str | None = None) -> None:
        super().__init__(message if where is None else f"{message}\n  at {where}")
        self.message = message
        self.where = where


def choice(what: str, value: Any, known: Collection[str]) -> Any:
    """The value, where it is known; else WeftError."""
    if value not in known:
        raise WeftError(f"unknown {what} {value!r}: one of {', '.join(known)}")
    return value


class SourceError(WeftError):
    """The SOURCE a user names cannot be read: a syntax error, a file or folder that is missing."""


class UnsupportedOpError(WeftError):
    """With fallback="error": an op (or dtype) that weft cannot generate code for."""


class CaptureError(WeftError):
    """The program cannot be captured as a graph, for instance a data-dependent shape."""


class ExternMismatch(CaptureError):
    """A library call gives something else than torch says that it does."""


class ParseError(WeftError):
    """IR text that does not parse: unknown name, unknown op, malformed line."""


class VerifyError(WeftError):
    """A program that breaks an invariant of its level: a wrong shape, an op of another level."""


class IndexOutOfRange(WeftError, IndexError, RuntimeError):
    """A gather, embedding or x[i] reads outside its tensor; eager raises one of the two as well."""

    def __init__(self, where: str | None = None) -> None:
        super().__init__("an index is out of range of the tensor it reads", where)


class DivisionByZero(WeftError, ZeroDivisionError, RuntimeError):
    """An integer is divided by zero; eager raises a RuntimeError that reads so."""

    def __init__(self, where: str | None = None) -> None:
        super().__init__("ZeroDivisionError: an integer is divided by zero", where)


FAULTS = {1: IndexOutOfRange, 2: DivisionByZero}  # by the numbers in runtime/weft.h


class CompilerError(WeftError):
    """The C compiler is missing or refused a generated file."""


class NoCompiler(CompilerError):
    """This machine has no C compiler that works."""


class CacheError(WeftError):
    """The on-disk cache cannot be read or written."""
