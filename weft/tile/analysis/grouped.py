"""Contractions whose terms are in groups, where something is done to the sum of each."""

from dataclasses import replace

from weft.scalar.monoid import SUM
from weft.scalar.nest import For, Update
from weft.tile.analysis.access import Contraction, chain, contraction
from weft.tile.moves.loops import nested


def grouped(stmt: For) -> Contraction | None:
    """The contraction of a nest that adds up groups of terms; None for any other nest.

    out[m, n] = sum over g of f(sum over k of left(m, g, k) * right(g, k, n), m, g, n)
    """
    free, (head, *stores) = chain(stmt, "free")
    groups, inner = chain(head, "reduce")
    if len(inner) != 2 or len(groups) != 1 or not free:
        return None
    terms, last = inner
    if not isinstance(terms, For) or terms.role != "reduce" or not isinstance(last, Update):
        return None
    if last.fold.monoid is not SUM or groups[0].folds != (last.fold,) or len(last.values) != 1:
        return None
    flat = replace(groups[0], body=(terms,), folds=terms.folds)
    found = contraction(nested(free, (flat, *stores))[0])  # type: ignore[arg-type]
    return found and replace(found, groups=last)
