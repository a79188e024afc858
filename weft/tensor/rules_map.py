"""Rewrite rules for maps of views and coordinates: compute on the smaller tensor, then view that.

map{f}(broadcast x, broadcast y) -> broadcast(map{f}(x, y))
map{f}(view x, view y)           -> view(map{f}(x, y)), if both views are the same
All rules evaluate the same function on the same elements, fewer times: results keep every bit.
"""

import math
from fractions import Fraction

import numpy as np

from weft.core.node import Node, Nodes, make, postorder
from weft.core.rules import Number, Rule, Vocabulary, call, literal_value
from weft.core.types import boolean, i64
from weft.scalar.affine import from_linear, linear, plus
from weft.scalar.index import simplify
from weft.scalar.intervals import bounds
from weft.scalar.ops import CASTS, FUNCTIONS, SAFE, apply, constant
from weft.scalar.rules import fold
from weft.scalar.sizes import hint, repeats
from weft.tensor.ops import Index, Map, Scalar, View, box, position
from weft.tensor.rules_view import axes_of, full, scalar, viewed

INDEXABLE = """add subtract multiply floordiv floormod minimum maximum where
eq ne lt le gt ge and or not""".split()

VALUES = 1 << 18  # so many of an index are tried, at most
STEPS = 1024  # the greatest q of what coordinates are divided by


TENSORS = Vocabulary(
    lambda name, *args: make(Map(FUNCTIONS[name]), *args),
    scalar,
    lambda node, type_: full(type_.shape, node) if node.type.rank == 0 else None,
)


def take_scalars(node: Node) -> Node | None:
    """map{f}(x, broadcast s) -> map{f}(x, s), where s has rank 0."""

    def source(x: Node) -> Node:
        spread = isinstance(x.op, View) and x.op.valid is None and x.args[0].type.rank == 0
        return x.args[0] if spread else x

    args = tuple(map(source, node.args))
    return None if args == node.args else make(node.op, *args)


def _tensors(node: Node) -> list[Node]:
    return [a for a in node.args if a.type.rank]


def pull_view(node: Node, op: Map) -> Node | None:
    """map{f}(view x, view y) -> view(map{f}(x, y)), if x is no larger than the result."""
    if op.function in SAFE:  # a check must not see elements outside the view
        return None
    tensors = _tensors(node)
    views = [a.op for a in tensors if isinstance(a.op, View)]
    if not views or len(views) < len(tensors):
        return None
    first, sources = views[0], {a.args[0].type.shape for a in tensors}
    same = len({(v.index, v.valid) for v in views}) == len(sources) == 1
    if not same or hint(tensors[0].args[0].type.size) > hint(node.type.size):
        return None
    inner = make(node.op, *(a.args[0] if a.type.rank else a for a in node.args))
    fill = _fill(node) if first.valid is not None else 0
    if fill is None or inner.type.rank != len(first.index):
        return None
    return make(View(first.shape, first.index, first.valid, fill), inner)


def _fill(node: Node) -> Number | None:
    """The function's value where every masked view is its fill; None unless that is constant."""
    values = [
        scalar(a.op.fill, a.type.dtype) if isinstance(a.op, View) and a.type.rank else a
        for a in node.args
    ]
    result = fold(make(node.op, *values), TENSORS)
    return None if result is None else literal_value(result)


def before_broadcast(node: Node) -> Node | None:
    """Where no operand depends on an axis: compute one position along it, then broadcast."""
    terms: list[Node | None] = []
    for a in _tensors(node):
        if isinstance(a.op, View):
            terms += [*a.op.index, a.op.valid]
        elif isinstance(a.op, Index):
            terms.append(a.op.term)
        else:
            return None
    used, shape = axes_of(*terms), node.type.shape
    missing = [i for i, n in enumerate(shape) if repeats(n) and position(i) not in used]
    if not missing:
        return None
    small = tuple(1 if i in missing else n for i, n in enumerate(shape))

    def shrink(x: Node) -> Node:
        if isinstance(x.op, View):
            return viewed(x.args[0], small, x.op.index, x.op.valid, x.op.fill)
        return make(Index(small, x.op.term)) if isinstance(x.op, Index) else x

    inner = make(node.op, *(shrink(a) if a.type.rank else a for a in node.args))
    index: Nodes = tuple(constant(0) if i in missing else position(i) for i in range(len(shape)))
    return make(View(shape, index), inner)


def map_of_index(node: Node, op: Map) -> Node | None:
    """map{f}(index{t}, c) -> index{f(t, c)}, for i64 and bool."""
    if op.function.name not in INDEXABLE or node.type.dtype not in (i64, boolean):
        return None
    terms: list[Node] = []
    for a in node.args:
        value = literal_value(a)
        if isinstance(a.op, Index):
            terms.append(a.op.term)
        elif value is not None and a.type.dtype in (i64, boolean):
            terms.append(constant(value, a.type.dtype))
        else:
            return None
    if node.type.rank == 0:
        return None
    return make(Index(node.type.shape, simplify(apply(op.function, *terms), box(node.type.shape))))


def index_of_floats(node: Node, op: Map) -> Node | None:
    """map{i64}(f(index{t})) -> index{(t * p + r) // q}, clamped, where it is that for each t.

    The sources of an enlarged image are such: coordinates that are scaled as floats.
    """
    if op.function is not CASTS[i64] or not node.args[0].type.dtype.is_float:
        return None
    terms, found = list[Node](), dict[Node, np.ndarray]()
    for n in postorder(node):  # inputs come first: elsewhere this ends soon
        checks = isinstance(n.op, Map) and n.op.function in SAFE
        if checks or not isinstance(n.op, Index | Map | Scalar):
            return None
        terms.append(n)
    indices = [n for n in terms if isinstance(n.op, Index) and n.type.dtype is i64]
    if len(indices) != 1:
        return None
    term: Node = indices[0].op.term  # type: ignore[attr-defined]
    low, high = bounds(term, box(node.type.shape))
    if not 2 <= high - low < VALUES:
        return None
    every = np.arange(int(low), int(high) + 1)
    for n in terms:
        found[n] = every if n is indices[0] else n.op.evaluate(*(found[a] for a in n.args))
    line = found[node.args[0]].astype(np.float64)
    if not np.isfinite(line).all():
        return None
    left, right = len(every) // 4, len(every) - 1 - len(every) // 4  # ends may be clamped
    slope = Fraction((line[right] - line[left]) / (right - left)).limit_denominator(STEPS)
    p, q, results = slope.numerator, slope.denominator, found[node]
    rest = math.floor(round((line[left] * q - int(every[left]) * p) * STEPS) / STEPS)
    ends = int(results.min()), int(results.max())
    if not np.array_equal(np.clip((every * p + rest) // q, *ends), results):
        return None
    whole = apply("floordiv", from_linear(*plus(({}, rest), linear(term), p)), constant(q))
    for clamp, end in zip(("maximum", "minimum"), ends, strict=True):
        whole = apply(clamp, whole, constant(end))
    return make(Index(node.type.shape, simplify(whole, box(node.type.shape))))


MAPS = [
    Rule("map-scalar", call("map"), take_scalars),
    Rule("map-index", call("map"), map_of_index),
    Rule("map-floats", call("map"), index_of_floats),
    Rule("map-view", call("map"), pull_view),
    Rule("map-broadcast", call("map"), before_broadcast),
]
