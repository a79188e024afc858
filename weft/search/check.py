"""Whether a find may stand in for what was written: equal, and rounded hardly worse.

verdict = compare(old, new, extents, dtype)     # verdict.why is empty where it may

Both are evaluated over a small part of each axis, with values of each element that depend on its
tensor and its coordinates alone:
- modulo a prime, at two random points: unequal polynomials of degree d agree with chance d / 2^31;
- in float64, with a bound of the error that float32 would make beside each value, over families
  of inputs: the new bound may be at most WORSE times the old one, in the mean over a result's
  elements, and OUTLIER times that for one of them; no intermediate may overflow in one of these.
So E[x^2] - E[x]^2, |x|^2 - 2xy + |y|^2 and the like are refused by what they do to rounding.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial, reduce
from math import log2, prod
from typing import Any, NamedTuple

import numpy as np

from weft.core.node import Node
from weft.core.types import DType
from weft.scalar.ops import evaluate_term
from weft.scalar.sizes import hint
from weft.search.extract import free_of
from weft.search.regions import Expression

PRIME = 2**31 - 19  # not 2**31 - 1, which programs divide by
POINTS = 2
ELEMENTS = 1 << 15  # most of a value: the parts of the axes shrink to that
WORSE = 2.0  # times the error, in the mean over the elements of a result
OUTLIER = 5.0  # times that again for one element
LOST = 2.0**16  # times the least positive number: smaller errors do not count
LARGER = 2.0**20  # times the greatest intermediate

Array = Any
Roots = Sequence[Expression]


class Verdict(NamedTuple):
    why: str  # it may not stand in; empty where it may
    ratio: float = 1.0  # of the error bounds, at most
    shown: str = f"equal modulo a prime at {POINTS} points"  # how it was checked


@dataclass
class Space:
    """A part of each axis, and the dimension that stands for it."""

    extents: Mapping[Node, int]
    part: dict[Node, int]
    place: dict[Node, int]

    @staticmethod
    def of(roots: Roots, extents: Mapping[Node, int]) -> "Space":
        free: dict[int, frozenset[Node]] = {}
        bound = frozenset[Node]()
        for e in (e for r in roots for e in r.all()):
            free[id(e)] = free_of(e, free)
            if e.kind in ("sum", "extent"):
                bound |= e.data if e.kind == "sum" else {e.data}
        axes = sorted(bound.union(*free.values()), key=lambda a: a.op.label)  # type: ignore[attr-defined]
        part = dict.fromkeys(axes, 1)
        for most in (8, 6, 5, 4, 3, 2):
            larger = {a: min(hint(extents[a]), most) for a in axes}
            if all(prod(larger[a] for a in f) <= ELEMENTS for f in free.values()):
                part = larger
                break
        else:
            raise OverflowError(f"{len(axes)} axes are too many to compare values over")
        return Space(extents, part, {a: d for d, a in enumerate(axes)})

    def grid(self) -> dict[Node, Array]:
        """The coordinates along each axis, in its own dimension."""
        rank = len(self.place)
        shapes = {a: [-1 if d == e else 1 for e in range(rank)] for a, d in self.place.items()}
        return {a: np.arange(n).reshape(shapes[a]) for a, n in self.part.items()}


@dataclass
class Hashes:
    """A random number for each element, whichever term reads it: of its tensor and coordinates."""

    seed: int
    numbers: dict[Node, int] = field(default_factory=dict[Node, int])  # of the tensors

    def of(self, tensor: Node, coordinates: Sequence[Array], salt: int = 0) -> Array:
        number = self.numbers.setdefault(tensor, len(self.numbers))
        return self.mixed((number, *coordinates), salt)

    def mixed(self, parts: Sequence[Array], salt: int) -> Array:
        with np.errstate(over="ignore"):
            h = np.uint64(0x9E3779B97F4A7C15) * np.uint64(2 * (self.seed * 64 + salt) + 1)
            h = np.asarray(h)
            for part in parts:
                h = (h ^ np.asarray(part).astype(np.uint64)) * np.uint64(0xBF58476D1CE4E5B9)
                h = h ^ (h >> np.uint64(29))
                h = h * np.uint64(0x94D049BB133111EB)
                h = h ^ (h >> np.uint64(32))
        return h


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

    def add(self, x: Array, y: Array) -> Array:
        return (x + y) % PRIME

    def sum(self, x: Array, a: Node) -> Array:
        return x.sum(self.space.place[a], keepdims=True) % PRIME


Pair = tuple[Array, Array]  # a value, and the bound of its error in units of the last place of 1


@dataclass
class Bounds:
    """Values in float64, each with a bound of the error that it would have in `dtype`.

    An operation adds its own rounding to what its operands bring; sums are in blocks, as weft's
    are, so that they grow with the logarithm of their length. Each element of a part stands for as
    many of the whole axis, so that a mean is one: its factor 1 / n is a number of the program.
    """

    values: Callable[[Node, Sequence[Array]], Array]
    space: Space
    tiny: float  # least positive number, in the same units: results below it are lost
    peak: float = 0.0

    def _rounded(self, value: Array, error: Array, times: float = 1.0) -> Pair:
        self.peak = max(self.peak, float(np.abs(value).max(initial=0.0)))
        return value, error + times * (np.abs(value) + self.tiny)

    def leaf(self, tensor: Node, coordinates: Sequence[Array]) -> Pair:
        value = self.values(tensor, coordinates)
        return value, np.zeros_like(value)

    def const(self, value: Fraction) -> Pair:
        return np.asarray(float(value)), np.asarray(0.0)

    def extent(self, a: Node) -> Pair:
        return self.const(Fraction(hint(self.space.extents[a])))

    def mul(self, x: Pair, y: Pair) -> Pair:
        error = np.abs(x[0]) * y[1] + np.abs(y[0]) * x[1]
        return self._rounded(x[0] * y[0], error)

    def add(self, x: Pair, y: Pair) -> Pair:
        return self._rounded(x[0] + y[0], x[1] + y[1])

    def sum(self, x: Pair, a: Node) -> Pair:
        d, length = self.space.place[a], hint(self.space.extents[a])
        times = length / self.space.part[a]
        value, error, size = (v.sum(d, keepdims=True) * times for v in (*x, np.abs(x[0])))
        self._rounded(value, error)
        return value, error + log2(max(2, length)) * size


def evaluated(root: Expression, algebra: Any, space: Space, memo: dict[int, Any]) -> Any:
    """The value of an expression in an algebra."""
    grid = space.grid()
    for e in root.all():
        if id(e) in memo:
            continue
        args = [memo[id(a)] for a in e.args]
        if e.kind == "leaf":
            tensor, index = e.data
            known = dict(grid)
            made = algebra.leaf(tensor, [np.asarray(evaluate_term(t, known)) for t in index])
        elif e.kind in ("const", "extent"):
            made = getattr(algebra, e.kind)(e.data)
        elif e.kind == "sum":
            (made,) = args
            for a in sorted(e.data, key=space.place.__getitem__):
                made = algebra.sum(_repeated(made, a, space), a)
        else:
            made = reduce(getattr(algebra, e.kind), args)
        memo[id(e)] = made
    return memo[id(root)]


def _repeated(value: Any, a: Node, space: Space) -> Any:
    """With all dimensions, and all of an axis: along one that it lacks, elements are the same."""
    if isinstance(value, tuple):
        return tuple(_repeated(v, a, space) for v in value)  # type: ignore[reportUnknownVariableType]
    d, n = space.place[a], space.part[a]
    wide = value if value.ndim else value.reshape((1,) * len(space.place))
    return wide if wide.shape[d] == n else np.repeat(wide, n, d)


def same(old: Roots, new: Roots, extents: Mapping[Node, int], whole: bool = False) -> bool:
    """Whether all roots are equal modulo the prime, at random points."""
    space = Space.of((*old, *new), extents)
    for point in range(POINTS):
        algebra = Modulo(Hashes(point + 1), space, whole)
        x, y = ([*_values(roots, algebra, space)] for roots in (old, new))
        if not all(map(_equal, x, y)):
            return False
    return True


def _values(roots: Roots, algebra: Any, space: Space) -> list[Any]:
    memo: dict[int, Any] = {}
    return [evaluated(r, algebra, space, memo) for r in roots]


def _equal(x: Array, y: Array) -> bool:
    return bool((x == y).all())


# ---- families of inputs


def _normal(hashes: Hashes, tensor: Node, coordinates: Sequence[Array], salt: int = 0) -> Array:
    u, v = (
        ((hashes.of(tensor, coordinates, salt + s) >> np.uint64(11)).astype(np.float64) + 0.5)
        / 2**53
        for s in (1, 2)
    )
    return np.sqrt(-2 * np.log(u)) * np.cos(2 * np.pi * v)


def _near(hashes: Hashes, tensor: Node, coordinates: Sequence[Array]) -> Array:
    """Rows that are all nearly one, whichever tensor they are of."""
    row = hashes.mixed((coordinates[-1] if coordinates else 0,), 3)
    base = (row >> np.uint64(11)).astype(np.float64) / 2**53 + 1
    return base + 1e-3 * _normal(hashes, tensor, coordinates)


def _wide_range(hashes: Hashes, tensor: Node, coordinates: Sequence[Array]) -> Array:
    return _normal(hashes, tensor, coordinates) * 10 ** _normal(hashes, tensor, coordinates, 4)


FAMILIES: dict[str, Callable[[Hashes, Node, Sequence[Array]], Array]] = {
    "normal": _normal,
    "around 1000": lambda h, t, c: 1e3 + _normal(h, t, c),
    "near-equal rows": _near,
    "wide range": _wide_range,
    "tiny": lambda h, t, c: 1e-30 * _normal(h, t, c),
}


@np.errstate(over="ignore", invalid="ignore")  # which is then refused
def compare(old: Roots, new: Roots, extents: Mapping[Node, int], dtype: DType) -> Verdict:
    """Whether `new` may stand in for `old`."""
    if not same(old, new, extents):
        return Verdict("not equal modulo a prime")
    if not dtype.is_float:
        return Verdict("")
    facts: Any = np.finfo(dtype.numpy)
    space = Space.of((*old, *new), extents)
    worst, tiny = 0.0, facts.smallest_subnormal / facts.eps
    for name, family in FAMILIES.items():
        values = partial(family, Hashes(7))
        sides = [Bounds(values, space, tiny) for _ in range(2)]
        found = [_values(roots, side, space) for roots, side in zip((old, new), sides, strict=True)]
        why, ratio = _judged(found[0], found[1], tiny)
        worst = max(worst, ratio)
        peak, new_peak = (side.peak for side in sides)
        if not why and (new_peak > float(facts.max) >= peak or new_peak > LARGER * max(peak, 1.0)):
            why = "an intermediate may overflow"
        if why:
            return Verdict(f"{why}, inputs {name}", ratio)
    families = f"{Verdict('').shown}, in float64 for {len(FAMILIES)} families of inputs"
    return Verdict("", worst, f"{families}; error x{worst:.2g}")


def _judged(old: list[Pair], new: list[Pair], tiny: float) -> tuple[str, float]:
    """What is wrong with the new values, if anything, and the ratio of the error bounds."""
    ratio = 0.0
    for (x, e), (y, f) in zip(old, new, strict=True):
        least = np.maximum(e, np.abs(x) / 2 + LOST * tiny)
        times = f / least
        ratio = max(ratio, float(times.mean()), float(times.max(initial=0.0)) / OUTLIER)
        if not (np.abs(x - y) <= 2.0**-48 * (e + f + np.abs(x))).all():
            return "not equal in float64", ratio
    return ("" if ratio <= WORSE else f"error x{ratio:.3g}"), ratio
