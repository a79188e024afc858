"""Whether a find may stand in for what was written: equal, and rounded hardly worse.

verdict = compare(old, new, extents, dtype)     # verdict.why is empty where it may

Both are evaluated over a small part of each axis (algebras.py):
- modulo a prime, at two random points: unequal polynomials of degree d agree with chance d / 2^31.
  Functions and maxima have no such numbers: their laws are checked by floats alone;
- in float64, with the errors that float32 would make beside each value, over families of inputs
  (families.py): a bound of the worst, and the variance of errors that are independent of each
  other. By both, the new error may be at most WORSE times the old one, in the mean over a result's
  elements, and OUTLIER times that for one of them; no intermediate may overflow in one of these.
So E[x^2] - E[x]^2, |x|^2 - 2xy + |y|^2 and the like are refused by what they do to rounding; and
n - a (sum_j b_j) for sum_j (1 - a b_j), whose errors average out, by the variance.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from weft.core.node import Node
from weft.core.types import DType
from weft.search.algebras import Bounds, Modulo, Rounded, Space, evaluated
from weft.search.egraph import FOLDS
from weft.search.extract import every
from weft.search.families import SCALED, UNKNOWN, Array, Hashes, Roots, Scaling, families

POINTS = 2
WORSE = 2.0  # times the error, in the mean over the elements of a result
OUTLIER = 5.0  # times that again for one element
LOST = 2.0**16  # times the least positive number: smaller errors do not count
LARGER = 2.0**20  # times the greatest intermediate; where all is scaled, the range itself tells
KNOWN = 0.25  # of a result's elements, at least, that are finite as written, for normal inputs


class Verdict(NamedTuple):
    why: str  # it may not stand in; empty where it may
    ratio: float = 1.0  # of the error bounds, at most
    shown: str = f"equal modulo a prime at {POINTS} points"  # how it was checked


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


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # which is then refused
def compare(
    old: Roots,
    new: Roots,
    extents: Mapping[Node, int],
    dtype: DType,
    known: Scaling = UNKNOWN,
) -> Verdict:
    """Whether `new` may stand in for `old`.

    known    what is a reciprocal, which `old` divides by instead, with one rounding where `new` has
             two; and how scales of all inputs change what is read
    """
    exact = is_polynomial((*old, *new))
    if exact and not same(old, new, extents):
        return Verdict("not equal modulo a prime")
    if not dtype.is_float:
        return Verdict("")
    facts: Any = np.finfo(dtype.numpy)
    space = Space.of((*old, *new), extents)
    worst, tiny, hashes = 0.0, facts.smallest_subnormal / facts.eps, Hashes(3)
    normal = float(facts.tiny), float(facts.max)
    chosen = families(old, known, float(facts.max), space.most)
    for name, values in chosen.items():
        sides = [Bounds(values, space, tiny, hashes, normal, e) for e in ((), known.inverse)]
        found = [_values(roots, side, space) for roots, side in zip((old, new), sides, strict=True)]
        why, ratio = judged(found[0], found[1], tiny)
        if name == "normal" and any(np.isfinite(x.value).mean() < KNOWN for x in found[0]):
            why = "hardly a finite value to compare"
        worst = max(worst, ratio)
        peak, new_peak = (side.peak for side in sides)
        beyond = new_peak > LARGER * max(peak, 1.0) and name not in SCALED
        if not why and (beyond or new_peak > float(facts.max) >= peak):
            why = "an intermediate may overflow"
        if sides[1].foreign:
            why = f"a number that {dtype.name} has not"
        if why:
            return Verdict(f"{why}, inputs {name}", ratio)
    shown = f"in float64 for {len(chosen)} families of inputs"
    shown = f"{Verdict('').shown}, {shown}" if exact else f"equal {shown}"
    return Verdict("", worst, f"{shown}; error x{worst:.2g}")


def is_polynomial(roots: Roots) -> bool:
    kinds = {e.kind for e in every(roots)}
    return kinds.isdisjoint(("fn", *FOLDS[1:]))


def judged(old: list[Rounded], new: list[Rounded], tiny: float) -> tuple[str, float]:
    """What is wrong with the new values, if anything, and the ratio of their errors.

    Elements that are infinite or no numbers as written do not count.
    """
    ratio = 0.0
    for x, y in zip(old, new, strict=True):
        finite = np.isfinite(x.value)
        least = np.abs(x.value) / 2 + LOST * tiny
        for e, f in ((x.error, y.error), (np.sqrt(x.variance), np.sqrt(y.variance))):
            times = np.where(np.isinf(e) & ~np.isfinite(f), 1.0, f / np.maximum(e, least))
            times = np.nan_to_num(times, nan=np.inf)  # beyond float64, and no number of times
            times = np.where(finite, times, 0.0)
            ratio = max(ratio, float(times.mean()), float(times.max(initial=0.0)) / OUTLIER)
        near = 2.0**-48 * (x.error + y.error + np.abs(x.value))
        if not ((np.abs(x.value - y.value) <= near) | ~finite).all():
            return "not equal in float64", ratio
    return ("" if ratio <= WORSE else f"error x{ratio:.3g}"), ratio
