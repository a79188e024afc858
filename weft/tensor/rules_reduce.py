"""Rewrite rules for reductions and scans: fold fewer elements, fewer times.

reduce{sum, (1,)}(reduce{sum, (2,)}(x)) -> reduce{sum, (1, 2)}(x)
reduce{max, (0,)}(broadcast x)          -> broadcast x
"""

import math
from dataclasses import replace

import numpy as np

from weft.core.node import Node, make, op_of
from weft.core.rules import Rule, Vocabulary, call, literal_value, wildcards
from weft.core.types import Symbolic
from weft.scalar.ops import constant, value_of
from weft.scalar.rules import python_number
from weft.scalar.sizes import repeats
from weft.tensor.ops import Reduce, Scan, View, is_expansion, position
from weft.tensor.rules_map import TENSORS
from weft.tensor.rules_view import axes_of, full, scalar, viewed

x, *_ = wildcards("x y")
a, *_ = wildcards("a b", literal=True)

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
    folded = {position(i): view.shape[i] for i in op.axes}
    extents = zip(view.index, source.args[0].type.shape, strict=True)
    selects = any(n != 1 if value_of(i) is not None else n != folded.get(i, n) for i, n in extents)
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
