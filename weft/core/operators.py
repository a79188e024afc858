"""Python's operators over terms: patterns of rules and tensors of lowerings are both written so.

x * y + 1        # apply("add", apply("multiply", x, y), 1)
"""

from __future__ import annotations

from typing import Any

from typing_extensions import Self


class Operators:
    """A term whose operators are pointwise functions by name; `==` stays Python's own."""

    def apply(self, name: str, *args: Any) -> Self:
        raise NotImplementedError

    def __add__(self, other: Any) -> Self:
        return self.apply("add", self, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Self:
        return self.apply("subtract", self, other)

    def __rsub__(self, other: Any) -> Self:
        return self.apply("subtract", other, self)

    def __mul__(self, other: Any) -> Self:
        return self.apply("multiply", self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Self:
        return self.apply("divide", self, other)

    def __rtruediv__(self, other: Any) -> Self:
        return self.apply("divide", other, self)

    def __floordiv__(self, other: Any) -> Self:
        return self.apply("floordiv", self, other)

    def __mod__(self, other: Any) -> Self:
        return self.apply("floormod", self, other)

    def __pow__(self, other: Any) -> Self:
        return self.apply("power", self, other)

    def __and__(self, other: Any) -> Self:
        return self.apply("and", self, other)

    def __or__(self, other: Any) -> Self:
        return self.apply("or", self, other)

    def __xor__(self, other: Any) -> Self:
        return self.apply("xor", self, other)

    def __invert__(self) -> Self:
        return self.apply("not", self)

    def __neg__(self) -> Self:
        return self.apply("negate", self)

    def __abs__(self) -> Self:
        return self.apply("absolute", self)

    def __lt__(self, other: Any) -> Self:
        return self.apply("lt", self, other)

    def __le__(self, other: Any) -> Self:
        return self.apply("le", self, other)

    def __gt__(self, other: Any) -> Self:
        return self.apply("gt", self, other)

    def __ge__(self, other: Any) -> Self:
        return self.apply("ge", self, other)
