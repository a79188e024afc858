"""Conditions on coordinates as factors: [c] is 1 where c holds and 0 elsewhere.

one_hot(i) @ E        = sum_k [k == i[n]] E[k, j]  = E[i[n], j]                 delta
A @ diag(d) @ B       = sum_kl A[i,k] [k == l] d[l] B[l,j] = sum_l A[i,l] d[l] B[l,j]
tril(ones) @ x        = sum_k [k <= i] x[k, j]     = (running sum of x along k)[i, j]   scan

A tensor of conditions is read as a scalar term over axes, in which data are Elements. The laws hold
for finite numbers: what 0 multiplies is left out.
"""

from collections.abc import Callable, Iterator
from typing import Any

from weft.core.node import Node, Nodes, make
from weft.core.types import TensorType, boolean, i64
from weft.scalar.affine import from_linear, linear, plus, slack, times
from weft.scalar.ops import (
    CASTS,
    Axis,
    apply,
    apply_all,
    checked_index,
    constant,
    function_of,
    value_of,
)
from weft.search.egraph import Axes, EGraph, Ids, Term
from weft.search.elements import Element, Extent, elements_of
from weft.search.saturate import Law
from weft.tensor.ops import Gather, Index, Map, Scalar, View, moved
from weft.tensor.rules import INDEXABLE
from weft.tensor.rules_view import axes_of

Match = tuple[Any, ...]


# ---- conditions in a graph


def is_read(node: Node) -> bool:
    """Whether a node computes integers or conditions in a way that terms can say."""
    if not isinstance(node.type, TensorType) or 0 in node.type.shape:
        return False
    match node.op:
        case Index() | Scalar() | View(valid=None):
            return node.type.dtype in (i64, boolean)
        case Map(function=function):
            known = function.name in INDEXABLE or function is checked_index
            return known and all(a.type.dtype in (i64, boolean) for a in (node, *node.args))
        case _:
            return False


def compares(node: Node) -> bool:
    """Whether a tensor of conditions compares coordinates."""
    if not is_read(node) or node.type.dtype is not boolean:
        return False
    stack, seen = [node], False
    while stack:
        n = stack.pop()
        seen = seen or isinstance(n.op, Index)
        stack += [a for a in n.args if is_read(a)]
    return seen


def indicator(node: Node) -> Node | None:
    """The condition of a tensor of zeros and ones."""
    if isinstance(node.op, Index):  # of i64: where(c, 1, 0) of coordinates is one term
        term = node.op.term
        numbers = [value_of(a) for a in term.args[1:]]
        chooses = function_of(term) == "where" and numbers == [1, 0]
        return make(Index(node.op.shape, term.args[0])) if chooses else None
    numbers = [a.op.value for a in node.args[1:] if isinstance(a.op, Scalar)]
    is_cast = isinstance(node.op, Map) and node.op.function in CASTS.values()
    chooses = isinstance(node.op, Map) and node.op.function.name == "where"
    if is_cast or (chooses and numbers == [1, 0]):
        return node.args[0] if compares(node.args[0]) else None
    return None


def guarded(node: Node) -> tuple[Node, Node] | None:
    """(c, x) of where(c, x, 0), where c compares coordinates and x is no number."""
    if not isinstance(node.op, Map) or node.op.function.name != "where":
        return None
    c, x, other = node.args
    zero = isinstance(other.op, Scalar) and other.op.value == 0
    return (c, x) if zero and x.type.rank and compares(c) else None


def opened(node: Node, place: Callable[[Node], Node]) -> Node:
    """The node over what `place` has for the data that its conditions read."""
    pair = guarded(node)
    if pair is not None:
        return make(node.op, opened(pair[0], place), place(pair[1]), node.args[2])
    if indicator(node) is None and not is_read(node):
        return place(node)
    return make(node.op, *(a if isinstance(a.op, Scalar) else opened(a, place) for a in node.args))


def term_of(node: Node, index: Nodes) -> Node:
    """The scalar term of an element of a tensor of integers or conditions."""
    match node.op:
        case Index(term=term):
            return moved((term,), index)[0]
        case Scalar(value=value, dtype=dtype):
            return constant(value, dtype)
        case View(valid=None, index=terms):
            return term_of(node.args[0], moved(terms, index))
        case Map(function=function) if function.name in INDEXABLE and is_read(node):
            return apply(function, *(term_of(a, index if a.type.rank else ()) for a in node.args))
        case Gather():
            return term_of(node.args[0], gathered(node, node.op, index))
        case Map(function=function) if function is checked_index:
            bound = node.args[1].op
            return make(Element(node, bound.value if isinstance(bound, Scalar) else None), *index)  # type: ignore[arg-type]
        case _:
            return make(Element(node), *index)


def gathered(node: Node, gather: Gather, index: Nodes) -> Nodes:
    """Where in its source a gather reads an element."""
    source, *rows = node.args
    rest = iter(gather.rest)
    at = {a: term_of(r, index) for a, r in zip(gather.axes, rows, strict=True)}
    return tuple(at[a] if a in at else index[next(rest)] for a in range(source.type.rank))


# ---- laws


def conjuncts(condition: Node) -> list[Node]:
    if function_of(condition) != "and":
        return [condition]
    return [c for a in condition.args for c in conjuncts(a)]


