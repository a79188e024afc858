"""Laws of exponentials, logarithms, maxima and minima: equal where what is written is finite.

log(softmax(x))         = x - max(x) - log(sum(exp(x - max(x))))       no logarithm of each element
exp(log_softmax(x)) @ v = (exp(x - max(x)) @ v) / sum(...)             one exponential of each
max_ij(x[i] + y[j])     = max_i x[i] + max_j y[j]

A class knows whether it is positive whatever its tensors hold: exponentials are, and sums, products
and reciprocals of what is. None of this is an identity modulo a prime, so check.py compares floats.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from weft.core.node import Node
from weft.search.egraph import Axes, EGraph, Ids, Term
from weft.search.saturate import Law

Match = tuple[Any, ...]


def always(*_: Any) -> bool:
    return True


def of_function(outer: str, find: Callable[[EGraph, int], Iterator[Match]]) -> Any:
    """The matches of `find` in the operand of a function."""

    def matches(g: EGraph, term: Term) -> Iterator[Match]:
        if term.data == outer:
            yield from find(g, term.args[0])

    return matches


def applied(name: str, g: EGraph, i: int) -> Iterator[tuple[int]]:
    """(the operand,) of each such function in a class"""
    return ((t.args[0],) for t in g.of(i, "fn") if t.data == name)


def factors(g: EGraph, i: int) -> Iterator[tuple[Ids]]:
    """(the factors,) of a product with an exponential"""
    for term in g.of(i, "mul"):
        if any(True for f in term.args for _ in applied("exp", g, f)):
            yield (term.args,)


def positive(g: EGraph, factors: Ids) -> bool:
    return all(g.facts[g.find(f)].positive for f in factors)


def logarithms(g: EGraph, i: int) -> Iterator[tuple[Ids, int]]:
    """(the other addends, y) of a sum with log y"""
    yield from (((), y) for (y,) in applied("log", g, i))
    for term in g.of(i, "add"):
        for at, a in enumerate(term.args):
            others = (*term.args[:at], *term.args[at + 1 :])
            yield from ((others, y) for (y,) in applied("log", g, a))


def logarithm(g: EGraph, i: int) -> Iterator[tuple[Ids, Ids, int, int]]:
    """(the other addends, those that are subtracted, 1 or -1, y) of a sum with log y or -log y"""
    yield from ((others, (), 1, y) for others, y in logarithms(g, i))
    for term in g.of(i, "add"):
        for at, a in enumerate(term.args):
            others = (*term.args[:at], *term.args[at + 1 :])
            for product in g.of(a, "mul"):
                sign = [g.value(f) for f in product.args]
                if len(sign) == 2 and -1 in sign:
                    found = logarithms(g, product.args[1 - sign.index(-1)])
                    yield from ((others, some, -1, y) for some, y in found)


def scaled(g: EGraph, others: Ids, less: Ids, sign: int, y: int) -> int:
    rest = [*others, *(g.mul((g.const(-1), x)) for x in less)]
    made = [g.fn("exp", g.add(rest))] if rest else []
    return g.mul((*made, y if sign == 1 else g.fn("reciprocal", y)))


# ---- maxima and minima


def addends(g: EGraph, term: Term) -> Iterator[tuple[Axes, Node, int, Ids]]:
    """(the other axes, one axis, an addend, the other addends)"""
    for inner in g.of(term.args[0], "add"):
        for a in sorted(term.data, key=lambda a: a.op.label):
            for at, x in enumerate(inner.args):
                yield term.data - {a}, a, x, (*inner.args[:at], *inner.args[at + 1 :])


def lacks(g: EGraph, axes: Axes, a: Node, addend: int, others: Ids) -> bool:
    return a not in g.free(addend)


def pulled(kind: str, g: EGraph, axes: Axes, a: Node, addend: int, others: Ids) -> int:
    return g.fold(kind, axes, g.add((addend, g.fold(kind, {a}, g.add(others)))))


def each_axis(g: EGraph, term: Term) -> Iterator[tuple[Axes, Node, int]]:
    """(the other axes, one axis, the body)"""
    for a in sorted(term.data, key=lambda a: a.op.label):
        yield term.data - {a}, a, term.args[0]


def absent(g: EGraph, axes: Axes, a: Node, body: int) -> bool:
    return a not in g.free(body)


def folds(kind: str) -> tuple[Law, ...]:
    return (
        Law(f"{kind}-pull", kind, addends, lacks, partial(pulled, kind),
            f"{kind}_k (x + y) = x + {kind}_k y where x lacks k: addition keeps the order"),
        Law(f"{kind}-absent", kind, each_axis, absent,
            lambda g, axes, a, body: g.fold(kind, axes, body),
            f"{kind}_k x = x where x lacks k: all are the same"),
    )  # fmt: skip


FUNCTIONS = (
    Law("log-exp", "fn", of_function("log", partial(applied, "exp")), always,
        lambda g, x: x,
        "log(exp x) = x for every x"),
    Law("log-product", "fn", of_function("log", factors), positive,
        lambda g, factors: g.add(g.fn("log", f) for f in factors),
        "log(x y) = log x + log y where both are positive"),
    Law("log-reciprocal", "fn", of_function("log", partial(applied, "reciprocal")), always,
        lambda g, y: g.mul((g.const(-1), g.fn("log", y))),
        "log(1 / y) = -log y wherever it is defined, which is for positive y"),
    Law("exp-log", "fn", of_function("exp", logarithm), always, scaled,
        "exp(x + log y) = exp(x) y and exp(x - log y) = exp(x) / y wherever log y is defined"),
    *folds("max"),
    *folds("min"),
)  # fmt: skip
