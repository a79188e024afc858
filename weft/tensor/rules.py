"""All rewrite rules of the tensor level, as one set that runs to a fixpoint.

graph = simplify(graph, trace)          # `trace` counts the rules that fired
map{f}(broadcast x, broadcast y)        -> broadcast(map{f}(x, y))
map{f}(view x, view y)                  -> view(map{f}(x, y)), if both views are the same
reduce{sum, (1,)}(reduce{sum, (2,)}(x)) -> reduce{sum, (1, 2)}(x)
reduce{max, (0,)}(broadcast x)          -> broadcast x
Rules of maps evaluate the same function on the same elements, fewer times: results keep every bit.
Interning shares equal subexpressions, and a graph holds only what its outputs reach.
"""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np

from weft.core.node import Node, Nodes, make, op_of, postorder
from weft.core.rules import Number, Rule, RuleSet, Vocabulary, call, literal_value, wildcards
from weft.core.types import Symbolic, boolean, i64
from weft.scalar.affine import from_linear, linear, plus
from weft.scalar.index import simplify as simplified
from weft.scalar.intervals import bounds
from weft.scalar.ops import CASTS, FUNCTIONS, SAFE, apply, constant, value_of
from weft.scalar.rules import IDENTITIES, fold, python_number
from weft.scalar.sizes import hint, repeats
from weft.tensor.ops import Index, Map, Reduce, Scalar, Scan, View, box, is_expansion, position
from weft.tensor.rules_view import VIEWS, axes_of, full, scalar, viewed

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
    shape = node.type.shape
    return make(Index(shape, simplified(apply(op.function, *terms), box(shape)))) if shape else None


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
    return make(Index(node.type.shape, simplified(whole, box(node.type.shape))))


MAPS = [
    Rule("map-scalar", call("map"), take_scalars),
    Rule("map-index", call("map"), map_of_index),
    Rule("map-floats", call("map"), index_of_floats),
    Rule("map-view", call("map"), pull_view),
    Rule("map-broadcast", call("map"), before_broadcast),
]


(x,), (a,) = wildcards("x"), wildcards("a", literal=True)

# Monoids whose fold of equal elements is that element.
IDEMPOTENT = {"max", "min", "any", "all"}


def drop_unit_axes(node: Node, op: Reduce) -> Node | None:
    """Drop folded axes of length 1, and the reduction if no other is left."""
    monoid, source = op.monoid, node.args[0]
    axes = tuple(i for i in op.axes if source.type.shape[i] != 1)
    if not axes and not monoid.function:  # whose fold of one element is that element
        return None
    return make(replace(op, axes=axes), source) if axes else source


def reduce_empty(node: Node, op: Reduce) -> Node | None:
    """reduce{m}(x) -> the identity of m, where a folded axis has length 0."""
    source, monoid = node.args[0].type, op.monoid
    if not monoid.function or all(source.shape[i] for i in op.axes):
        return None
    value = Reduce(monoid, (0,)).evaluate(np.zeros(0, source.dtype.numpy))
    return full(node.type.shape, scalar(python_number(value, source.dtype), source.dtype))


def merge(node: Node, op: Reduce) -> Node | None:
    # reduce{m, a}(reduce{m, b}(x)) -> reduce{m, a + b}(x)
    inner, monoid = op_of(node.args[0], Reduce), op.monoid
    if monoid is not inner.monoid or not monoid.function:
        return None
    if is_expansion(node.args[0].args[0]):  # the inner fold is a contraction: keep it
        return None
    return make(Reduce(monoid, tuple(sorted({*op.axes, *inner.axes}))), node.args[0].args[0])


