"""Every rule of the tables, fuzzed: both sides are evaluated on random terms, and must agree.

A rule over functions is written as terms from its own pattern; a structural rule (views,
reductions, any function) has graphs in `samples`. A rule that never fires fails.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from tests.rules.samples import samples
from tests.rules.terms import (
    assert_rewritten,
    assert_same,
    generated,
    normal,
    rounds,
    tensor_leaf,
    values,
    written,
)
from weft.core.node import Graph, Node, make, postorder
from weft.core.rules import Rule, RuleSet
from weft.core.types import ScalarType
from weft.scalar.rules import VOCABULARY
from weft.tensor.ops import Input
from weft.tensor.rules import RULES, TENSORS
from weft.tensor.verify import verify

ROWS = {r.name: r for r in RULES.rules}
FUNCTION_ROWS = [r for r in RULES.rules if generated(r.pattern)]
STRUCTURE_ROWS = [r for r in RULES.rules if not generated(r.pattern)]


def graph_of(*outputs: Node) -> Graph:
    inputs = tuple(n for n in postorder(*outputs) if isinstance(n.op, Input))
    return Graph("tensor", "main", inputs, outputs)


def check(rule: Rule, graph: Graph, seed: int) -> int:
    """Apply the one rule to the graph, compare by evaluation, count how often it fired."""
    trace: Counter[str] = Counter()
    after = RuleSet(TENSORS, [rule]).rewrite(graph, trace)
    if not trace:
        return 0
    verify(after)
    assert_rewritten(graph, after, seed, rounds(rule) or "sign of" in rule.soundness)
    return trace[rule.name]


@pytest.mark.parametrize("rule", FUNCTION_ROWS, ids=lambda r: r.name)
def test_function_rule(rule: Rule) -> None:
    terms = written(rule.pattern, TENSORS, tensor_leaf, seed=1)
    fired = sum(check(rule, graph_of(t), seed) for seed, t in enumerate(terms))
    assert fired, f"{rule.name} never fired"


@pytest.mark.parametrize("rule", STRUCTURE_ROWS, ids=lambda r: r.name)
def test_structure_rule(rule: Rule) -> None:
    fired = sum(check(rule, graph_of(*outputs), seed) for seed, outputs in enumerate(samples()))
    assert fired, f"{rule.name} never fired in tests/rules/samples.py"


def _variable(name: str, dtype: Any) -> Node:
    """A free scalar of that dtype: an opaque leaf that evaluation is given the values of."""
    return make(Hole(name, dtype))


class Hole(Input):
    """An input of scalar type."""

    def infer(self) -> ScalarType:  # type: ignore[override]
        return ScalarType(self.tensor)  # type: ignore[arg-type]


@pytest.mark.parametrize("rule", FUNCTION_ROWS, ids=lambda r: r.name)
def test_the_same_rows_serve_scalar_terms(rule: Rule) -> None:
    rules, fired = RuleSet(VOCABULARY, [rule]), 0
    for seed, term in enumerate(written(rule.pattern, VOCABULARY, _variable, seed=2)):
        new = normal(rules, term)
        if new is term:
            continue
        fired += 1
        if rounds(rule):  # the same row as of tensors, where its rounding is compared
            continue
        random = np.random.default_rng(seed)
        holes = [n for n in postorder(term) if isinstance(n.op, Hole)]
        env: dict[Node, Any] = {h: values(h.type.dtype, (16,), random, "ends") for h in holes}
        with np.errstate(all="ignore"):
            before, after = (np.broadcast_to(_value(t, dict(env)), (16,)) for t in (term, new))
        assert_same(after, before)
    assert fired, f"{rule.name} never fired"


def _value(term: Node, env: dict[Node, Any]) -> Any:
    for n in postorder(term):
        if n not in env:
            env[n] = n.op.evaluate(*(env[a] for a in n.args))
    return np.asarray(env[term])


def test_every_rule_states_its_soundness() -> None:
    assert all(r.soundness for r in RULES.rules)


def test_names_are_unique() -> None:
    assert len(ROWS) == len(RULES.rules)
