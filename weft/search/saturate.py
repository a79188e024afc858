"""Laws, applied to an e-graph until they find nothing new.

rounds = saturate(g, LAWS, Limits())         # all that the laws find equal, within limits
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from weft.search.egraph import EGraph, Term


class Law(NamedTuple):
    """One equality, as a row: how its left side is found, when it holds, its right side.

    find  (graph, term) -> matches, each a tuple
    when  (graph, *match) -> whether the equality holds
    make  (graph, *match) -> the class of the right side
    proof why it holds, in a sentence
    """

    name: str
    kind: str  # of the terms it is tried on
    find: Callable[..., Iterator[tuple[Any, ...]]]
    when: Callable[..., bool]
    make: Callable[..., int]
    proof: str
    settles: bool = False  # other laws need not look at the left side again: the right side has all


@dataclass(frozen=True)
class Limits:
    """When a search ends that would find more; `matches` of one law in a round make it pause.

    All count work, never time: a busy machine finds what an idle one does.
    """

    nodes: int = 400
    rounds: int = 12
    applied: int = 150  # matches that a law is applied to, some 0.2 to 0.5 ms each
    matches: int = 300
    written: int = 100  # nodes of what is searched, as it is written


def saturate(g: EGraph, laws: Collection[Law], limits: Limits) -> int:
    """Apply laws until they find nothing new, or to the limits; returns the number of rounds.

    A law with too many matches in a round pauses for some, longer each time.
    """
    until, strikes, done = Counter[str](), Counter[str](), set[Any]()
    known = {law.name: set[Term]() for law in laws}  # the terms that a law has nothing new for
    for turn in range(limits.rounds):
        before, seen = len(g.ids), len(g.unions)
        above, stamp = list[Term](), seen + len(g.settled)
        for law in laws:
            if until[law.name] > turn:
                continue
            if stamp < (now := len(g.unions) + len(g.settled)):
                above, stamp = g.above(), now
            known[law.name].difference_update(above)
            found = _matches(g, law, known[law.name], limits.matches << strikes[law.name])
            if found is None:
                strikes[law.name] += 1
                until[law.name] = turn + 1 + strikes[law.name]
                continue
            for term, i, match in found:
                if term not in g.settled and (law.name, term, match) not in done:
                    done.add((law.name, term, match))
                    g.union(law.make(g, *match), i, law.name, term)
                    if law.settles:
                        g.settled.add(term)
                        g.touched.add(i)
                if len(g.ids) > limits.nodes or len(done) >= limits.applied:
                    g.rebuild()
                    return turn + 1
        above = g.rebuild()
        for terms in known.values():
            terms.difference_update(above)
        tried = all(after <= turn for after in until.values())
        if tried and len(g.ids) == before and len(g.unions) == seen:
            return turn + 1
    return limits.rounds


def _matches(
    g: EGraph, law: Law, known: set[Term], most: int
) -> list[tuple[Term, int, tuple[Any, ...]]] | None:
    """The matches of a law but those of `known` terms; None if there are more than `most`."""
    found: list[tuple[Term, int, tuple[Any, ...]]] = []
    terms = [t for t in g.ids if t.kind == law.kind and t not in known and t not in g.settled]
    for term in terms:
        found += ((term, g.ids[term], m) for m in law.find(g, term) if law.when(g, *m))
        if len(found) > most:
            return None
    known.update(terms)
    return found
