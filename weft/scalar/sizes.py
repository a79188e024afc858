"""Sizes that are no numbers: what shapes and strides hold in a program for any size.

s = size(make(Symbol("s0", 2, 65536, hint=13)))
s * 64 // 64 is s, s * 64 > 5 is True    # ints behave so
s > 16                                   # Undecided: nobody knows before the program is called

An equality holds only where both sides are the same expression: two sizes that may be equal differ.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, SupportsIndex

from weft.core.errors import WeftError
from weft.core.node import Node, postorder
from weft.core.types import Symbolic
from weft.scalar.affine import Linear, from_linear, linear, plus, times
from weft.scalar.index import simplify
from weft.scalar.intervals import Known
from weft.scalar.ops import Symbol, apply, constant, evaluate_term, function_of, value_of
from weft.scalar.symbols import difference, least, negative
from weft.scalar.text.terms import show_term


class Undecided(WeftError):
    """What depends on the number that a size will be: on the sign of the size `term`."""

    def __init__(self, question: str, term: Node, sign: str | None = None) -> None:
        super().__init__(f"whether {question} depends on the size that it is called with")
        self.term, self.sign = term, sign  # <, <= or != 0; None where the number counts


Binary = Callable[[Any, Any], Any]
Test = Callable[[float, float], bool]


def _combined(forms: Callable[[Linear, Linear], Linear]) -> Binary:
    def operator(self: Any, other: Any) -> Any:  # a tensor has operators of its own
        whole = isinstance(other, float) and other.is_integer()
        if not whole and not isinstance(other, SupportsIndex):
            return NotImplemented
        return size_of(forms(form(self), form(other)))  # type: ignore[arg-type]

    return operator


def _binary(function: str) -> Binary:
    return lambda self, other: _applied(function, self, other)


def _reflected(operator: Binary) -> Binary:
    return lambda self, other: operator(other, self)


class Size(Symbolic):
    """A size as an index term over symbols, in its canonical form."""

    __slots__ = ("term",)

    def __init__(self, term: Node) -> None:
        self.term = term

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.term is self.term  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash(self.term)

    def __str__(self) -> str:
        return show_term(self.term)

    __repr__ = __str__

    __add__ = __radd__ = _combined(plus)
    __mul__ = __rmul__ = _combined(times)
    __sub__, __rsub__ = _combined(difference), _reflected(_combined(difference))
    __floordiv__, __rfloordiv__ = _binary("floordiv"), _reflected(_binary("floordiv"))
    __mod__, __rmod__ = _binary("floormod"), _reflected(_binary("floormod"))

    def __neg__(self) -> Any:
        return self * -1

    def __lt__(self, other: Any) -> bool:
        return self._decide(other, "<", lambda low, high: high < 0, lambda low, high: low >= 0)

    def __le__(self, other: Any) -> bool:
        return self._decide(other, "<=", lambda low, high: high <= 0, lambda low, high: low > 0)

    def __gt__(self, other: Any) -> bool:
        return not self <= other

    def __ge__(self, other: Any) -> bool:
        return not self < other

    def __bool__(self) -> bool:
        return self._decide(0, "!=", lambda low, high: low > 0 or high < 0, lambda low, high: False)

    def __index__(self) -> int:
        raise Undecided(f"{self} is one number", self.term)

    def at_least(self, other: int) -> Any:
        return larger(self, other)

    __int__ = __index__

    def _decide(self, other: Any, sign: str, holds: Test, fails: Test) -> bool:
        gap = difference(form(self), form(other))  # of lengths in memory, which never wrap
        low, high = least(gap, Known({})), -least(negative(gap), Known({}))
        if holds(low, high) or fails(low, high):
            return holds(low, high)
        raise Undecided(f"{self} {sign} {other}", (self - other).term, sign)


Extent = int | Size


def form(value: Extent) -> Linear:
    return linear(value.term) if isinstance(value, Size) else ({}, int(value))


def size_of(polynomial: Linear) -> Any:
    """The size that a form is: an int where it has no symbols."""
    return Size(from_linear(*polynomial)) if polynomial[0] else polynomial[1]


def size(term: Node) -> Any:
    """The size that a term is, simplified: an int where it is a literal."""
    term = simplify(term, {})
    number = value_of(term)
    return Size(term) if number is None else int(number)


def smaller(x: Extent, y: Extent) -> Any:
    first = _first(x, y)
    return _applied("minimum", *_ordered(x, y)) if first is None else y if first is x else x


def larger(x: Extent, y: Extent) -> Any:
    first = _first(x, y)
    return _applied("maximum", *_ordered(x, y)) if first is None else first


def _first(x: Extent, y: Extent) -> Extent | None:
    """The one that is the larger one for all sizes; None where that is not known."""
    gap = difference(form(x), form(y))
    if least(gap, Known({})) >= 0:
        return x
    return y if least(negative(gap), Known({})) >= 0 else None


def differ(x: Extent, y: Extent) -> bool:
    """Whether two extents do for all sizes; Undecided where they do for some."""
    gap: Any = x - y
    with suppress(Undecided):
        return bool(gap)
    for term in postorder(gap.term):
        if function_of(term) in ("minimum", "maximum"):
            bool(size(term.args[0]) <= size(term.args[1]))
    raise Undecided(f"{x} is {y}", gap.term, "!=")


def _ordered(x: Extent, y: Extent) -> list[Extent]:
    return sorted((x, y), key=lambda n: isinstance(n, int))


def _applied(function: str, x: Extent, y: Extent) -> Any:
    return size(apply(function, constant(x), constant(y)))  # type: ignore[arg-type]


def symbols(*terms: Node) -> list[Node]:
    """The symbols that terms depend on."""
    return [n for n in postorder(*terms) if isinstance(n.op, Symbol)]


def is_short(extent: object) -> bool:
    """Whether positions along an axis are known to be i32."""
    return isinstance(extent, int) and extent < 1 << 31


def repeats(extent: Extent) -> bool:
    """Whether an axis is longer than 1; a size that is no number is taken to be."""
    return isinstance(extent, Size) or extent > 1


def hint(value: Extent) -> int:
    """The number that a size is where every symbol is its hint."""
    if not isinstance(value, Size):
        return value
    return at(value, {n: n.op.hint for n in symbols(value.term)})  # type: ignore[attr-defined]


def at(value: Extent, known: Mapping[Node, int]) -> int:
    """The number that a size is where every symbol has a value."""
    return int(evaluate_term(value.term, dict(known))) if isinstance(value, Size) else value
