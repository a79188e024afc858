"""The tensor level's equalities, all of them in one set, run to a fixpoint.

graph = simplify(graph, trace)      # `trace` counts the rules that fired
Equal subexpressions are one node by interning, and what no output reaches is no longer there.
"""

from __future__ import annotations

from collections import Counter

from weft.core.graph import Graph
from weft.core.rules import RuleSet
from weft.scalar.rules import identities
from weft.tensor.rules_map import MAPS, TENSORS
from weft.tensor.rules_reduce import REDUCTIONS
from weft.tensor.rules_view import VIEWS

RULES = RuleSet(TENSORS, [*identities("map"), *MAPS, *VIEWS, *REDUCTIONS])


def simplify(graph: Graph, trace: Counter[str] | None = None) -> Graph:
    """The graph that no rule improves; its float results may round differently."""
    return RULES.rewrite(graph, trace)
