"""An e-graph of polynomials over named axes: equal terms are one class, and so are equal parts.

g = EGraph({k: 64})
x, y = g.leaf(a, (i, k)), g.leaf(b, (k, j))
product = g.sum({k}, g.mul((x, y)))          # a matrix product, which needs no shapes
saturate(g, LAWS, Limits())                  # all that laws find equal: saturate.py

A class knows its free axes (those that all of its terms have) and its value where it is constant.
"""

import operator
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import reduce
from math import prod
from typing import Any, NamedTuple

from weft.core.node import Node, Nodes, substitute
from weft.scalar.index import FALSE, TRUE, simplify
from weft.scalar.intervals import Interval
from weft.scalar.sizes import hint
from weft.search.elements import elements_of
from weft.tensor.ops import View, last_of
from weft.tensor.rules_view import axes_of

FOLDS = ("sum", "max", "min")  # kinds of terms that fold axes
FORMS = 4  # most forms of an addend whose factors are compared with those of another

Axes = frozenset[Node]
Ids = tuple[int, ...]
Number = int | Fraction


class Term(NamedTuple):
    """An operation on classes. Both products and sums of terms have any number of operands.

    leaf    data: (tensor, index), an element of a tensor
    mask    data: (condition, guards), 1 where a condition on coordinates holds, else 0; `guards`
            what eager does not multiply, which may be infinite elsewhere
    const   data: a number, exactly
    extent  data: an axis, the number of whose positions this is
    mul, add
    sum     data: the axes that are summed over; the operand is one element
    max, min  data: the axes, likewise
    fn      data: exp, log or reciprocal
    scan    data: (axis, upwards), the sum of all up to the position along it, or from it on
    at      data: (axis, index), the operand at an index along an axis, which it lacks then
    """

    kind: str
    data: Any = None
    args: Ids = ()


class Facts(NamedTuple):
    """What is known of a class."""

    free: Axes = frozenset()
    value: Number | None = None
    constant: bool = False  # one of its terms is of constants alone, so it is computed once
    positive: bool = False  # whatever finite numbers the tensors hold


class Conflict(Exception):
    """Two constants that differ were found to be equal: a law is wrong."""