def through_permutation(node: Node, op: Reduce) -> Node | None:
    """reduce(view x) -> view(reduce x), where the view permutes axes, adds or drops unit axes."""
    source = node.args[0]
    view, monoid = op_of(source, View), op.monoid
    if view.valid is not None:
        return None
    variables = [i for i in view.index if value_of(i) is None]
    wide = {position(i) for i, n in enumerate(view.shape) if n != 1}
    folded = {position(i) for i in op.axes}
    lengths = {position(i): n for i, n in enumerate(view.shape)}
    extents = zip(view.index, source.args[0].type.shape, strict=True)
    selects = any(n != 1 if value_of(i) is not None else n != lengths.get(i) for i, n in extents)
    if len(variables) != len(wide) or set(variables) != wide or selects:
        return None
    axes = tuple(j for j, i in enumerate(view.index) if i in folded)
    if not axes or (monoid.indexed and len(axes) > 1):  # the order of positions would change
        return None
    index = tuple(constant(0) if i in folded else i for i in view.index)
    return make(View(node.type.shape, index), make(replace(op, axes=axes), source.args[0]))


def through_broadcast(node: Node, op: Reduce) -> Node | None:
    """Along axes that a view repeats n times: max(view x) -> max(x), sum(view x) -> n * sum(x)."""
    view, monoid, dtype = op_of(node.args[0], View), op.monoid, node.type.dtype
    summed = monoid.name == "sum" and dtype.kind != "bool"
    used = axes_of(*view.index, view.valid)
    repeated = [i for i in op.axes if position(i) not in used and repeats(view.shape[i])]
    if not repeated or not (summed or monoid.name in IDEMPOTENT):
        return None
    times = math.prod(view.shape[i] for i in repeated)
    if isinstance(times, Symbolic) or (dtype.is_float and times >= 2**15):
        return None  # the count must be a number in the dtype's range
    shape = tuple(1 if i in repeated else n for i, n in enumerate(view.shape))
    small = viewed(node.args[0].args[0], shape, view.index, view.valid, view.fill)
    out = make(op, small)
    if not summed:
        return out
    count = python_number(np.asarray(times).astype(dtype.numpy), dtype)  # wraps, as the sum would
    return TENSORS.call("multiply", out, scalar(count, dtype))


def scale_after(node: Node, op: Reduce, x: Node, a: Node, build: Vocabulary) -> Node | None:
    """sum(x * a) -> sum(x) * a: one multiplication. For floats only where 1 <= |a| <= 1e6.

    Below 1, the sum of x may overflow where that of x * a does not.
    """
    value, dtype = abs(float(literal_value(a) or 0)), node.type.dtype
    scales = dtype.is_integer or (dtype.bits >= 32 and 1 <= value <= 1e6)
    if op.monoid.name != "sum" or not scales or x.type.rank == 0:
        return None
    return build.call("multiply", make(op, x), a)


def negate_after(op: Reduce, x: Node, build: Vocabulary) -> Node | None:
    # sum(-x) -> -sum(x)
    return build.call("negate", make(op, x)) if op.monoid.name == "sum" else None


def scan_unit(node: Node, op: Scan) -> Node | None:
    return node.args[0] if op.monoid.function and node.type.shape[op.axis] == 1 else None


OF_VIEW = call("reduce", call("view"))
UNIT = "exact, but for the sign of a lone -0.0"
SUMMED = "floats: as accurate, in another order; integers exact modulo 2^n"

REDUCTIONS = [
    Rule("reduce-unit", call("reduce"), drop_unit_axes, soundness=UNIT),
    Rule("reduce-empty", call("reduce"), reduce_empty),
    Rule("reduce-reduce", call("reduce", call("reduce")), merge, soundness=SUMMED),
    Rule("reduce-permute", OF_VIEW, through_permutation, soundness=SUMMED),
    Rule("reduce-broadcast", OF_VIEW, through_broadcast, soundness=SUMMED),
    Rule("sum-scale", call("reduce", x * a), scale_after, soundness=SUMMED),
    Rule("sum-negate", call("reduce", -x), negate_after, soundness=SUMMED),
    Rule("scan-unit", call("scan"), scan_unit),
]

RULES = RuleSet(TENSORS, [*IDENTITIES, *MAPS, *VIEWS, *REDUCTIONS])

# Rewrites a graph until no rule applies; its float results may round differently.
simplify = RULES.rewrite
