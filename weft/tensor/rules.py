"""All rewrite rules of the tensor level, as one set that runs to a fixpoint.

graph = simplify(graph, trace)      # `trace` counts the rules that fired
Interning shares equal subexpressions, and a graph holds only what its outputs reach.
"""

from weft.core.rules import RuleSet
from weft.scalar.rules import IDENTITIES
from weft.tensor.rules_map import MAPS, TENSORS
from weft.tensor.rules_reduce import REDUCTIONS
from weft.tensor.rules_view import VIEWS

RULES = RuleSet(TENSORS, [*IDENTITIES, *MAPS, *VIEWS, *REDUCTIONS])

# Rewrites a graph until no rule applies; its float results may round differently.
simplify = RULES.rewrite
