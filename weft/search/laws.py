"""The laws of the search: rows, each with its side condition and why it holds.

A@B@c = sum_j (sum_k A[i,k] B[k,j]) c[j] = sum_jk A[i,k] B[k,j] c[j]     sum-push, sum-merge
      = sum_k A[i,k] (sum_j B[k,j] c[j])                                 order

All but those of functions.py are identities of rings, so that they hold for floats as for integers
modulo 2^n: they use commutativity, associativity and distributivity alone, never division or order.
What they do to
rounding is not their business: check.py bounds that for each result.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import combinations, product
from typing import Any

from weft.core.node import Node
from weft.scalar.ops import axis
from weft.scalar.sizes import hint
from weft.search.egraph import Axes, EGraph, Ids, Term, monomials
from weft.search.enlarge import beside, is_passed, joined
from weft.search.functions import FUNCTIONS, always
from weft.search.masks import MASKED
from weft.search.order import plan
from weft.search.saturate import Law

FACTORS = 16  # most of a product
ADDENDS = 4  # most of a sum that a product is distributed over

Match = tuple[Any, ...]
Matches = Iterator[Match]


def _others(args: Ids, i: int) -> Ids:
    return args[:i] + args[i + 1 :]


# ---- products and sums of two


def nested(kind: str) -> Any:
    """(all operands, with those of operands of the same kind in place of these)"""

    def find(g: EGraph, term: Term) -> Matches:
        flat: list[int] = []
        for a in term.args:
            inner = [t.args for t in g.of(a, kind) if t not in g.settled]
            flat += max(inner, key=len, default=(a,))
        if len(term.args) < len(flat) <= FACTORS:
            yield (tuple(flat),)

    return find


def add_in_product(g: EGraph, term: Term) -> Matches:
    """(the other factors, the addends)"""
    for i, a in enumerate(term.args):
        for inner in g.of(a, "add"):
            if len(inner.args) <= ADDENDS and _is_worth(g, inner.args):
                yield _others(term.args, i), inner.args


def _is_worth(g: EGraph, addends: Ids) -> bool:
    """Whether an addend is repeated along an axis, of low rank or masked: else nothing is saved."""
    whole = g.free(*addends)
    some = [a for a in addends if g.value(a) is None]
    rank = sorted(hint(g.extents[a]) for a in whole)[-2:-1] or [0]
    low = (t for a in some for t in g.of(a, "sum") if g.size(t.data) < rank[0])
    masked = (f for a in some for f in (a, *(f for t in g.of(a, "mul") for f in t.args)))
    if any(g.of(f, "mask") for f in masked):
        return True
    return any(g.free(a) < whole for a in some) or any(True for _ in low)


# ---- sums over axes


def sum_in_product(g: EGraph, term: Term) -> Matches:
    """(the other factors, the axes that a factor sums over, its body)"""
    for i, a in enumerate(term.args):
        for inner in (t for t in g.of(a, "sum") if t not in g.settled):
            yield _others(term.args, i), inner.data, inner.args[0]


def lacks(g: EGraph, others: Ids, axes: Axes, body: int) -> bool:
    return not axes & g.free(*others)


def sum_that_clashes(g: EGraph, term: Term) -> Matches:
    """The same where names have to change first; a name does once."""
    for others, axes, body in sum_in_product(g, term):
        renamed = any(a.op.label.endswith("'") for a in axes)
        if not renamed and not lacks(g, others, axes, body):
            yield others, axes, body


def unused(g: EGraph, others: Ids, axes: Axes, body: int) -> bool:
    """Whether no new name is one that is free already: the sum would bind that as well."""
    return g.free(*others, body).isdisjoint(map(_renamed, axes))


def _renamed(a: Any) -> Node:
    return axis(f"{a.op.label}'")


def push_renamed(g: EGraph, others: Ids, axes: Axes, body: int) -> int:
    names = {a: _renamed(a) for a in axes}
    for old, new in names.items():
        g.extents[new] = g.extents[old]
    return g.sum(names.values(), g.mul((*others, g.renamed(body, names, {}))))


def sum_in_sum(g: EGraph, term: Term) -> Matches:
    """(the outer axes, the inner axes, the inner body)"""
    for inner in g.of(term.args[0], "sum"):
        if inner not in g.settled:
            yield term.data, inner.data, inner.args[0]


def apart(g: EGraph, outer: Axes, inner: Axes, body: int) -> bool:
    return not outer & inner


def add_in_sum(g: EGraph, term: Term) -> Matches:
    """(the axes, the addends)"""
    for inner in g.of(term.args[0], "add"):
        yield term.data, inner.args


def each_axis(g: EGraph, term: Term) -> Matches:
    """(one axis, the other ones, the body)"""
    for a in sorted(term.data, key=lambda a: a.op.label):  # a set's order is that of addresses
        yield a, term.data - {a}, term.args[0]


def absent(g: EGraph, a: Any, rest: Axes, body: int) -> bool:
    return a not in g.free(body)


def product_in_sum(g: EGraph, term: Term) -> Matches:
    """(the axes, the factors)"""
    axes = term.data
    for inner in g.of(term.args[0], "mul"):
        if any(_opens(g, axes, inner.args, i) for i in range(len(inner.args))):
            continue  # what it opens to is ordered as a whole
        some = [f for f in inner.args if g.free(f)]
        pulled = any(not axes & g.free(f) or _own(g, f, some) & axes for f in some)
        if len(some) > 2 or len(some) < len(inner.args) or pulled:
            yield term.data, inner.args


def _opens(g: EGraph, axes: Axes, factors: Ids, i: int) -> bool:
    """Whether a factor is a product, or a sum that may be pushed into this one."""
    rest = g.free(*_others(factors, i)) | axes
    return any(
        t.kind == "mul" or (t.kind == "sum" and not t.data & rest)
        for t in g.terms[g.find(factors[i])]
        if t not in g.settled
    )


def _own(g: EGraph, factor: int, factors: list[int]) -> Axes:
    """The axes that no other factor has."""
    return g.free(factor) - g.free(*(f for f in factors if f != factor))


def present(g: EGraph, axes: Axes, factors: Ids) -> bool:
    return axes <= g.free(*factors)


def ordered(g: EGraph, axes: Axes, factors: Ids) -> int:
    """The product in its cheapest order; what has no axes multiplies the result."""
    some = [f for f in factors if g.free(f)]
    scales = [f for f in factors if not g.free(f)]
    free = [g.free(f) for f in some]
    kept = frozenset[Any]().union(*free) - axes

    def made(tree: Any) -> tuple[int, set[int]]:
        """The class of a subtree, and its factors."""
        if isinstance(tree, int):
            ids, members = (some[tree],), {tree}
        else:
            (left, some_left), (right, some_right) = map(made, tree)
            ids, members = (left, right), some_left | some_right
        rest = kept.union(*(f for i, f in enumerate(free) if i not in members))
        body = g.mul(ids)
        return g.sum(g.free(*ids) - rest, body), members

    before = len(g.ids)
    once = [i for i, f in enumerate(some) if g.facts[g.find(f)].constant]
    best = made(plan(free, kept, g.extents, once))[0]
    g.settled.update(list(g.ids)[before:])
    return g.mul((best, *scales))


# ---- common factors


def common_factors(g: EGraph, term: Term) -> Matches:
    """(other addends, common factors, common axes, then of both: their own axes and factors)"""
    once = [g.facts[g.find(a)].constant for a in term.args]
    forms = [monomials(g, a) for a in term.args]
    for i, j in combinations(range(len(once)), 2):
        if once[i] and once[j]:
            continue  # whose sum is computed once
        others = _others(_others(term.args, j), i)
        for (s, x), (t, y) in product(forms[i], forms[j]):
            if any(g.free(f) for f in {*x}.intersection(y)):
                both = Counter(x) & Counter(y)
                shared = tuple(both.elements())
                mine, yours = (tuple((Counter(f) - both).elements()) for f in (x, y))
                yield others, shared, s & t, s - t, mine, t - s, yours


def common_lack(
    g: EGraph, others: Ids, shared: Ids, both: Axes, s: Axes, mine: Ids, t: Axes, yours: Ids
) -> bool:
    """Whether that is equal, and both have the same axes: else hardly any product is saved."""
    x, y = (g.free(*shared, *own) - both - a for own, a in ((mine, s), (yours, t)))
    return not (s | t) & g.free(*shared) and x == y


def factored(
    g: EGraph, others: Ids, shared: Ids, both: Axes, s: Axes, mine: Ids, t: Axes, yours: Ids
) -> int:
    inner = g.add((g.sum(s, g.mul(mine)), g.sum(t, g.mul(yours))))
    return g.add((*others, g.sum(both, g.mul((*shared, inner)))))


LAWS = (
    *MASKED,  # first: what is left of a sum without its deltas is less to look at
    Law("mul-flatten", "mul", nested("mul"), always,
        lambda g, factors: g.mul(factors),
        "x (y z) = x y z: multiplication is associative", True),
    Law("add-flatten", "add", nested("add"), always,
        lambda g, addends: g.add(addends),
        "x + (y + z) = x + y + z: addition is associative", True),
    Law("sum-push", "mul", sum_in_product, lacks,
        lambda g, others, axes, body: g.sum(axes, g.mul((*others, body))),
        "x sum_k y = sum_k x y where x lacks k: distributivity, once for each k", True),
    Law("sum-rename", "mul", sum_that_clashes, unused, push_renamed,
        "x sum_k y[k] = sum_k' x y[k'], where k' is used nowhere: a bound name may change"),
    Law("sum-merge", "sum", sum_in_sum, apart,
        lambda g, outer, inner, body: g.sum(outer | inner, body),
        "sum_i sum_k x = sum_ik x where i is not k: addition is associative and commutative", True),
    Law("sum-split", "sum", add_in_sum, always,
        lambda g, axes, addends: g.add(g.sum(axes, a) for a in addends),
        "sum_k (x + y) = sum_k x + sum_k y: addition is associative and commutative"),
    Law("sum-absent", "sum", each_axis, absent,
        lambda g, a, rest, body: g.mul((g.extent(a), g.sum(rest, body))),
        "sum_k x = n x where x lacks k, of n positions: n equal addends"),
    Law("order", "sum", product_in_sum, present, ordered,
        "sum_ik x y z = sum_i x (sum_k y z) where x lacks k, and each axis is summed once"),
    Law("enlarge", "add", beside, is_passed, joined,
        "sum_s x[f(s)] w[s] + x[f(t)] v = sum_s x[f(s)] (w[s] + [s = t] v) where s gets to t: the "
        "other addends of sum_s [s = t] x[f(s)] are 0, as all that is read of x is finite"),
    Law("distribute", "mul", add_in_product, always,
        lambda g, others, addends: g.add(g.mul((*others, a)) for a in addends),
        "x (y + z) = x y + x z: distributivity"),
    Law("factor", "add", common_factors, common_lack, factored,
        "sum_ik x y + sum_i x z = sum_i x (sum_k y + z) where x lacks k: distributivity"),
    *FUNCTIONS,
)  # fmt: skip