@dataclass(eq=False)
class EGraph:
    extents: dict[Node, Any]  # of every axis
    fixed: Collection[Node] = ()  # tensors that are constants
    parent: list[int] = field(default_factory=list[int])
    ids: dict[Term, int] = field(default_factory=dict[Term, int])  # in order of creation
    facts: dict[int, Facts] = field(default_factory=dict[int, Facts])
    terms: dict[int, list[Term]] = field(default_factory=dict[int, list[Term]])
    settled: set[Term] = field(default_factory=set[Term])  # which laws leave alone
    unions: list[tuple[str, Term, int]] = field(default_factory=list[tuple[str, Term, int]])
    places: dict[Term, tuple[Node, Nodes]] = field(default_factory=dict[Term, Any])  # enlarge.py
    touched: set[int] = field(default_factory=set[int])  # classes with terms or facts that are new

    def find(self, i: int) -> int:
        parent = self.parent
        while (above := parent[i]) != i:
            parent[i] = i = parent[above]
        return i

    def free(self, *ids: int) -> Axes:
        if len(ids) == 1:
            return self.facts[self.find(ids[0])].free
        return Axes().union(*[self.facts[self.find(i)].free for i in ids])

    def size(self, axes: Collection[Node]) -> int:
        return prod(hint(self.extents[a]) for a in axes)

    def value(self, i: int) -> Number | None:
        return self.facts[self.find(i)].value

    def of(self, i: int, kind: str) -> list[Term]:
        """The terms of that kind in a class."""
        return [t for t in self.terms[self.find(i)] if t.kind == kind]

    # ---- terms; each has one form

    def insert(self, term: Term) -> int:
        found = self.ids.get(term)
        if found is not None:
            return self.find(found)
        new = len(self.parent)
        self.parent.append(new)
        self.ids[term], self.terms[new], self.facts[new] = new, [term], self._facts(term)
        return new

    def _facts(self, term: Term) -> Facts:
        if term.kind in ("leaf", "mask"):
            tensors, terms = read_of(term)
            return Facts(Axes(axes_of(*terms)), None, all(t in self.fixed for t in tensors))
        if not term.args:
            value = term.data if term.kind == "const" else None
            return Facts(Axes(), value, True, value is None or value > 0)
        facts = [self.facts[self.find(a)] for a in term.args]
        constant, positive = all(f.constant for f in facts), all(f.positive for f in facts)
        if term.kind == "fn":
            positive = {"exp": True, "log": False}.get(term.data, positive)
        chosen = axes_of(term.data[1]) if term.kind == "at" else Axes()
        return Facts(self.free(*term.args) - binds(term) | chosen, None, constant, positive)

    def leaf(self, tensor: Node, index: tuple[Node, ...]) -> int:
        return self.insert(Term("leaf", (tensor, index)))

    def mask(self, condition: Node, guards: bool = False) -> int:
        simple = simplify(condition, self.ranges(condition))
        if simple in (TRUE, FALSE):
            return self.const(int(simple is TRUE))
        return self.insert(Term("mask", (simple, guards)))

    def ranges(self, *terms: Node) -> dict[Node, Interval]:
        """What is known of the variables of terms; an Extent may be any, so that checks hold."""
        known: dict[Node, Interval] = {a: (0, last_of(self.extents[a])) for a in axes_of(*terms)}
        for e in elements_of(*terms):
            if e.op.extent is not None:  # type: ignore[attr-defined]
                known[e] = (0, last_of(e.op.extent))  # type: ignore[attr-defined]
        return known

    def const(self, value: Number) -> int:
        return self.insert(Term("const", Fraction(value)))

    def extent(self, axis: Node) -> int:
        return self.insert(Term("extent", axis))

    def mul(self, args: Iterable[int]) -> int:
        return self._joined("mul", args, 1, operator.mul)

    def add(self, args: Iterable[int]) -> int:
        return self._joined("add", args, 0, operator.add)

    def _joined(self, kind: str, args: Iterable[int], unit: int, both: Any) -> int:
        """Operands sorted, which is commutativity, and constants joined into one."""
        found = [self.find(a) for a in args]
        known = [v for a in found if (v := self.value(a)) is not None]
        rest = [a for a in found if self.value(a) is None]
        total = reduce(both, known, Fraction(unit))
        if total != unit or not rest:
            rest.append(self.const(total))
        return rest[0] if len(rest) == 1 else self.insert(Term(kind, None, tuple(sorted(rest))))

    def sum(self, axes: Collection[Node], body: int) -> int:
        return self.fold("sum", axes, body)

    def fold(self, kind: str, axes: Collection[Node], body: int) -> int:
        body = self.find(body)
        return self.insert(Term(kind, frozenset(axes), (body,))) if axes else body

    def fn(self, name: str, arg: int) -> int:
        return self.insert(Term("fn", name, (self.find(arg),)))

    def scan(self, a: Node, upwards: bool, body: int) -> int:
        return self.insert(Term("scan", (a, upwards), (self.find(body),)))

    def at(self, a: Node, index: Node, body: int) -> int:
        body = self.find(body)
        if a not in self.free(body) or index is a:
            return body
        return self.insert(Term("at", (a, index), (body,)))

    def bound(self, i: int) -> Axes:
        """The axes that what `renamed` rewrites binds: a scan sums over others of that name."""
        term = self.terms[self.find(i)][0]
        own = Axes(term.data[:1]) if term.kind == "scan" else binds(term)
        return own.union(*map(self.bound, term.args))

    def renamed(self, i: int, names: Mapping[Node, Node], memo: dict[int, int]) -> int:
        """The class with other terms for its free axes."""
        i = self.find(i)
        names = {a: b for a, b in names.items() if a in self.facts[i].free}
        if not names or i in memo:
            return memo.get(i, i)
        term = self.terms[i][0]  # the oldest: its operands are older still, so this ends
        if term.kind == "leaf":
            tensor, index = term.data
            moved = substituted(index, names)
            ranges = self.ranges(*moved)
            made = self.leaf(tensor, tuple(simplify(t, ranges) for t in moved))
        elif term.kind == "mask":
            condition, guards = term.data
            made = self.mask(substituted((condition,), names)[0], guards)
        elif binds(term) or term.kind == "scan":
            made = self._renamed_inside(term, names)
        elif term.kind == "fn":
            made = self.fn(term.data, self.renamed(term.args[0], names, memo))
        else:
            args = [self.renamed(a, names, memo) for a in term.args]
            made = self.mul(args) if term.kind == "mul" else self.add(args)
        memo[i] = made
        return made

    def _renamed_inside(self, term: Term, names: Mapping[Node, Node]) -> int:
        inner = {a: b for a, b in names.items() if a not in binds(term)}
        if term.kind in FOLDS:
            return self.fold(term.kind, term.data, self.renamed(term.args[0], inner, {}))
        a, how = term.data
        if term.kind == "at":
            (index,) = substituted((how,), names)
            return self.at(a, index, self.renamed(term.args[0], inner, {}))
        inner = {b: c for b, c in inner.items() if b is not a}
        made = self.scan(a, how, self.renamed(term.args[0], inner, {}))
        return self.at(a, names.get(a, a), made)

    # ---- equalities

    def union(self, a: int, b: int, law: str, left: Term) -> bool:
        """Make two classes one; False if they are already."""
        a, b = sorted((self.find(a), self.find(b)))
        if a == b:
            return False
        x, y = self.facts[a], self.facts[b]
        if None not in (x.value, y.value) and x.value != y.value:
            raise Conflict(f"{law}: {x.value} is not {y.value}")
        self.parent[b] = a
        value = y.value if x.value is None else x.value
        self.facts[a] = _both(x, y)._replace(value=value)
        self.terms[a] += self.terms.pop(b)
        self.unions.append((law, left, a))
        self.touched.add(a)
        return True

    def rebuild(self) -> list[Term]:
        """Terms whose operands became equal are equal: repeated until none are found.

        Returns the terms above what changed since the last one.
        """
        changed = True
        while changed:
            changed, ids = False, dict[Term, int]()
            for term, i in self.ids.items():
                args = tuple(map(self.find, term.args))
                if args == term.args:
                    current = term
                else:
                    args = tuple(sorted(args)) if term.kind in ("mul", "add") else args
                    current = Term(term.kind, term.data, args)
                    if term in self.settled:
                        self.settled.add(current)
                other = ids.setdefault(current, self.find(i))
                if self.find(other) != self.find(i):
                    changed = self.union(other, i, "congruence", current)
            self.ids = {t: self.find(i) for t, i in ids.items()}
        self.terms, above = {}, self.above()
        for term, i in self.ids.items():
            self.terms.setdefault(i, []).append(term)
        known = None
        while known != self.facts:  # what is learnt of a class may be of those above it
            known = dict(self.facts)
            for term in above:
                i = self.ids[term]
                self.facts[i] = _both(self.facts[i], self._facts(term))
        self.touched = set()
        return above

    def above(self) -> list[Term]:
        """The terms that are over a class which is not what it was at the last rebuild."""
        touched, found, before = {*map(self.find, self.touched)}, dict[Term, None](), -1
        while before != len(touched):
            before = len(touched)
            for term, i in self.ids.items():
                if not touched.isdisjoint(map(self.find, term.args)):
                    found[term] = None
                    touched.add(self.find(i))
        return [*found]


