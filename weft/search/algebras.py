"""What expressions are evaluated in, over a part of each axis: numbers modulo a prime, or floats.

space = Space.of(roots, extents)
evaluated(root, Modulo(Hashes(1), space), space, {})        # an array of numbers modulo the prime
evaluated(root, Bounds(...), space, {})                     # Rounded: values, errors, variances

Values of each element depend on its tensor and its coordinates alone. Modulo the prime, a function
and a maximum are any functions: equal of equal operands.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from math import frexp, log2, prod
from typing import Any, ClassVar, NamedTuple

import numpy as np

from weft.core.node import Node, postorder
from weft.scalar.ops import evaluate_term
from weft.scalar.sizes import hint
from weft.search.egraph import FOLDS, binds, is_zero_elsewhere, read_by
from weft.search.elements import Element, Extent, extents_of
from weft.search.extract import free_of
from weft.search.families import Array, Hashes, Roots, Values
from weft.search.reader import is_of_root
from weft.search.writer import Expression
from weft.tensor.ops import position
from weft.tensor.rules_view import axes_of

PRIME = 2**31 - 19  # not 2**31 - 1, which programs divide by
ELEMENTS = 1 << 15  # most of a value: the parts of the axes shrink to that


@dataclass
class Space:
    """A part of each axis, and the dimension that stands for it."""

    extents: Mapping[Node, int]
    part: dict[Node, int]
    place: dict[Node, int]
    most: int  # positions of an axis
    exact: Collection[Node]  # axes that conditions compare: no element stands for others
    ends: Collection[Node]  # axes of results that padded tensors have: their ends are seen, too

    @staticmethod
    def of(roots: Roots, extents: Mapping[Node, int]) -> "Space":
        free: dict[int, frozenset[Node]] = {}
        bound, exact, ends = frozenset[Node](), set[Node](), set[Node]()
        for e in (e for r in roots for e in r.all()):
            free[id(e)] = free_of(e, free)
            terms = terms_of(e)
            bound |= binds(e).union(n.op.axis for n in extents_of(*terms))  # type: ignore[attr-defined]
            if e.kind == "extent":
                bound |= {e.data}
            if e.kind in ("mask", "at", "scan"):
                exact |= axes_of(*terms).union(e.data[:1] if e.kind != "mask" else ())
            if e.kind == "leaf" and is_zero_elsewhere(e.data[0]):
                ends |= {a for a in axes_of(*terms) if is_of_root(a)}
        axes = sorted(bound.union(*free.values()), key=lambda a: a.op.label)  # type: ignore[attr-defined]
        part, most = dict.fromkeys(axes, 1), 1
        for most in (8, 6, 5, 4, 3, 2):
            larger = {a: min(hint(extents[a]), most) for a in axes}
            if all(prod(larger[a] for a in f) <= ELEMENTS for f in free.values()):
                part = larger
                break
        else:
            raise OverflowError(f"{len(axes)} axes are too many to compare values over")
        return Space(extents, part, {a: d for d, a in enumerate(axes)}, most, exact, ends - exact)

    def length(self, a: Node) -> int:
        """How many positions there are to sum along an axis."""
        return self.part[a] if a in self.exact else hint(self.extents[a])

    def grid(self) -> dict[Node, Array]:
        """The coordinates along each axis, in its own dimension."""
        rank = len(self.place)
        shapes = {a: [-1 if d == e else 1 for e in range(rank)] for a, d in self.place.items()}
        at = {a: np.arange(n) for a, n in self.part.items()}
        for a in self.ends:
            at[a] += (at[a] > self.part[a] // 2) * (hint(self.extents[a]) - self.part[a])
        return {a: n.reshape(shapes[a]) for a, n in at.items()}

    def values(self, terms: Sequence[Node], hashes: Hashes, whole: bool = False) -> list[Array]:
        """Those of index terms: elements of data are random, and as far from 0 as an axis is long.

        Those that nothing is known of may be out of range.
        """
        known = self.grid()
        for n in postorder(*terms):
            if isinstance(n.op, Element):
                hashed = hashes.of(n.op.tensor, [evaluate_term(a, known) for a in n.args])
                extent = n.op.extent
                least, size = (0, min(extent, self.most)) if extent else (-1, self.most + 2)
                known[n] = (hashed % np.uint64(size)).astype(np.int64) + least
                if n.type.dtype.kind == "bool":
                    known[n] = hashed % np.uint64(2) == 0
            elif isinstance(n.op, Extent):
                known[n] = (self.extents if whole else self.part)[n.op.axis]
        return [np.asarray(evaluate_term(t, known)) for t in terms]

    def at(self, value: Array, a: Node, index: Array) -> Array:
        if not self.varies(value, a):
            return value
        value, index = (x.reshape(x.shape or (1,) * len(self.place)) for x in (value, index))
        d = self.place[a]
        return np.take_along_axis(value, index % self.part[a], d)

    def scan(self, value: Array, a: Node, upwards: bool) -> Array:
        """Running sums along an axis, or those of the positions from each on."""
        d = self.place[a]
        shape = [*value.shape] if value.ndim else [1] * len(self.place)
        shape[d] = self.part[a]
        turned = np.flip(np.broadcast_to(value, shape), () if upwards else d)
        return np.flip(np.cumsum(turned, d), () if upwards else d)

    def varies(self, value: Array, a: Node) -> bool:
        return value.ndim > 0 and value.shape[self.place[a]] > 1

    def summed(self, value: Array, a: Node, length: int) -> Array:
        """The sum along an axis of that length; along one that it lacks, elements are the same."""
        if not self.varies(value, a):
            return value * length
        part = value.sum(self.place[a], keepdims=True)
        return part if length == self.part[a] else part * (length / self.part[a])


@dataclass
class Modulo:
    """Numbers modulo the prime."""

    hashes: Hashes
    space: Space
    whole: bool = False  # extents are those of the program, not of the parts

    def leaf(self, tensor: Node, coordinates: Sequence[Array]) -> Array:
        return (self.hashes.of(tensor, coordinates) % np.uint64(PRIME)).astype(np.int64)

    def const(self, value: Fraction) -> Array:
        number = value.numerator * pow(value.denominator, -1, PRIME) % PRIME
        return np.asarray(number, np.int64)

    def extent(self, a: Node) -> Array:
        return self.const(
            Fraction(hint((self.space.extents if self.whole else self.space.part)[a]))
        )

    def mul(self, x: Array, y: Array) -> Array:
        return x * y % PRIME

    def mask(self, holds: Array) -> Array:
        return holds.astype(np.int64)

    def add(self, x: Array, y: Array) -> Array:
        return (x + y) % PRIME

    def sum(self, x: Array, a: Node) -> Array:
        return self.space.summed(x, a, self.space.part[a]) % PRIME

    def fn(self, name: str, x: Array) -> Array:
        salt = ("exp", "log", "reciprocal", "max", "min").index(name) + 1
        return (self.hashes.mixed((x,), salt) % np.uint64(PRIME)).astype(np.int64)

    def max(self, x: Array, a: Node, kind: str = "max") -> Array:
        return self.sum(self.fn(kind, x), a) if self.space.varies(x, a) else x

    def min(self, x: Array, a: Node) -> Array:
        return self.max(x, a, "min")

    def scan(self, x: Array, a: Node, upwards: bool) -> Array:
        return self.space.scan(x, a, upwards) % PRIME

    def at(self, x: Array, a: Node, index: Array) -> Array:
        return self.space.at(x, a, index)


class Rounded(NamedTuple):
    """A value, a bound of its error in units of the last place of 1, and the error's variance."""

    value: Array
    error: Array
    variance: Array