def solved(condition: Node, k: Node) -> tuple[str, Node] | None:
    """(relation, f) where the condition says that k is f, at most f or at least f."""
    if function_of(condition) == "eq" and condition.args[0].type.dtype is i64:
        form = plus(linear(condition.args[0]), linear(condition.args[1]), -1)
    else:
        form = slack(condition)
    if form is None or abs(form[0].get(k, 0)) != 1:
        return None
    sign = form[0][k]
    rest = times(({a: v for a, v in form[0].items() if a is not k}, form[1]), ({}, -sign))
    relation = "eq" if function_of(condition) == "eq" else "ge" if sign > 0 else "le"
    return relation, from_linear(*rest)


def bounded_sums(g: EGraph, term: Term) -> Iterator[Match]:
    """(relation, axes, k, f, other factors, other conditions) of each sum over k of a [k ~ f]

    The other conditions are those of the same mask: None, or one and whether it guards.
    """
    products = [t.args for t in g.of(term.args[0], "mul")] or [term.args]
    for factors in products:
        for i, factor in enumerate(factors):
            others = (*factors[:i], *factors[i + 1 :])
            for condition, guards in (t.data for t in g.of(factor, "mask")):
                parts = conjuncts(condition)
                for at, part in enumerate(parts):
                    rest = [*parts[:at], *parts[at + 1 :]]
                    left = (apply_all("and", rest), guards) if rest else None
                    for k in sorted(term.data & axes_of(part), key=lambda a: a.op.label):  # type: ignore[attr-defined]
                        found = solved(part, k)
                        if found is not None:
                            yield found[0], term.data, k, found[1], others, left


def equal(g: EGraph, term: Term) -> Iterator[Match]:
    return (match[1:] for match in bounded_sums(g, term) if match[0] == "eq")


def up_to(g: EGraph, term: Term) -> Iterator[Match]:
    """(upwards, the axes, k, f, the factors), where one running sum serves several positions.

    Factors that vary along an axis of f have another running sum for each position, as has a mask
    that has another condition. Where f is data, it may be one position.
    """
    for relation, axes, k, f, others, left in bounded_sums(g, term):
        folded = g.free(*(o for o in others if k in g.free(o)))
        shared = axes_of(f) and not (axes_of(f) - {k}) & folded and not elements_of(f)
        if relation != "eq" and shared and left is None:
            yield relation == "le", axes, k, f, others


def delta_lacks(g: EGraph, axes: Axes, k: Node, f: Node, factors: Ids, left: Any) -> bool:
    return k not in axes_of(f)


def step_lacks(g: EGraph, upwards: bool, axes: Axes, k: Node, f: Node, factors: Ids) -> bool:
    return k not in axes_of(f)


def _apart(g: EGraph, k: Node, factors: Ids) -> tuple[list[int], list[int]]:
    """The factors that vary along k, and the others."""
    inner = [f for f in factors if k in g.free(f)]
    return inner, [f for f in factors if k not in g.free(f)]


def _is_inside(g: EGraph, k: Node, f: Node) -> bool:
    """Whether f is a position along k, also where both axes are shortened alike."""
    if isinstance(f.op, Axis):
        return g.extents[f] <= g.extents[k]
    return isinstance(f.op, Element) and f.op.extent is not None and f.op.extent <= g.extents[k]


def picked(g: EGraph, axes: Axes, k: Node, f: Node, factors: Ids, left: Any) -> int:
    inner, outer = _apart(g, k, (*factors, g.mask(*left)) if left else factors)
    if not _is_inside(g, k, f):
        n = make(Extent(k))
        within = apply("and", apply("ge", f, constant(0)), apply("lt", f, n))
        outer.append(g.mask(within))
        f = apply("where", within, f, constant(0))
    return g.sum(axes - {k}, g.mul((*outer, g.at(k, f, g.mul(inner)))))


def scanned(g: EGraph, upwards: bool, axes: Axes, k: Node, f: Node, factors: Ids) -> int:
    """Axes that only the running sum has are summed before it."""
    inner, outer = _apart(g, k, factors)
    own = (axes & g.free(*inner)) - {k} - axes_of(f) - g.free(*outer)
    if not _is_inside(g, k, f):
        last = apply("subtract", make(Extent(k)), constant(1))
        some = ("ge", f, constant(0)) if upwards else ("le", f, last)
        outer.append(g.mask(apply(*some)))
        f = apply("minimum", apply("maximum", f, constant(0)), last)
    running = g.scan(k, upwards, g.sum(own, g.mul(inner)))
    return g.sum(axes - {k} - own, g.mul((*outer, g.at(k, f, running))))


def chosen(g: EGraph, term: Term) -> Iterator[Match]:
    """(k, f, the body)"""
    yield *term.data, term.args[0]


def uncaptured(g: EGraph, k: Node, f: Node, body: int) -> bool:
    return g.bound(body).isdisjoint(axes_of(f))


MASKED = (
    Law("delta", "sum", equal, delta_lacks, picked,
        "sum_k [k = f] x[k] = [0 <= f < n] x[f] where f lacks k: the other addends are 0", True),
    Law("scan", "sum", up_to, step_lacks, scanned,
        "sum_k [k <= f] x[k] = [0 <= f] (running sum of x)[min(f, n - 1)] where f lacks k, and "
        "downwards for k >= f: the other addends are 0"),
    Law("at", "at", chosen, uncaptured,
        lambda g, k, f, body: g.renamed(body, {k: f}, {}),
        "x at k = f is x with f for k, if no sum in x binds an axis of f"),
)  # fmt: skip
