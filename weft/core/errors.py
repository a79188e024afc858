"""Every error that weft raises on purpose. A message says what is wrong and what to do.

raise UnsupportedOpError("aten.foo has no lowering", where="model.py line 12: y = foo(x)")
"""

from collections.abc import Collection
from typing import Any, NoReturn


class WeftError(Exception):
    """Base of all errors that weft raises.

    `where` names the place: a file and line, a line of the torch source, or a kernel.
    """

    def __init__(self, message: str, where: str | None = None) -> None:
        super().__init__(message if where is None else f"{message}\n  at {where}")
        self.message = message
        self.where = where


def refuse(error: WeftError, *_: Any) -> NoReturn:
    """Raises at a call: Dynamo hides what a backend raises in an error of its own."""
    raise error


def sentence(error: BaseException) -> str:
    """What an error says, in a line; of those that are not weft's with the kind of error."""
    message = error.message if isinstance(error, WeftError) else f"{type(error).__name__}: {error}"
    return message.strip().split("\n")[0]


def choice(what: str, value: Any, known: Collection[str]) -> Any:
    """Returns the value if it is one of `known`; otherwise raises WeftError, which lists them."""
    if value not in known:
        raise WeftError(f"unknown {what} {value!r}: one of {', '.join(known)}")
    return value


class SourceError(WeftError):
    """A SOURCE of the command line cannot be loaded or run: a missing file, a syntax error."""


class UnsupportedOpError(WeftError):
    """An op, argument or dtype that weft cannot compile. With fallback="aten" ATen runs the op."""


class CaptureError(WeftError):
    """The program cannot be captured as a graph, for instance a data-dependent shape."""


class ExternMismatch(CaptureError):
    """A library call returns another shape or dtype than torch predicted at capture."""


class ParseError(WeftError):
    """IR text that does not parse: unknown name, unknown op, malformed line."""


class VerifyError(WeftError):
    """A program that breaks an invariant of its level: a wrong shape, an op of another level."""


class IndexOutOfRange(WeftError, IndexError, RuntimeError):
    """A gather, embedding or x[i] reads outside its tensor.

    Eager raises IndexError or RuntimeError, depending on the op; this error is both.
    """

    def __init__(self, where: str | None = None) -> None:
        super().__init__("an index is out of range of the tensor it reads", where)


class DivisionByZero(WeftError, ZeroDivisionError, RuntimeError):
    """An integer is divided by zero. Eager raises a RuntimeError with such a message."""

    def __init__(self, where: str | None = None) -> None:
        super().__init__("ZeroDivisionError: an integer is divided by zero", where)


FAULTS = {1: IndexOutOfRange, 2: DivisionByZero}  # by the fault numbers of runtime/weft.h


class CompilerError(WeftError):
    """The C compiler is missing or refused a generated file."""


class NoCompiler(CompilerError):
    """This machine has no C compiler that works."""


class CacheError(WeftError):
    """The on-disk cache cannot be read or written."""


# Errors that are no property of a program: the machine, the disk, an option.
ENVIRONMENT = (WeftError, CacheError, NoCompiler)
