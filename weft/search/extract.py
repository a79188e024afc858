"""The cheapest terms of an e-graph, where what two of them share is paid for once.

plan = Extraction(g, target, roots, fixed).cheapest()      # plan.us, plan.expressions
A sum of a product is priced as one contraction: its multiply-adds, or what it reads and writes.
What constants alone decide is free, as it runs once. The order of magnitude is all that counts:
the price of fusion has the last word (search.py).
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from weft.core.node import Node
from weft.scalar.sizes import hint
from weft.search.alike import alike
from weft.search.egraph import FOLDS, EGraph, Ids, Term, binds, read_of
from weft.search.writer import Expression, is_negative
from weft.targets.machine import Machine
from weft.tensor.rules_view import axes_of

BYTES = 4  # of an element
FUNCTION = 10  # multiply-adds that an exponential, a logarithm or a reciprocal costs
SCANNED = 8  # multiply-adds that an element of a running sum costs, which waits for the one before


class Candidate(NamedTuple):
    """One way to compute a class: what it takes by itself, from which other classes."""

    us: float
    args: Ids
    term: Term
    product: Term | None = None  # of a sum: what it is the sum of


class Work(NamedTuple):
    """What is done in each call: nothing that constants alone decide."""

    folds: int  # sums, maxima and minima
    folded: int  # their multiply-adds, or elements where nothing is multiplied
    evaluations: int  # of functions


class Plan(NamedTuple):
    us: float
    sums: float  # microseconds of its sums and functions alone: the rest is fused with them
    work: Work
    expressions: tuple[Expression, ...]  # of the roots


class Cyclic(Exception):
    """Choices of classes that need each other: nothing can be made of them."""


# The classes that a class needs, itself as well, with their prices; what is alike is paid for once.
Choice = dict[Hashable, float]


@dataclass(eq=False)
class Extraction:
    """The candidates of each class, and what is chosen of them."""

    g: EGraph
    target: Machine
    roots: Ids

    def __post_init__(self) -> None:
        g, self.read = self.g, dict[int, int]()
        self.keys: dict[int, Hashable] = {}  # of classes that functions compute
        self.candidates: dict[int, list[Candidate]] = {}
        for term in g.ids:
            i = g.find(g.ids[term])
            self.candidates.setdefault(i, [])
            if g.free(*term.args) - binds(term) <= g.free(i):
                self.candidates[i] += self._candidates(term, i)

    def _candidates(self, term: Term, i: int) -> list[Candidate]:
        g = self.g
        args = tuple(map(g.find, term.args))
        if not args:
            return [Candidate(0.0, (), term)]
        if term.kind in ("at", "scan"):
            return [Candidate(self._moved(term.kind, args[0], i), args, term)]
        if term.kind not in FOLDS:
            if term.kind == "fn":
                self.keys[i] = alike(g, i)
            work = FUNCTION if term.kind == "fn" else (len(args) - 1) / 2
            return [Candidate(self._elementwise(i, work), args, term)]
        space, out = self._size(args[0]), self._size(i)
        found = [
            Candidate(self._contraction(i, space, out, t.args), tuple(map(g.find, t.args)), term, t)
            for kind in ("mul", "add")
            for t in g.of(args[0], kind)
            if term.kind == "sum"
            if g.free(*t.args) <= g.free(args[0])
        ]
        return found or [Candidate(self._contraction(i, space, out, args), args, term)]

    def _size(self, i: int) -> int:
        return self.g.size(self.g.free(i))

    def _reads(self, i: int) -> int:
        """Elements of memory that reading a class touches, once products and sums are fused.

        A view may repeat those of a tensor.
        """
        if i not in self.read:
            self.read[i] = self._size(i)
            terms = self.g.terms[self.g.find(i)]
            kinds = [t for t in terms if t.kind in ("leaf", "mask")]
            tensors = [sum(hint(r.type.size) for r in read_of(t)[0]) for t in kinds]
            some = (t for t in terms if t.kind in ("mul", "add", "fn"))
            fused = [sum(map(self._reads, t.args)) for t in some]
            self.read[i] = min([self.read[i], *tensors, *fused])
        return self.read[i]

    def _elementwise(self, i: int, work: float) -> float:
        return 0.0 if self.g.facts[i].constant else self._us(self._size(i) * work, 0)

    def _moved(self, kind: str, body: int, i: int) -> float:
        """Of a scan, which goes through memory, or of reading what is in memory then."""
        if self.g.facts[i].constant:
            return 0.0
        if kind == "at":
            return self._us(0, self._size(i))
        space = self._size(body)
        return self._us(SCANNED * space, self._reads(body) + space) + self.target.launch_us

    def _contraction(self, i: int, space: int, out: int, args: Ids) -> float:
        if self.g.facts[i].constant:
            return 0.0
        elements = out + sum(self._reads(a) for a in args)
        return self._us(space * max(1, len(args) - 1), elements) + self.target.launch_us

    def _us(self, multiply_adds: float, elements: int) -> float:
        t = self.target
        work = multiply_adds / (t.vector_ops_per_ns / 2 * t.lanes(BYTES) * t.cores)
        moved = elements * BYTES / t.memory_bytes_per_ns / t.cores
        return (
            max(work, moved) + 0.01 * min(work, moved)
        ) / 1e3  # of equal ones, that of less work

    # ---- choosing

    def cheapest(self) -> Plan:
        """Greedy: each root's cheapest choice, given what the roots before it have paid for."""
        chosen: dict[int, Candidate] = {}
        for root in self.roots:
            best = self._best(chosen)
            self._take(self.g.find(root), best, chosen)
        memo: dict[int, Expression | None] = {}
        made = tuple(self._expression(self.g.find(r), chosen, memo) for r in self.roots)
        paid = {self.keys.get(i, i): (i, c) for i, c in chosen.items()}
        sums = sum(c.us for _, c in paid.values() if c.term.kind in (*FOLDS, "scan", "fn"))
        done = [(i, c) for i, c in paid.values() if not self.g.facts[i].constant]
        folds = [self._folded(c) for _, c in done if c.term.kind in FOLDS]
        functions = sum(self._size(i) for i, c in done if c.term.kind == "fn")
        work = Work(len(folds), sum(folds), functions)
        return Plan(sum(c.us for _, c in paid.values()), sums, work, made)

    def _folded(self, c: Candidate) -> int:
        multiplies = c.product is not None and c.product.kind == "mul"
        return self._size(c.term.args[0]) * (max(1, len(c.args) - 1) if multiplies else 1)

    def _best(self, chosen: Mapping[int, Candidate]) -> dict[int, Candidate]:
        """The best candidate of each class, where what is chosen already costs nothing more."""
        keys = self.keys
        needs: dict[int, Choice] = {i: {keys.get(i, i): 0.0} for i in chosen}
        totals = dict.fromkeys(chosen, 0.0)
        best, changed = dict(chosen), {*chosen, *self.candidates}
        while changed:
            stale, changed = changed, set[int]()
            for i, candidates in self.candidates.items():
                if i in chosen:
                    continue
                for c in candidates:
                    own = keys.get(i, i)
                    if c.args and stale.isdisjoint(c.args):
                        continue
                    if any(a not in needs or own in needs[a] for a in c.args):
                        continue
                    choice: Choice = {own: c.us}
                    for a in c.args:
                        choice |= needs[a]
                    total = sum(choice.values()) + 1e-9 * len(choice)
                    if total < totals.get(i, float("inf")) * (1 - 1e-9):
                        needs[i], totals[i], best[i] = choice, total, c
                        changed.add(i)
                        stale.add(i)
        return best

    def _take(self, i: int, best: Mapping[int, Candidate], chosen: dict[int, Candidate]) -> None:
        if i not in chosen:
            if i not in best:
                raise Cyclic("a class without a term that stands alone")
            chosen[i] = best[i]
            for a in best[i].args:
                self._take(a, best, chosen)

    def _expression(
        self, i: int, chosen: Mapping[int, Candidate], memo: dict[int, Expression | None]
    ) -> Expression:
        if i in memo:
            known = memo[i]
            if known is None:
                raise Cyclic("a choice that needs itself")
            return known
        c, memo[i] = chosen[i], None
        args = tuple(self._expression(a, chosen, memo) for a in c.args)
        kinds = c.term.kind, c.product and c.product.kind
        if "add" in kinds:
            args = self._ordered(c.args, args)
        if "mul" in kinds:
            args = tuple(sorted(args, key=lambda e: e.kind == "const"))
        if c.product is not None:
            args = (Expression(c.product.kind, None, args),)
        made = memo[i] = Expression(c.term.kind, c.term.data, args)
        return made

    def _ordered(self, ids: Ids, args: tuple[Expression, ...]) -> tuple[Expression, ...]:
        """Addends: those of few axes first, where less is added; of both signs in turn, which keeps
        partial sums small; none at the front that is negative."""
        counts, parts = Counter[tuple[int, bool]](), list[tuple[int, int, bool, Expression]]()
        for i, e in zip(ids, args, strict=True):
            kind = len(self.g.free(i)), is_negative(e)
            parts.append((kind[0], counts[kind], kind[1], e))
            counts[kind] += 1
        parts.sort(key=lambda p: p[:3])
        parts.insert(0, parts.pop(next((k for k, p in enumerate(parts) if not p[2]), 0)))
        return tuple(p[3] for p in parts)


def free_of(e: Expression, known: Mapping[int, frozenset[Node]]) -> frozenset[Node]:
    """The free axes of an expression, from those of its operands."""
    terms = e.data[1] if e.kind == "leaf" else e.data[:1] if e.kind == "mask" else ()
    chosen = e.data[1:] if e.kind == "at" else ()
    found = frozenset[Node]().union(*(known[id(a)] for a in e.args)) - binds(e)
    return found | axes_of(*terms, *chosen)


def every(expressions: Iterable[Expression]) -> list[Expression]:
    """Each expression of some, once, operands first."""
    return [*{id(e): e for root in expressions for e in root.all()}.values()]
