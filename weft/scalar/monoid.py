"""Reductions as monoids: identity, lift, combine, project, all written as scalar terms.

s = MONOIDS["sum"]
s.combine((a,), (b,))                    # (add(a, b),): C and the interpreter use these terms
MONOIDS["welford"].carriers((f32,))      # 3 of f32: count, mean, sum of squared deviations
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from weft.core.node import Node
from weft.core.types import DType, i64
from weft.scalar.ops import apply, cast, constant

Terms = tuple[Node, ...]


@dataclass(frozen=True)
class Monoid:
    """An associative fold. Its state is a tuple of carriers: argmax has two, value and position.

    carriers  dtypes of the values -> dtypes of the carriers
    identity  dtypes of carriers, or the first of them -> the carriers of an empty fold
    lift      the values of one element -> its carriers
    combine   the carriers of two parts -> those of both
    project   carriers -> results
    function  name of the pointwise function where combine is a single one, else None
    indexed   the values of an element are the element and its flat position
    reference the meaning in NumPy: (array, axes) -> array with folded axes of length 1
    append    combine, where the second part is one element that comes after all of the first
    scan      the meaning of running folds: (array, axis) -> results; None where there are none
    """

    name: str
    carriers: Callable[[tuple[DType, ...]], tuple[DType, ...]] = field(compare=False, repr=False)
    identity: Callable[[tuple[DType, ...]], Terms] = field(compare=False, repr=False)
    combine: Callable[[Terms, Terms], Terms] = field(compare=False, repr=False)
    reference: Callable[..., Any] = field(compare=False, repr=False)
    lift: Callable[[Terms], Terms] = field(default=lambda x: x, compare=False, repr=False)
    project: Callable[[Terms], Terms] = field(default=lambda c: c, compare=False, repr=False)
    indexed: bool = False
    cost: float = field(default=1.0, compare=False)
    function: str | None = field(default=None, compare=False, repr=False)
    scan: Callable[..., Any] | None = field(default=None, compare=False, repr=False)
    append: Callable[[Terms, Terms], Terms] | None = field(default=None, compare=False, repr=False)

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return self.name


MONOIDS: dict[str, Monoid] = {}


def lowest(d: Any) -> Any:
    """The least value of a NumPy dtype."""
    return -np.inf if d.kind in "fV" else False if d.kind == "b" else np.iinfo(d).min


def highest(d: Any) -> Any:
    return np.inf if d.kind in "fV" else True if d.kind == "b" else np.iinfo(d).max


Extreme = Callable[[Any], Any]  # of a NumPy dtype


def _simple(name: str, function: str, ufunc: Any, start: Extreme) -> Monoid:
    """Register the fold by one function; `start` gives its identity for a NumPy dtype."""

    def reference(x: Any, axes: tuple[int, ...]) -> Any:
        out = ufunc.reduce(x, axis=axes, keepdims=True, initial=start(x.dtype), dtype=x.dtype)
        return np.asarray(out).astype(x.dtype)

    def identity(d: tuple[DType, ...]) -> Terms:
        return (constant(start(d[0].numpy), d[0]),)

    def combine(a: Terms, b: Terms) -> Terms:
        return (apply(function, a[0], b[0]),)

    def scan(x: Any, axis: int) -> tuple[Any]:
        return (ufunc.accumulate(x, axis=axis).astype(x.dtype),)

    MONOIDS[name] = Monoid(
        name, lambda d: d[:1], identity, combine, reference, function=function, scan=scan
    )
    return MONOIDS[name]


SUM = _simple("sum", "add", np.add, lambda d: 0)
PRODUCT = _simple("product", "multiply", np.multiply, lambda d: 1)
MAX = _simple("max", "maximum", np.maximum, lowest)
MIN = _simple("min", "minimum", np.minimum, highest)
ANY = _simple("any", "or", np.logical_or, lambda d: False)
ALL = _simple("all", "and", np.logical_and, lambda d: True)


def _with_position(d: tuple[DType, ...]) -> tuple[DType, ...]:
    return (*d, i64)[:2]  # i64, if it has no other type


def _argument(name: str, better: str, worst: Extreme, best: Any, last: Any = None) -> Monoid:
    """Register the fold to the position of the best value, and to that value.

    Of equals the first wins; with `last`, the function that accumulates values, the last one does.
    """

    def scan(x: Any, axis: int) -> tuple[Any, Any]:
        value = last.accumulate(x, axis=axis)
        at = np.where((x == value) | (x != x), np.indices(x.shape, sparse=True)[axis], 0)
        return np.maximum.accumulate(at, axis=axis), value

    def reference(x: Any, axes: tuple[int, ...]) -> Any:
        kept = [i for i in range(x.ndim) if i not in axes]
        ordered = np.transpose(x, (*kept, *sorted(axes)))
        flat = ordered.reshape(*ordered.shape[: len(kept)], -1)
        at = flat.shape[-1] - 1 - best(flat[..., ::-1], -1) if last else best(flat, -1)
        return np.expand_dims(at.astype(np.int64), axes)

    def identity(d: tuple[DType, ...]) -> Terms:
        at = _with_position(d)[1]
        nowhere = -1 if last else np.iinfo(at.numpy).max
        return constant(worst(d[0].numpy), d[0]), constant(nowhere, at)

    def combine(a: Terms, b: Terms) -> Terms:
        """Keep the better value; a NaN beats any number; of equals the position decides."""
        (v, i), (w, j) = a, b
        w_nan, v_number = apply("ne", w, w), apply("eq", v, v)
        wins = apply("or", apply(better, w, v), apply("and", w_nan, v_number))
        same = apply("or", apply("eq", v, w), apply("and", w_nan, apply("ne", v, v)))
        wins = apply("or", wins, apply("and", same, apply("gt" if last else "lt", j, i)))
        return apply("where", wins, w, v), apply("where", wins, j, i)

    def append(a: Terms, b: Terms) -> Terms:
        (v, i), (w, j) = a, b
        wins = apply("or", apply(better.replace("t", "e"), w, v), apply("ne", w, w))
        return apply("where", wins, w, v), apply("where", wins, j, i)

    MONOIDS[name] = Monoid(
        name,
        _with_position,
        identity,
        combine,
        reference,
        project=lambda c: (c[1], c[0]),
        indexed=True,
        cost=6.0,
        scan=scan if last else None,
        append=append if last else None,
    )
    return MONOIDS[name]


_argument("argmax", "gt", lowest, np.argmax)
_argument("argmin", "lt", highest, np.argmin)
# The last value, of scatters alone: these fold in order. MONOIDS, for any fold, has it not.
LAST = Monoid(
    "last",
    lambda d: d[:1],
    lambda d: (constant(0, d[0]),),
    combine=lambda a, b: b,
    reference=lambda x, axes: x[
        tuple(slice(-1, None) if a in axes else slice(None) for a in range(x.ndim))
    ],
    append=lambda a, b: b,
)
LAST_MAX = _argument("last_argmax", "gt", lowest, np.argmax, np.maximum)
LAST_MIN = _argument("last_argmin", "lt", highest, np.argmin, np.minimum)


def _welford_combine(a: Terms, b: Terms) -> Terms:
    """Chan, Golub, LeVeque 1979: counts, means and squared deviations of two parts."""
    (n, mean, m2), (k, other, n2) = a, b
    total = apply("add", n, k)
    empty = apply("eq", total, constant(0, n.type.dtype))
    share = apply("where", empty, constant(0, n.type.dtype), apply("divide", k, total))
    delta = apply("subtract", other, mean)
    spread = apply("multiply", delta, delta)
    moved = apply("fma", delta, share, mean)
    return total, moved, apply("fma", spread, apply("multiply", n, share), apply("add", m2, n2))


def _squared_deviations(x: Any, axes: tuple[int, ...]) -> Any:
    mean = np.mean(x, axis=axes, keepdims=True)
    return np.sum(np.square(x - mean), axis=axes, keepdims=True, dtype=x.dtype)


WELFORD = MONOIDS["welford"] = Monoid(
    "welford",
    lambda d: (d[0], d[0], d[0]),
    lambda d: tuple(constant(0, d[0]) for _ in range(3)),
    _welford_combine,
    _squared_deviations,
    lift=lambda x: (constant(1, x[0].type.dtype), x[0], constant(0, x[0].type.dtype)),
    project=lambda c: (c[2],),
    cost=12.0,
)


def _logsumexp_combine(a: Terms, b: Terms) -> Terms:
    """Online softmax (Milakov, Gimelshein 2018): a running maximum and a sum scaled by it."""
    (m, s), (n, t) = a, b
    top = apply("maximum", m, n)
    dtype = m.type.dtype

    def scaled(value: Node, at: Node) -> Node:
        """value * exp(at - top), which is `value` itself when both are the same infinity."""
        same = apply("eq", at, top)
        gap = apply("where", same, constant(0, dtype), apply("subtract", at, top))
        return apply("multiply", value, cast(apply("exp", gap), value.type.dtype))

    return top, apply("add", scaled(s, m), scaled(t, n))


def _sum_of_exponentials(x: Any, axes: tuple[int, ...]) -> Any:
    top = np.max(x, axis=axes, keepdims=True, initial=-np.inf)
    gap = np.where(x == top, 0, x - top)
    return np.sum(np.exp(gap), axis=axes, keepdims=True, dtype=x.dtype)


SUMEXP = MONOIDS["sumexp"] = Monoid(
    "sumexp",
    lambda d: (d[0], d[0]),
    lambda d: (constant(-math.inf, d[0]), constant(0, d[0])),
    _logsumexp_combine,
    _sum_of_exponentials,
    lift=lambda x: (x[0], constant(1, x[0].type.dtype)),
    project=lambda c: (c[1],),
    cost=30.0,
)

LOGSUMEXP = MONOIDS["logsumexp"] = replace(
    SUMEXP,
    name="logsumexp",
    carriers=lambda d: (d[0], d[-1]),  # the sum in f64 where roundings would add up
    identity=lambda d: (constant(-math.inf, d[0]), constant(0, d[-1])),
    reference=lambda x, axes: np.logaddexp.reduce(x, axis=axes, keepdims=True),
    project=lambda c: (apply("add", c[0], apply("log", c[1])),),
    scan=lambda x, axis: (np.logaddexp.accumulate(x, axis=axis),),
)
