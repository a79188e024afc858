"""Python's operators on terms: patterns of rules and tensors of lowerings both use them.

x * y + 1        # apply("add", apply("multiply", x, y), 1)
"""

from collections.abc import Callable
from typing import Any, TypeVar

from typing_extensions import Self

T = TypeVar("T", bound="Operators")


def _unary(name: str) -> Callable[[T], T]:
    return lambda self: self.apply(name, self)


def _binary(name: str) -> Callable[[T, Any], T]:
    return lambda self, other: self.apply(name, self, other)


def _reflected(name: str) -> Callable[[T, Any], T]:
    return lambda self, other: self.apply(name, other, self)


class Operators:
    """A term whose operators `apply` a pointwise function by its name; `==` is not one of them."""

    def apply(self, name: str, *args: Any) -> Self:
        raise NotImplementedError

    __add__ = __radd__ = _binary("add")
    __sub__, __rsub__ = _binary("subtract"), _reflected("subtract")
    __mul__ = __rmul__ = _binary("multiply")
    __truediv__, __rtruediv__ = _binary("divide"), _reflected("divide")
    __floordiv__, __mod__ = _binary("floordiv"), _binary("floormod")
    __and__, __or__, __xor__ = _binary("and"), _binary("or"), _binary("xor")
    __lt__, __le__, __gt__, __ge__ = _binary("lt"), _binary("le"), _binary("gt"), _binary("ge")
    __invert__, __neg__, __abs__ = _unary("not"), _unary("negate"), _unary("absolute")
