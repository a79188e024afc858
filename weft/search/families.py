"""Values to compare two forms of a result over: each is of a tensor and its coordinates alone.

families(roots, known, largest, part)    # {"normal": values, ...}; values(tensor, coordinates)

Each family is one way in which rounding or range may be lost: large offsets, rows that nearly
agree, orders of magnitude apart, differences of what nearly agrees, tensors that are scaled while
their reciprocals are scaled by the inverse, and all inputs scaled alike.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from weft.core.node import Node
from weft.scalar.sizes import hint
from weft.search.egraph import read_by
from weft.search.writer import Expression

SCALE = 0.2  # of the exponent of the largest number: 5e7 in float32
SCALED = {"all large": 1, "all small": -1}  # families, with the sign of that exponent
Array = Any
Values = Callable[[Node, Sequence[Array]], Array]
Roots = Sequence[Expression]


class Scaling(NamedTuple):
    """What is known of the tensors that a region reads."""

    inverse: Mapping[Node, Node | None] = {}  # of a reciprocal, what it normalises, if that is read
    degrees: Mapping[Node, float] = {}  # the power of a scale of all inputs that a tensor has


UNKNOWN = Scaling()


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


def _uniform(hashed: Array) -> Array:
    return ((hashed >> np.uint64(11)).astype(np.float64) + 0.5) / 2**53


def _normal(hashes: Hashes, tensor: Node, coordinates: Sequence[Array], salt: int = 0) -> Array:
    u, v = (_uniform(hashes.of(tensor, coordinates, salt + s)) for s in (1, 2))
    return np.sqrt(-2 * np.log(u)) * np.cos(2 * np.pi * v)


def _row(hashes: Hashes, coordinates: Sequence[Array]) -> Array:
    """Numbers from 1 to 2 along the last axis, whichever tensor it is of."""
    return _uniform(hashes.mixed((coordinates[-1] if coordinates else 0,), 3)) + 1


def _near(hashes: Hashes, tensor: Node, coordinates: Sequence[Array]) -> Array:
    """Rows that are all nearly one, whichever tensor they are of."""
    return _row(hashes, coordinates) + 1e-3 * _normal(hashes, tensor, coordinates)


def _wide_range(hashes: Hashes, tensor: Node, coordinates: Sequence[Array]) -> Array:
    return _normal(hashes, tensor, coordinates) * 10 ** _normal(hashes, tensor, coordinates, 4)


FAMILIES: dict[str, Callable[[Hashes, Node, Sequence[Array]], Array]] = {
    "normal": _normal,
    "around 1000": lambda h, t, c: 1e3 + _normal(h, t, c),
    "near-equal rows": _near,
    "wide range": _wide_range,
    "tiny": lambda h, t, c: 1e-30 * _normal(h, t, c),
}


def families(roots: Roots, known: Scaling, largest: float, part: int) -> dict[str, Values]:
    """Families for the tensors of some expressions.

    largest    of finite numbers
    part       how many positions of an axis are looked at
    """
    hashes = Hashes(7)
    found: dict[str, Values] = {name: partial(f, hashes) for name, f in FAMILIES.items()}
    found["products near 1"] = partial(_unit, hashes, _multiplied(roots), part)
    pairs = [(r, x) for r, x in known.inverse.items() if x is not None]
    for name, scale in (("large", largest**0.65), ("small", largest**-0.65)) if pairs else ():
        scales = {n: s for r, x in pairs for n, s in ((x, scale), (r, 1 / scale))}
        found[f"normalised, {name}"] = partial(_scaled, hashes, scales)
    for name, sign in SCALED.items():
        scales = {n: largest ** (sign * SCALE * d) for n, d in known.degrees.items()}
        found[name] = partial(_scaled, hashes, scales)
    return found


def _multiplied(roots: Roots) -> set[Node]:
    """The tensors that are multiplied by others."""
    products = (e.args for r in roots for e in r.all() if e.kind == "mul")
    factors = ([a for a in args if a.kind != "const"] for args in products)
    leaves = (e for some in factors if len(some) > 1 for f in some for e in f.all())
    return {read_by(e.data[0]) for e in leaves if e.kind == "leaf"}


def _unit(
    hashes: Hashes, multiplied: set[Node], part: int, tensor: Node, coordinates: Sequence[Array]
) -> Array:
    """Near 1, or rows of that norm in products: less 1, or less another one, hardly any is left."""
    noise = 1e-3 * _normal(hashes, tensor, coordinates)
    if read_by(tensor) not in multiplied or not coordinates:
        return 1 + noise
    length = hint(tensor.type.shape[-1])
    seen = _row(hashes, [np.arange(min(length, part))])
    return _row(hashes, coordinates) / np.sqrt((seen**2).mean() * length) * (1 + noise)


def _scaled(
    hashes: Hashes, scales: Mapping[Node, float], tensor: Node, coordinates: Sequence[Array]
) -> Array:
    return _normal(hashes, tensor, coordinates) * scales.get(read_by(tensor), 1.0)