@dataclass
class Bounds:
    """Values in float64, each with the error that it would have in `dtype`.

    An operation adds its own rounding to what its operands bring; sums are in blocks, as weft's
    are, so that they grow with the logarithm of their length. Each element of a part stands for as
    many of the whole axis, so that a mean is one: its factor 1 / n is a number of the program.
    """

    values: Values
    space: Space
    tiny: float  # least positive number, in the same units: results below it are lost
    hashes: Hashes  # of elements of data, where they are indices
    normal: tuple[float, float]  # the least and the largest number of full precision
    inexact: Collection[Node] = ()  # tensors that are rounded already
    peak: float = 0.0
    foreign: bool = False  # a number of the program is none of the dtype
    whole: ClassVar[bool] = False

    def _levels(self, a: Node) -> float:
        return log2(max(2, hint(self.space.extents[a])))

    def _rounded(self, value: Array, error: Array, variance: Array) -> Rounded:
        own = self._seen(value) + self.tiny
        return Rounded(value, error + own, variance + own**2)

    def _seen(self, value: Array) -> Array:
        size = np.abs(value)
        self.peak = max(self.peak, float(size.max(initial=0.0)))
        return size

    def leaf(self, tensor: Node, coordinates: Sequence[Array]) -> Rounded:
        value = self.values(tensor, coordinates)
        error = self._seen(value) * (read_by(tensor) in self.inexact)
        return Rounded(value, error, error**2)

    def const(self, value: Fraction) -> Rounded:
        least, largest = self.normal
        self.foreign |= bool(value) and not least <= abs(value) <= largest
        return Rounded(np.asarray(float(value)), np.asarray(0.0), np.asarray(0.0))

    def extent(self, a: Node) -> Rounded:
        return self.const(Fraction(self.space.length(a)))

    def mask(self, holds: Array) -> Rounded:
        return Rounded(holds.astype(np.float64), np.asarray(0.0), np.asarray(0.0))

    def mul(self, x: Rounded, y: Rounded) -> Rounded:
        for a, b in ((x, y), (y, x)):
            if _is_power_of_two(a):  # which rounds nothing, as a difference is x + -1 y
                size = float(np.abs(a.value))
                self._seen(value := a.value * b.value)
                return Rounded(value, b.error * size, b.variance * size**2)
        error = np.abs(x.value) * y.error + np.abs(y.value) * x.error
        variance = x.value**2 * y.variance + y.value**2 * x.variance
        return self._rounded(x.value * y.value, error, variance)

    def add(self, x: Rounded, y: Rounded) -> Rounded:
        return self._rounded(x.value + y.value, x.error + y.error, x.variance + y.variance)

    def sum(self, x: Rounded, a: Node) -> Rounded:
        length, summed = self.space.length(a), self.space.summed
        value, error, size = (summed(v, a, length) for v in (x.value, x.error, np.abs(x.value)))
        self._seen(value)
        levels = self._levels(a)
        same = 1 if self.space.varies(x.value, a) else length  # one error, as often
        variance = summed(x.variance, a, length) * same
        return Rounded(value, error + levels * size, variance + levels * size**2)

    def max(self, x: Rounded, a: Node, sign: int = 1) -> Rounded:
        """The largest value, which is as far off as the worst of all at most."""
        if not self.space.varies(x.value, a):
            return x
        over = self.space.place[a]
        whole = (np.broadcast_to(v, x.value.shape) for v in (sign * x.value, x.error, x.variance))
        value, error, variance = (v.max(over, keepdims=True) for v in whole)
        return Rounded(sign * value, error, variance)

    def min(self, x: Rounded, a: Node) -> Rounded:
        return self.max(x, a, -1)

    def fn(self, name: str, x: Rounded) -> Rounded:
        """A function of a number, with the range that the dtype has."""
        size = np.abs(x.value)
        if name == "exp":
            value = slope = np.exp(x.value)
        elif name == "log":
            value, slope = np.log(x.value), 1 / size
        else:
            value, slope = 1 / x.value, 1 / size**2
        value = np.where(np.abs(value) > self.normal[1], np.sign(value) * np.inf, value)
        value = np.where(np.abs(value) < self.normal[0] * 2.0**-24, 0.0, value)
        return self._rounded(value, x.error * slope, x.variance * slope**2)

    def scan(self, x: Rounded, a: Node, upwards: bool) -> Rounded:
        value, size, error, variance = (
            self.space.scan(v, a, upwards) for v in (x.value, np.abs(x.value), x.error, x.variance)
        )
        self._seen(value)
        levels = self._levels(a)
        return Rounded(value, error + levels * size, variance + levels * size**2)

    def at(self, x: Rounded, a: Node, index: Array) -> Rounded:
        return Rounded(*(self.space.at(v, a, index) for v in x))