def _both(x: Facts, y: Facts) -> Facts:
    """What is known of a class by two of its terms; the value is that of the first."""
    either = x.constant or y.constant, x.positive or y.positive
    return Facts(x.free & y.free, x.value, *either)


def read_by(tensor: Node) -> Node:
    """What a tensor, which may be a masked view, reads."""
    return tensor.args[0] if tensor.args else tensor


def is_zero_elsewhere(tensor: Node) -> bool:
    """Whether a tensor is a view that has zeros where it reads nothing."""
    return isinstance(tensor.op, View) and tensor.op.valid is not None and tensor.op.fill == 0


def read_of(term: Term) -> tuple[list[Node], tuple[Node, ...]]:
    """The tensors that a leaf or a mask reads, and the terms of its coordinates."""
    terms = term.data[1] if term.kind == "leaf" else term.data[:1]
    own = [read_by(term.data[0])] if term.kind == "leaf" else []
    return [*own, *(read_by(e.op.tensor) for e in elements_of(*terms))], terms  # type: ignore[attr-defined]


def binds(term: Any) -> Axes:
    """The axes that a term, or an expression, binds: they are not those around it."""
    if term.kind in FOLDS:
        return term.data
    return Axes(term.data[:1]) if term.kind == "at" else Axes()


def substituted(index: tuple[Node, ...], names: Mapping[Node, Node]) -> tuple[Node, ...]:
    return substitute(index, dict(names))


def monomials(g: EGraph, i: int) -> list[tuple[Axes, Ids]]:
    """Forms of a class as a sum over axes, which may be none, of a product."""
    found: dict[tuple[Axes, Ids], None] = {}
    for term in g.terms[g.find(i)]:
        if term.kind == "mul":
            found[Axes(), term.args] = None
        if term.kind == "sum":
            products = [t.args for t in g.of(term.args[0], "mul")]
            found |= dict.fromkeys((term.data, f) for f in products or [term.args])
    return [*found, (Axes(), (g.find(i),))][:FORMS]