def terms_of(e: Expression) -> tuple[Node, ...]:
    """The index terms that an expression has of its own."""
    own = {"leaf": lambda: e.data[1], "mask": lambda: e.data[:1], "at": lambda: e.data[1:]}
    return own.get(e.kind, tuple)()


def _is_power_of_two(x: Rounded) -> bool:
    """Whether it is such a number of the program."""
    return x.value.ndim == 0 and not x.error and abs(frexp(float(x.value))[0]) == 0.5


def read(algebra: Any, tensor: Node, coordinates: Sequence[Array]) -> Any:
    """The element of a tensor, or of a view that is zero where it reads none."""
    if not is_zero_elsewhere(tensor):
        return algebra.leaf(tensor, coordinates)
    known = {position(d): c for d, c in enumerate(coordinates)}
    index = [np.asarray(evaluate_term(t, known)) for t in tensor.op.index]  # type: ignore[attr-defined]
    holds = evaluate_term(tensor.op.valid, known)  # type: ignore[attr-defined]
    value = algebra.leaf(tensor.args[0], index)
    if isinstance(value, Rounded):
        return Rounded(*(np.where(holds, v, 0.0) for v in value))
    return np.where(holds, value, 0)


def evaluated(root: Expression, algebra: Any, space: Space, memo: dict[int, Any]) -> Any:
    """The value of an expression in an algebra."""
    for e in root.all():
        if id(e) in memo:
            continue
        args = [memo[id(a)] for a in e.args]
        at = space.values(terms_of(e), algebra.hashes, algebra.whole)
        if e.kind == "leaf":
            made = read(algebra, e.data[0], at)
        elif e.kind == "mask":
            made = algebra.mask(*at)
        elif e.kind in ("at", "scan"):
            made = getattr(algebra, e.kind)(*args, e.data[0], *(at or e.data[1:]))
        elif e.kind in ("const", "extent"):
            made = getattr(algebra, e.kind)(e.data)
        elif e.kind in FOLDS:
            (made,) = args
            for a in sorted(e.data, key=space.place.__getitem__):
                made = getattr(algebra, e.kind)(made, a)
        elif e.kind == "fn":
            made = algebra.fn(e.data, *args)
        else:
            made = reduce(getattr(algebra, e.kind), args)
        memo[id(e)] = made
    return memo[id(root)]
